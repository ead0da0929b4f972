"""Scenarios acted out by the in-process runner, mishaps and adaptations included, and held against the oracle."""

import random
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from tests.oracle import canonical
from tests.scenarios import ALL_GROUPS, Epoch, Scenario, Setting
from watersmeet.adaptation.clean_up import cleaning_orders, is_owing
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.engine.compaction import Merging
from watersmeet.engine.inbox import chunks
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.hops import is_mixed
from watersmeet.plan.probe_orders import NO_ORDERS, ProbeOrders, default_orders
from watersmeet.plan.tree import Join, nodes_of, parse_tree
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.epoch import must_close
from watersmeet.runtime.inprocess import InProcessQuery, pandas_hash
from watersmeet.state import run
from watersmeet.state.manifest import FirstBatch, Order, SegmentRef
from watersmeet.state.tiers import epoch_of

EAGER = Merging(small_fan_in=2, tier_ratio=1.5)
"""Merges that do not wait for many batches."""
STEPWISE = {"rows_per_arrived": 0, "share_of_state": 1 << 40, "fan_in": 2, "cells": 4, "share_every": 1}
CLEAN_UPS_MAX = 300
_RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None


def weak_hash(keys: list[pa.Array]) -> np.ndarray:
    """Three values for all keys, far apart: most keys collide, and the groups are few."""
    return (pandas_hash(keys) % np.uint64(3)) << np.uint64(62)


def low_hash(keys: list[pa.Array]) -> np.ndarray:
    """A hash of few bits at both ends of the space."""
    mixed = pandas_hash(keys)
    return ((mixed & np.uint64(1)) * np.uint64(0xFFFFFFFF00000000)) | (mixed >> np.uint64(62))


HASHES = {"pandas": pandas_hash, "weak": weak_hash, "low": low_hash}
Runner = Callable[[Scenario], pa.Table]


def run_in_process(scenario: Scenario) -> pa.Table:
    """The results of all batches, through the whole schedule."""
    return pa.concat_tables(epoch.results for epoch in epochs_in_process(scenario))


def check(scenario: Scenario, runner: Runner = run_in_process) -> None:
    """The runner, the oracle and the file agree. Mishaps in the schedule are for runners that can act them out."""
    expected = scenario.answer.results
    if scenario.expected is not None:
        assert expected == scenario.expected, difference(expected, scenario.expected, "oracle", "file")
        assert dict(scenario.answer.late) == dict(scenario.late), "late rows of oracle and file differ"
    found = canonical(runner(scenario))
    assert found == expected, difference(found, expected, "runner", "oracle")


def check_every_epoch(scenario: Scenario) -> None:
    """In-process: after each epoch the results so far are the oracle's, and state, memory and counts are in order.

    While generations owe each other results, those so far are among the oracle's; in the end they are the same.
    """
    so_far, expected = Counter(), Counter()
    for number, epoch in enumerate(epochs_in_process(scenario)):
        found = canonical(epoch.results)
        so_far += found
        expected += scenario.answer.batches[number]
        if not is_owing(epoch.engine.manifest):
            assert so_far == expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        assert so_far <= expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        if not epoch.has_cleaned and scenario.setting.spill is None:  # what a policy decides does not outlive a crash
            assert all(canonical(attempt) == found for attempt in epoch.attempts), "a repeated attempt found others"
        assert epoch.results.schema.equals(scenario.output_schema), "results have other types"
        epoch.check_files()
    totals = {name: rows for name, rows in epoch.totals.items() if name.startswith("late.")}
    assert so_far == expected, f"in the end: {difference(so_far, expected, 'engine', 'oracle')}"
    late = {f"late.{name}": rows for name, rows in scenario.answer.late.items()}
    assert totals == late, f"late rows: engine {totals}, oracle {late}"


@dataclass(frozen=True)
class Committed:
    """An epoch that has just been committed, while its files are there; `attempts` are what failed ones found."""

    results: pa.Table
    engine: InProcessQuery
    attempts: tuple[pa.Table, ...] = ()
    has_cleaned: bool = False

    @property
    def totals(self) -> Mapping[str, int]:
        return self.engine.manifest.totals

    def check_files(self) -> None:
        manifest = self.engine.manifest
        files = {path.name: path.stat().st_size for path in (self.engine.folder / "segments").glob("*")}
        named = {ref.name: ref.bytes for ref in manifest.segments.values()}
        assert files == named, f"segments on disk {files}, in the manifest {named}"
        used = {extent.segment for stage in manifest.extents for slot in stage for extent in slot}
        assert used == set(named), "the manifest names segments without extents, or the other way round"
        if self.engine.memory is not None:
            held = {path.name for path in self.engine.memory.glob("*")}
            stale = {name for name in held - named.keys() if epoch_of(name) < manifest.epoch}
            assert not stale, f"memory holds {stale}, which the manifest no longer names"
        if self.engine.memory is not None and self.engine.budget is not None:
            resident = sum(path.stat().st_size for path in self.engine.memory.glob("*"))
            budget = self.engine.budget * manifest.slots
            assert resident <= budget, f"memory holds {resident}, over the budget {budget} of all slots"
            closed = {e.segment for stage in manifest.extents for slot in stage for e in slot if not e.is_active}
            active = {e.segment for stage in manifest.extents for slot in stage for e in slot if e.is_active}
            shared = {path.name for path in self.engine.memory.glob("*")} & (closed - active)
            stale = {name for name in shared if epoch_of(name) >= manifest.epoch}
            assert not stale, f"memory holds {stale}, which is closed"


