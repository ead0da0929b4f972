"""Mutants of spilling and clean-up: see `tests/mutants.py`."""

from tests.mutants import Mutant

SPILL_MUTANTS = [
    Mutant(
        "what is owed includes results of one generation",
        "engine.mjoin:_is_mixed",
        "mixed: Mask = partials.mixed[needles] | (partials.generation[needles] != generation)",
        "mixed: Mask = partials.mixed[needles] | True",
    ),
    Mutant(
        "a partial is mixed by its last row only",
        "engine.mjoin:_is_mixed",
        "mixed: Mask = partials.mixed[needles] | (partials.generation[needles] != generation)",
        "mixed: Mask = partials.generation[needles] != generation",
    ),
    Mutant(
        "rows of a merged run are joined again within their generation",
        "engine.mjoin:_Hop._of_generations",
        "if mixed_only and not mixed.all():",
        "if False:",
    ),
    Mutant(
        "all rows of a merged run are of the generation of the first",
        "engine.mjoin:_Held.generation_of",
        "else self.generation[rows]",
        "else self.generation[rows[:1]]",
    ),
    Mutant(
        "a merge of closed state forgets a generation",
        "engine.generations:merged_parts",
        "labelled(p.run, p.generation)",
        "labelled(p.run, parts[0].generation)",
    ),
    Mutant(
        "merged generations owe nothing earlier than the last of them",
        "engine.closed_state:_named",
        "since_us = min(",
        "since_us = max(",
    ),
    Mutant(
        "an extent of several generations owes nothing by itself",
        "epoch.owing:owing_groups",
        "2 if generation == SEVERAL else 1",
        "1",
    ),
    Mutant(
        "what attempts wrote in vain stays",
        "state.attempts:end",
        "if entry.name not in accepted:",
        "if False:",
    ),
    Mutant(
        "rows of one store only are closed",
        "engine.generations:_divided",
        "going = _positions(part, chosen, partitions)",
        "going = _positions(part, chosen, partitions) & (store == 0)",
    ),
    Mutant(
        "closed rows stay active",
        "engine.opening:open_state",
        "elif extent.is_active:",
        "else:",
    ),
    Mutant(
        "what was closed before is forgotten by the next spill",
        "engine.fold:fold",
        "closed = spilled.closed",
        "closed = [e for e in spilled.closed if e not in task.closed] or spilled.closed",
    ),
    Mutant(
        "rows expire that are still owed",
        "engine.step:_expiring",
        "if not ending:",
        "if True:",
    ),
    Mutant(
        "rows that have ended are dropped at once beside closed generations",
        "engine.fold:fold",
        "holds_all=bool(closed)",
        "holds_all=False",
    ),
    Mutant(
        "expiring rows of later inputs do not meet each other",
        "engine.owed:owed_at_expiry",
        "[*others[j], *first[j]]",
        "others[j]",
    ),
    Mutant(
        "expiring rows of all inputs meet each other twice",
        "engine.owed:owed_at_expiry",
        "others[j] if j < i else [*others[j], *first[j]]",
        "[*others[j], *first[j]]",
    ),
    Mutant(
        "rows that expire while their group is closed are of another generation",
        "engine.generations:divided",
        "if not task.spill:",
        "if True:",
    ),
    Mutant(
        "what is owed to the parent is not stored there",
        "engine.work:Work.deliver",
        "self._add(first + i, run)",
        "pass",
    ),
    Mutant(
        "what is owed below meets no active rows",
        "engine.work:Work.deliver",
        "yield from self.deliver(above, result)",
        "pass",
    ),
    Mutant(
        "clean-up leaves generations as they were",
        "engine.generations:relabelled",
        "if is_inside",
        "if False",
    ),
    Mutant(
        "clean-up settles all groups",
        "engine.generations:relabelled",
        "if is_inside",
        "if True",
    ),
    Mutant(
        "clean-up forgets groups beyond its range",
        "engine.generations:relabelled",
        "split_by_range(extent.groups, low, high), strict=True",
        "split_by_range(extent.groups, low, high)[:2], strict=False",
    ),
    Mutant(
        "results owed below do not hold back expiry above",
        "epoch.frontiers:holds",
        "if debt.streams <= node - store",
        "if False",
    ),
    Mutant(
        "a generation owes nothing earlier than the watermark",
        "engine.generations:_since",
        "return run.time_min if task.frontier_us is None else max(run.time_min, task.frontier_us)",
        "return task.watermark_us",
    ),
    Mutant(
        "clean-up misses rows that have just arrived",
        "engine.step:_cleaned",
        "[*closed, *work.active()]",
        "closed",
    ),
    Mutant(
        "nothing is ever cleaned up",
        "adaptation.clean_up:owing_groups",
        "if all(extent.is_active for extent in extents):",
        "if True:",
    ),
    Mutant(
        "only the first stage is cleaned up",
        "adaptation.clean_up:cleaning_orders",
        "for stage in range(len(plan.stages)):",
        "for stage in range(1):",
    ),
    Mutant(
        "a stage takes memory that others have yet to give up",
        "epoch.memory_shares:memory_shares",
        "free = max(0, sum(accounts) - sum(resident))",
        "free = sum(accounts)",
    ),
    Mutant(
        "lent memory is counted twice",
        "adaptation.lending:lent",
        "slack = budget_bytes * len(needs) - sum(own)",
        "slack = budget_bytes * len(needs)",
    ),
]
