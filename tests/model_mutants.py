"""Mutants of the execution models: see `tests/mutants.py`."""

from tests.mutants import Mutant

NOT_SYNCHRONISED = Mutant(
    "the punctuation overtakes the rows of its queue",
    "runtime.execution_models:QueuedJoin.migrate",
    "node.queues[i].append(PUNCTUATION)",
    "node.queues[i].insert(0 if plan is not self.plan else len(node.queues[i]), PUNCTUATION)",
)
"""Moving state as in chapter 12: queues between nodes are drained, those of streams are not."""
MODEL_MUTANTS = [
    NOT_SYNCHRONISED,
    Mutant(
        "the punctuation is sent on when the first input has it",
        "runtime.queued_nodes:QueuedNode.is_synchronised",
        "all(queue",
        "any(queue",
    ),
    Mutant(
        "queues are not drained before the match",
        "runtime.execution_models:QueuedJoin.migrate",
        "self._send_on()",
        "self._move()",
    ),
    Mutant(
        "rows behind the punctuation are joined before the match",
        "runtime.execution_models:QueuedJoin._send_on",
        "node.has_forwarded = True",
        "[queue.popleft() for queue in node.queues]",
    ),
    Mutant(
        "the punctuation ends in the first stage",
        "runtime.execution_models:QueuedJoin._send_on",
        "if self._nodes[-1] in reached:",
        "if self._nodes[0] in reached:",
    ),
    Mutant(
        "a joined row purges by its latest time",
        "runtime.queued_nodes:frontier_us",
        "earliest = first_moments(last, layout.span_us)",
        "pass",
    ),
    Mutant(
        "one other input is enough to purge",
        "runtime.queued_nodes:QueuedNode._purge",
        "if len(known) == len(others):",
        "if known:",
    ),
    Mutant(
        "the input that is ahead purges",
        "runtime.queued_nodes:QueuedNode._purge",
        "min(known)",
        "max(known)",
    ),
    Mutant(
        "streams are taken to be in order",
        "runtime.queued_nodes:frontier_us",
        "before_us(int(earliest.max()), disorder_us)",
        "before_us(int(earliest.max()), 0)",
    ),
    Mutant(
        "rows behind the punctuation are lost",
        "runtime.execution_models:QueuedJoin._move",
        "for entry in sorted(waiting, key=lambda entry: entry.arrival):",
        "for entry in ():",
    ),
    Mutant(
        "a queue that is empty blocks no node",
        "runtime.queued_nodes:QueuedNode.in_order",
        "if None in firsts:",
        "if False:",
    ),
]