def epochs_in_process(scenario: Scenario) -> Iterator[Committed]:
    """Act the scenario out; each epoch is handed over right after it was committed."""
    bytes_max = scenario.setting.merge_bytes or run.COLUMN_BYTES_MAX
    with (
        tempfile.TemporaryDirectory(dir=_RAM, prefix="watersmeet-test-") as folder,
        patch.object(run, "COLUMN_BYTES_MAX", bytes_max),
    ):
        engine = _start(scenario, Path(folder), scenario.setting)
        setting, trees, young = scenario.setting, scenario.trees, Young()
        for batch, epoch in zip(scenario.batches, scenario.epochs, strict=True):
            if epoch.slots is not None or epoch.budget is not None:
                setting = replace(setting, slots=epoch.slots or setting.slots, budget=epoch.budget or setting.budget)
                engine = _start(scenario, Path(folder), setting, trees)
            if epoch.wiped and engine.memory is not None:
                shutil.rmtree(engine.memory, ignore_errors=True)
            clock = {"now_ms": epoch.now_ms, "idle_timeout_ms": setting.idle_timeout_ms}
            attempts = []
            trees_then = young.replan(scenario, engine, epoch, trees)
            engine.orders = _spilling(engine, epoch.spill)
            for failure in epoch.failures:
                if failure == "closing":
                    continue
                if failure == "during":
                    _fail_during(engine, batch, clock)
                    continue
                attempts.append(engine.attempt(batch, **clock)[0])
                if failure == "crash":
                    engine = _start(scenario, Path(folder), setting, trees)
                    young.replan(scenario, engine, epoch, trees)
                    engine.orders = _spilling(engine, epoch.spill)
            trees = trees_then
            young.see_orders(engine)
            if "closing" not in epoch.failures:
                shown = [engine.run(batch, **clock)]
                kept = range(engine.manifest.slots) if epoch.keep else ()
                for _ in range(epoch.clean):
                    orders = cleaning_orders(engine.plan, engine.manifest, bytes_at_once=1000, kept_slots=kept)
                    if orders and epoch.lost:
                        engine.attempt_orders(orders)
                        engine = _start(scenario, Path(folder), setting, trees)
                    if orders:
                        shown.append(engine.run_orders(orders))
                        young.is_over = True
                if batch is scenario.batches[-1]:
                    shown += _at_most(CLEAN_UPS_MAX, engine.clean_up(bytes_at_once=3000, kept_slots=kept))
                young.see(batch, engine)
                yield Committed(pa.concat_tables(shown), engine, tuple(attempts), len(shown) > 1)
                continue
            results, after = engine.attempt(batch, **clock)
            engine.accept(after)
            if must_close(engine.plan, engine.manifest):
                engine.attempt_closing()  # and lost
            engine = _start(scenario, Path(folder), setting, trees)
            closed = engine.close_windows()
            young.see(batch, engine)
            if batch is scenario.batches[-1]:
                owed = list(_at_most(CLEAN_UPS_MAX, engine.clean_up()))
                closed = pa.concat_tables([*([] if closed is None else [closed]), *owed]) if owed else closed
            yield Committed(results if closed is None else pa.concat_tables([results, closed]), engine, tuple(attempts))


@dataclass
class Young:
    """A query whose plan may change as long as nothing was ordered: its batches so far, and what was known after."""

    first: list[tuple[Mapping[str, pa.Table], FirstBatch]] = field(default_factory=list)
    is_over: bool = False

    def replan(self, scenario: Scenario, engine: InProcessQuery, epoch: Epoch, trees: Sequence[str]) -> Sequence[str]:
        """Change the plan if the schedule says so; the trees from now on."""
        if epoch.tree is None or self.is_over:
            return trees
        (tree,) = _trees(scenario, (epoch.tree,))
        engine.replan(tree, self.first, _drawn_orders(scenario.query, [tree], scenario.setting))
        return (epoch.tree,)

    def see_orders(self, engine: InProcessQuery) -> None:
        self.is_over |= bool(engine.orders or engine.coordinator.orders)

    def see(self, batch: Mapping[str, pa.Table], engine: InProcessQuery) -> None:
        known, file = engine.manifest, SegmentRef("", 0, 0)
        self.first.append((batch, FirstBatch(file, 0, known.watermark_us, known.last_seen_ms)))


