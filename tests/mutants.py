"""Mutants: the engine with one thing wrong. A test suite that lets one of them live is not finished.

A mutant replaces a piece of the source of one function. The function object keeps its identity and gets other code, so
that every module that imported it sees the mutant; and the piece must occur, so that no mutant outlives its source.
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


_INSERT = "stores[i] = stores[i] + runs"
_DELTAS = "for i, runs in enumerate(deltas_of(chunk, plan.frame, plan.stores, task.watermark_us, counts)):"
_ALL_DELTAS = f"""deltas = {_DELTAS[25:-2]}
            stores = [store + delta for store, delta in zip(stores, deltas)]
            for i, runs in enumerate(deltas):"""
_EAGER = """newest = max((run.time_max for run in runs), default=0)
                window = plan.stores[i].window_us or 1 << 61
                stores[i] = [run for run in stores[i] + runs if not runs or run.time_max + window > newest]"""
_MERGE = "return build_runs(hashes, concat_batches([run.keys for run in runs]), times, payload, key_of_row)"
_DISTINCT = """marks = np.stack([key_of_row, key_of_row if times is None else times])
    kept = np.sort(np.unique(marks, axis=1, return_index=True)[1])
    times = None if times is None else times[kept]
    keys = concat_batches([run.keys for run in runs])
    return build_runs(hashes, keys, times, take_rows(payload, kept), key_of_row[kept])"""

MUTANTS = [
    # windows
    Mutant(
        "next row may be a whole window older", "engine.mjoin:_Hop._search", "_window(target) + 1", "_window(target)"
    ),
    Mutant(
        "next row must be two moments newer", "engine.mjoin:_Hop._search", "_window(target) + 1", "_window(target) + 2"
    ),
    Mutant("limit of the first row too late", "engine.mjoin:_Hop.start", "latest + self._w", "latest + 1 + self._w"),
    Mutant("limit of a bound row too late", "engine.mjoin:_Hop._bind", "times + self._w", "times + 1 + self._w"),
    Mutant("limit of a bound row too early", "engine.mjoin:_Hop._bind", "times + self._w", "times - 1 + self._w"),
    Mutant("limit forgets the rows before", "engine.mjoin:_Hop._bind", "np.minimum(partials.limit[parents], ", "("),
    Mutant(
        "latest forgets the rows before",
        "engine.mjoin:_Hop._bind",
        "np.maximum(partials.latest[parents], times)",
        "times",
    ),
    Mutant(
        "window of the wrong stream", "engine.mjoin:_Hop._search", "self._window(target)", "self._window(self.origin)"
    ),
    Mutant(
        "run skipped at its last moment",
        "engine.kernels:rows_between",
        "low <= target.time_max",
        "low < target.time_max",
    ),
    Mutant(
        "run skipped at its first moment",
        "engine.kernels:rows_between",
        "high > target.time_min",
        "high > target.time_min + 1",
    ),
    Mutant(
        "whole key taken too early",
        "engine.kernels:rows_between",
        "high.min() > target.time_max",
        "high.min() >= target.time_max",
    ),
    Mutant(
        "whole key taken too late a start",
        "engine.kernels:rows_between",
        "low.max() <= target.time_min",
        "low.max() <= target.time_min + 1",
    ),
    Mutant(
        "rank base forgotten in a probe", "engine.kernels:rows_between", "found + np.int64(target.rank_base)", "found"
    ),
    # keys
    Mutant("NULL = NULL", "engine.inbox:_keep", "keep &= known", "pass"),
    Mutant(
        "floats by their bits", "engine.inbox:normalise_key", "if not pa.types.is_floating(column.type):", "if True:"
    ),
    Mutant(
        "a probe trusts the hash",
        "engine.kernels:match_keys",
        "keys_equal(delta.keys, open_keys, target.keys, positions[open_keys])",
        "np.ones(len(open_keys), dtype=np.bool_)",
    ),
    Mutant("a probe tries one key per hash", "engine.kernels:match_keys", "positions[open_keys] += 1", "break"),
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
        "equal &= values.to_numpy(zero_copy_only=False)",
        "break",
    ),
    # deltas and chunks
    Mutant("a delta is not seen by later inputs", "engine.step:step", _INSERT, "pass"),
    Mutant(
        "the first delta is not seen by later inputs",
        "engine.step:step",
        _INSERT,
        "stores[i] = stores[i] + runs if i else stores[i]",
    ),
    Mutant(
        "deltas of later inputs are probed too",
        "engine.step:step",
        _DELTAS,
        _ALL_DELTAS,
    ),
    Mutant("a chunk forgets earlier chunks", "engine.step:step", "arrived.append(delta)", "arrived = [delta]"),
    Mutant("state is not probed", "engine.step:step", "if s == i]", "if s == i and False]"),
    # time
    Mutant("nothing is late", "engine.inbox:_keep", "if late.any():", "if False:"),
    Mutant(
        "on the watermark is late",
        "engine.inbox:_keep",
        "_micros(column) < watermark_us",
        "_micros(column) <= watermark_us",
    ),
    Mutant("no event time is a time", "engine.inbox:_keep", "keep &= timed", "pass"),
    Mutant("the fastest stream leads", "runtime.epoch:_watermark", "reached = min(", "reached = max("),
    Mutant(
        "the watermark falls",
        "runtime.epoch:_watermark",
        "return reached if before is None else max(before, reached)",
        "return reached",
    ),
    Mutant("the watermark ignores delays", "runtime.epoch:_watermark", "t - plan.delays_us[i]", "t"),
    Mutant("the watermark forgets earlier batches", "runtime.epoch:_later", "max(a, b)", "b"),
    Mutant(
        "a stream not yet seen does not count",
        "runtime.epoch:_watermark",
        "if not active or any(t is None for t in latest):",
        "if not any(t is not None for t in latest):",
    ),
    Mutant(
        "idle a moment early",
        "runtime.epoch:commit",
        "now_ms - last > idle_timeout_ms",
        "now_ms - last >= idle_timeout_ms",
    ),
    # expiry
    Mutant(
        "extents expire a moment early",
        "engine.compaction:expired",
        "time_max + window_us <= watermark_us",
        "time_max + window_us <= watermark_us + 1",
    ),
    Mutant("rows expire a moment early", "engine.compaction:by_bucket", "> watermark_us", "> watermark_us + 1"),
    Mutant("extents expire with their first row", "engine.fold:_named", "run.time_max", "run.time_min"),
    Mutant("expiry ignores delays", "engine.fold:_watermark_bound", "latest[store] - delay", "latest[store]"),
    Mutant("expiry follows the fastest stream", "engine.fold:_watermark_bound", "bound = min(", "bound = max("),
    Mutant("expiry before the batch is probed", "engine.step:step", _INSERT, _EAGER),
    # predicates and results
    Mutant(
        "residuals are not applied",
        "engine.mjoin:_Hop._filtered",
        "if newest not in residual.inputs or not residual.inputs <= partials.bound.keys():",
        "if True:",
    ),
    Mutant("unknown is true", "engine.expressions:evaluate", "fill_null(False)", "fill_null(True)"),
    Mutant("results mix up rows", "engine.mjoin:Bound.narrowed", "self.index[rows]", "np.sort(self.index[rows])"),
    # merges
    Mutant("a merge loses duplicates", "state.run:merge_runs", _MERGE, _DISTINCT),
    Mutant("a merge loses layers", "engine.fold:_merged", "by_store[store].append(run)", "by_store[store] = [run]"),
    Mutant("a merge mixes up keys", "state.run:merge_runs", "run.row_ranks() + offset", "run.row_ranks()"),
    # slots and tiers
    Mutant(
        "extents are not cut for new slots",
        "state.manifest:_cut",
        "max(low, extent.group_low), min(high, extent.group_high)",
        "extent.group_low, extent.group_high",
    ),
    Mutant(
        "extents lose their last group",
        "state.manifest:_cut",
        "min(high, extent.group_high)",
        "min(high, extent.group_high) - 1",
    ),
    Mutant("groups stay with their old slots", "state.manifest:reassign", "assignment=assignment, ", ""),
    Mutant(
        "extents are opened whole",
        "engine.fold:_cut",
        "return run.between_hashes(",
        "return run if True else run.between_hashes(",
    ),
    Mutant("a cut forgets its rank base", "state.run:Run.between_hashes", "self.rank_base + first", "self.rank_base"),
    Mutant("a cut is written with old ranks", "state.segment:_compact", "run.rank_base << run.time_bits", "0"),
    Mutant(
        "memory grows over its budget",
        "state.tiers:Tiers.retain",
        "if ref.name in self._resident and fits:",
        "if ref.name in self._resident:",
    ),
    Mutant("failed attempts stay in memory", "state.tiers:Tiers.sweep", "(failed or epoch_of", "(epoch_of"),
    Mutant(
        "expired segments stay in memory",
        "engine.fold:open_state",
        "task.segments.keys() - dead",
        "task.segments.keys()",
    ),
]
