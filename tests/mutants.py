"""Mutants: the engine with one thing wrong. A test suite that lets one of them live is not finished.

A mutant replaces a piece of the source of one function. The function object keeps its identity and gets other code, so
that every module that imported it sees the mutant; and the piece must occur, so that no mutant outlives its source.

Two that one might miss are no mutants, because they change nothing: the late rule applied to intermediate results (a
new result has a new row among its own, so its `latest`, and its `limit` even more, is not before the watermark), and a
run stored just before it probes (a probe never looks at the store of its own input).
"""

import __future__

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType


@dataclass(frozen=True)
class Mutant:
    """`target` is "module:function" below watersmeet; in it, `old` becomes `new`."""

    name: str
    target: str
    old: str
    new: str
    crashes: str | None = None
    """Why it cannot show in wrong results: for a mutant that makes the code crash, always."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        function = self._function()
        original = function.__code__
        function.__code__ = self._code(function)
        try:
            yield
        finally:
            function.__code__ = original

    def _function(self) -> FunctionType:
        module, _, path = self.target.partition(":")
        found = importlib.import_module(f"watersmeet.{module}")
        for part in path.split("."):
            found = getattr(found, part)
        return found

    def _code(self, function: FunctionType):
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise LookupError(
                f"mutant '{self.name}': '{self.old}' occurs {source.count(self.old)} times in {self.target}"
            )
        text = source.replace(self.old, self.new)
        made: dict = {}
        flags = __future__.annotations.compiler_flag
        exec(compile(text, f"<mutant {self.name}>", "exec", flags), function.__globals__, made)
        return made[function.__name__].__code__


RESULTS = "engine.work:Work.results"
ADD = "self._add(node.first_store + i, run)"
_LOOP = """    for i in range(len(node.inputs)):
        for run in self._delta(node, i, deltas):
            yield from self.tally.timed(PROBE_NS, self._probe(node, i, run))
            self._add(node.first_store + i, run)"""
EAGER = """self._add(node.first_store + i, run)
            span, first = node.inputs[i].span_us or 1 << 61, node.first_store
            self.stores[first + i] = [r for r in self.stores[first + i] if r.time_max + span > run.time_max]"""


def _stored_first(which: str) -> str:
    """The loop of a node in which some deltas are in the stores before any of them probes."""
    return f"""    first, last = node.first_store, node.first_store + len(node.inputs)
    pending = [(i, run) for i in range(len(node.inputs)) for run in self._delta(node, i, deltas)]
    for i, run in pending:
        if {which}:
            self._add(first + i, run)
    for i, run in pending:
        yield from probe(node, i, run, self.stores[first:last])
        if not ({which}):
            self._add(first + i, run)"""


MUTANTS = [
    # windows
    Mutant("next row may be a whole window older", "engine.mjoin:_Hop._search", "needles], self", "needles] - 1, self"),
    Mutant("next row must be two moments newer", "engine.mjoin:_Hop._search", "needles], self", "needles] + 1, self"),
    Mutant("limit of the first row too late", "engine.mjoin:_Hop.start", "last = last_m", "last = 1 + last_m"),
    Mutant("limit of a bound row too late", "engine.mjoin:_Hop._bind", "end = last_m", "end = 1 + last_m"),
    Mutant("limit of a bound row too early", "engine.mjoin:_Hop._bind", "end = last_m", "end = -1 + last_m"),
    Mutant(
        "limit forgets the rows before", "engine.mjoin:_Hop._bind", "np.minimum(partials.last[parents], end)", "end"
    ),
    Mutant(
        "latest forgets the rows before",
        "engine.mjoin:_Hop._bind",
        "np.maximum(partials.latest[parents], times)",
        "times",
    ),
    Mutant("window of the wrong stream", "engine.mjoin:_Hop._search", "self._span(target)", "self._span(self.origin)"),
    Mutant(
        "run skipped at its last moment",
        "engine.kernels:rows_between",
        "first <= target.time_max",
        "first < target.time_max",
    ),
    Mutant(
        "run skipped at its first moment",
        "engine.kernels:rows_between",
        "last >= target.time_min",
        "last > target.time_min",
    ),
    Mutant(
        "whole key taken too early",
        "engine.kernels:rows_between",
        "last.min() >= target.time_max",
        "last.min() >= target.time_max - 1",
    ),
    Mutant(
        "whole key taken too late a start",
        "engine.kernels:rows_between",
        "first.max() <= target.time_min",
        "first.max() <= target.time_min + 1",
    ),
    Mutant(
        "rank base forgotten in a probe", "engine.kernels:rows_between", "found + np.int64(target.rank_base)", "found"
    ),
    # keys
    Mutant(
        "floats by their bits", "engine.inbox:normalise_key", "if not pa.types.is_floating(column.type):", "if True:"
    ),
    Mutant(
        "a probe trusts the hash",
        "engine.kernels:match_keys",
        "keys_equal(delta.keys, open_keys, target.keys, positions)",
        "np.ones(len(open_keys), dtype=np.bool_)",
    ),
    Mutant(
        "a probe tries one key per hash",
        "engine.kernels:match_keys",
        "open_keys, positions = open_keys[~equal], positions[~equal] + 1",
        "break",
    ),
    Mutant("a run trusts the hash", "state.run:group_keys", "if len(repeated) and not", "if False and not"),
    Mutant(
        "colliding keys not told apart",
        "state.run:group_keys",
        "first[1:] |= ~keys_equal(keys, order[1:], keys, order[:-1])",
        "pass",
    ),
    Mutant(
        "only the first key component counts",
        "state.run:keys_equal",
        "zip(left.columns, right.columns, strict=True):",
        "[(left.columns[0], right.columns[0])]:",
    ),
    # deltas and chunks
    Mutant("a delta is not seen by later inputs", RESULTS, ADD, "self.arrived.append((node.first_store + i, run))"),
    Mutant(
        "the first delta is not seen by later inputs",
        RESULTS,
        ADD,
        f"{ADD} if i else self.arrived.append((node.first_store + i, run))",
    ),
    Mutant("deltas of later inputs are probed too", RESULTS, _LOOP, _stored_first("node.children[i] is None")),
    Mutant(
        "a chunk forgets earlier chunks",
        "engine.step:_run_nodes",
        """            yield from _emit(plan, task.stage, stage.feeds, joined, tally)
        arrived.append(work.take_arrived())""",
        """            yield from _emit(plan, task.stage, stage.feeds, joined, tally)
        arrived = [work.take_arrived()]""",
    ),
    Mutant("state is not probed", "engine.step:_runs_by_store", "found[store].append(run)", "pass"),
    # hops: nodes over several keys
    Mutant(
        "a hop goes on where it is, though the next key is another",
        "plan.hops:_walk",
        "if key != keys[0]",
        "if not key",
        crashes="rows do not have the columns of a key that they were not sent by",
    ),
    Mutant("a hop misses what is new", "engine.step:_targets", "if target.with_arrivals and", "if False and"),
    Mutant("a hop sees all that is new", "engine.step:_targets", "if target.with_arrivals and", "if"),
    Mutant("a hop misses what another stage keeps", "engine.step:_run_hops", "task.reads[number]", "()"),
    Mutant(
        "a hop forgets earlier chunks",
        "engine.step:_run_hops",
        "for chunk in taken for run in chunk[number]]",
        "for chunk in taken[-1:] for run in chunk[number]]",
    ),
    Mutant(
        "an index is fed by the wrong input", "engine.step:_run_hops", "run in chunk[index.arrivals]", "run in chunk[0]"
    ),
    Mutant(
        "an index that is read is that of another input",
        "epoch.tasks:_kept_elsewhere",
        "[index.layout.name]",
        "[name for name in manifest.extents[slot] if name != index.layout.name][:1]",
    ),
    Mutant(
        "the order of inputs is that of the text reversed",
        "plan.stages:_hops",
        "with_arrivals=j < step.origin",
        "with_arrivals=j > step.origin",
    ),
    # trees: what a node hands on
    Mutant(
        "intermediate results are stored before they probe",
        RESULTS,
        _LOOP,
        _stored_first("node.children[i] is not None"),
    ),
    Mutant("results of a child are not stored", RESULTS, ADD, f"{ADD} if node.children[i] is None else None"),
    Mutant(
        "results of another stage are not stored",
        RESULTS,
        ADD,
        f"{ADD} if node.children[i] is not None or hasattr(node.inputs[i].tree, 'stream') else None",
    ),
    Mutant(
        "results of a child are fed twice",
        "engine.work:Work._delta",
        "in self.results(child, deltas):",
        "in [*self.results(child, deltas)] * 2:",
    ),
    Mutant(
        "only the last results of a child are handed on",
        "engine.work:Work._delta",
        "in self.results(child, deltas):",
        "in [*self.results(child, deltas)][-1:]:",
    ),
    Mutant(
        "an exchange goes to the wrong input",
        "engine.emission:_frame",
        "np.full(joined.rows, ordinal, ",
        "np.full(joined.rows, (ordinal + 1) % len(target.inputs), ",
    ),
    Mutant("an exchange tells the limit for the time", "engine.emission:_frame", "partials.latest", "partials.last"),
    Mutant(
        "an exchange tells the time for the limit",
        "engine.emission:_payload",
        "limits_of_last(joined.partials.last)",
        "joined.partials.latest",
    ),
    Mutant("runs of results mix up keys", "engine.emission:runs_of", "partials.ranks)", "np.sort(partials.ranks))"),
    # trees: keys and predicates of a node
    Mutant(
        "a class that is no key is not compared",
        "engine.mjoin:_Hop.filtered",
        "partials = self._kept(partials, key_values_equal(*sides), key_class_name(equality.key_class))",
        "pass",
    ),
    Mutant(
        "a class is compared with its first neighbour only",
        "plan.nodes:_equalities",
        "in pairwise(having)]",
        "in [*pairwise(having)][:1]]",
    ),
    Mutant("NULL in a later class is a value", "engine.inbox:_class_columns", "kept = [", "kept = [] and ["),
    Mutant("NULL in a key is a value", "engine.inbox:_keep", "[*plan.frame.keys[stage], *_", "[*_"),
    Mutant("residuals have no node", "plan.nodes:_residuals", "not any(streams", "not any(True or streams"),
    Mutant(
        "residuals below the top are forgotten",
        "plan.nodes:_residuals",
        "if streams <= streams_of(node)",
        "if len(streams_of(node)) == len(ordinal)",
    ),
    # trees: intervals
]