def _spilling(engine: InProcessQuery, pairs: Iterable[tuple[int, int]]) -> tuple[Order, ...]:
    """Orders to close groups, given as (stage, group); both are taken modulo what there is."""
    stages = [number for number, stage in enumerate(engine.plan.stages) if not stage.hops]
    partitions = engine.plan.partitions
    groups: dict[tuple[int, int], set[int]] = defaultdict(set)
    for stage, named in pairs if stages else ():
        for group in range(partitions) if named == ALL_GROUPS else (named % partitions,):
            groups[stages[stage % len(stages)], engine.manifest.assignment[group]].add(group)
    return tuple(Order(stage, slot, spill=tuple(sorted(chosen))) for (stage, slot), chosen in groups.items())


def _at_most(count: int, epochs: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The epochs of a clean-up, which must come to an end."""
    for number, epoch in enumerate(epochs):
        assert number < count, f"the clean-up has not ended after {count} epochs"
        yield epoch


class _Torn(Exception):
    pass


def _fail_during(engine: InProcessQuery, batch: Mapping[str, pa.Table], clock: Mapping[str, Any]) -> None:
    """An attempt that dies after its first chunk."""
    cut = engine.cut

    def torn(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for chunk in cut(frames):
            yield chunk
            raise _Torn

    engine.cut = torn
    try:
        engine.attempt(batch, **clock)
    except _Torn:
        pass
    finally:
        engine.cut = cut


def _trees(scenario: Scenario, texts: Iterable[str]) -> list[Join]:
    return [parse_tree(text, [s.name for s in scenario.query.streams]) for text in texts]


def _start(scenario: Scenario, folder: Path, setting: Setting, texts: Sequence[str] | None = None) -> InProcessQuery:
    """A run on the folder; like every run it starts with empty memory."""
    shutil.rmtree(folder / "memory", ignore_errors=True)
    rows_max = setting.chunk_rows
    trees = _trees(scenario, scenario.trees if texts is None else texts)
    return InProcessQuery(
        scenario.query,
        folder / "checkpoint",
        slots=setting.slots,
        partitions=setting.partitions,
        memory=folder / "memory" if setting.memory else None,
        memory_budget_bytes=setting.budget,
        hash_keys=HASHES[setting.hash],
        trees=trees,
        orders=_drawn_orders(scenario.query, trees or [default_tree(scenario.query)], setting),
        cut=chunks if rows_max is None else lambda frames: chunks(frames, rows_max=rows_max),
        mode=scenario.mode,
        spill=None
        if setting.spill is None or setting.budget is None
        else SpillSettings(policy=policy_named(setting.spill), budget_bytes=setting.budget, upkeep=setting.upkeep),
        assignment=_drawn_assignment(setting),
        merging=_merging(setting),
    )


def _merging(setting: Setting) -> Merging:
    merging = EAGER if setting.merge_rows is None else replace(EAGER, rows_min=setting.merge_rows, **STEPWISE)
    return replace(merging, row_bytes=setting.merge_bytes or merging.row_bytes)


def _drawn_assignment(setting: Setting) -> tuple[int, ...] | None:
    """Any groups for any slot; another number of slots has another assignment. Some slots may have none."""
    if setting.scatter is None:
        return None
    chance = random.Random(f"{setting.scatter} {setting.slots}")
    return tuple(chance.choices(range(setting.slots), k=setting.partitions))


def _drawn_orders(query: JoinQuery, trees: Sequence[Join], setting: Setting) -> ProbeOrders:
    """Probe orders that differ from start to start where slots or budget do; results must not. Those of a node over
    several keys stay: they are what its state is for."""
    if setting.orders is None:
        return NO_ORDERS
    now, always = random.Random(f"{setting.orders} {setting.slots} {setting.budget}"), random.Random(setting.orders)
    drawn = {}
    for node in [node for tree in trees for node in nodes_of(tree)]:
        chance = always if is_mixed(query, node) else now
        drawn[node] = tuple(tuple(chance.sample(order, len(order))) for order in default_orders(node))
    return drawn


def difference(found: Counter, expected: Counter, ours: str, theirs: str) -> str:
    extra, missing = found - expected, expected - found
    too_many = f"{ours} has {extra.total()} too many {_few(extra)}"
    return f"{too_many} and lacks {missing.total()} {_few(missing)} of {theirs}"


def _few(rows: Counter) -> list:
    return list(rows.items())[:5]
