"""Scenarios acted out by the in-process runner, mishaps and adaptations included, and held against the oracle."""

import random
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from tests.crashing import EpochSink, Player
from tests.lending import shares_checked
from tests.oracle import canonical
from tests.restless import Eager, Restless
from tests.scenarios import ALL_GROUPS, Epoch, Scenario, Setting
from tests.spoiling import spoil_copies
from watersmeet.adaptation.migration import AUTO, ROWS_AT_ONCE
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.engine import generations, layers, mjoin, panes, work
from watersmeet.engine.compaction import Merging
from watersmeet.engine.inbox import chunks
from watersmeet.epoch.after import Clock
from watersmeet.epoch.kinds import Spill
from watersmeet.epoch.owing import is_owing
from watersmeet.epoch.task import SlotTask
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.hops import is_mixed
from watersmeet.plan.placement import Move, Placement
from watersmeet.plan.probe_orders import NO_ORDERS, ProbeOrders, default_orders
from watersmeet.plan.spillable import spillable_stages
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.state_matching import differs_by_slot
from watersmeet.plan.tree import Join, Leaf, nodes_of, parse_tree
from watersmeet.planning.reoptimizing import Reoptimizer
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.inprocess_frames import pandas_hash
from watersmeet.state import run
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import LATE, RESULTS, Counts
from watersmeet.state.tiers import epoch_of

EAGER = Merging(small_fan_in=2, tier_ratio=1.5)
"""Merges that do not wait for many batches."""
STEPWISE = {
    "rows_per_arrived": 0,
    "share_of_state": 1 << 40,
    "fan_in": 2,
    "cells": 4,
    "share_every": 1,
    "small_rows_min": 0,
    "small_per_arrived": 0.5,
}
CLEAN_UPS_MAX = 300
BYTE_BOUNDS = (
    (run, "RUN_BYTES_MAX"),
    (mjoin, "BYTES_MAX"),
    (mjoin, "UNEVEN_BYTES_MAX"),
    (layers, "HELD_BYTES_MAX"),
    (work, "HELD_BYTES_MAX"),
    (panes, "BYTES_AT_ONCE"),
    (generations, "BYTES_AT_ONCE"),
)
HOSTS = 2
RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None


def weak_hash(keys: list[pa.Array]) -> np.ndarray:
    """Three values for all keys, far apart: most keys collide, and the groups are few."""
    return (pandas_hash(keys) % np.uint64(3)) << np.uint64(62)


def low_hash(keys: list[pa.Array]) -> np.ndarray:
    """A hash of few bits at both ends of the space."""
    mixed = pandas_hash(keys)
    return ((mixed & np.uint64(1)) * np.uint64(0xFFFFFFFF00000000)) | (mixed >> np.uint64(62))


HASHES = {"pandas": pandas_hash, "weak": weak_hash, "low": low_hash}


def run_in_process(scenario: Scenario) -> pa.Table:
    """The results of all batches, through the whole schedule."""
    return pa.concat_tables(epoch.results for epoch in epochs_in_process(scenario))


def check_file(scenario: Scenario) -> None:
    """The oracle and the file agree."""
    expected = scenario.answer.results
    assert expected == scenario.expected, difference(expected, scenario.expected, "oracle", "file")
    assert dict(scenario.answer.late) == dict(scenario.late), "late rows of oracle and file differ"


def check_every_epoch(scenario: Scenario) -> None:
    """In-process: after each epoch the results so far are the oracle's, and state, memory and counts are in order.

    While generations owe each other results, those so far are among the oracle's; in the end they are the same.
    """
    so_far, expected = Counter(), Counter()
    for number, epoch in enumerate(epochs_in_process(scenario)):
        found = canonical(epoch.results)
        so_far += found
        expected += scenario.answer.batches[number]
        if not is_owing(epoch.engine.plan, epoch.engine.manifest):
            assert so_far == expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        assert so_far <= expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        if not epoch.has_cleaned and not _decides_by_itself(scenario.setting):
            assert all(canonical(attempt) == found for attempt in epoch.attempts), "a repeated attempt found others"
        assert epoch.results.schema.equals(scenario.output_schema), "results have other types"
        epoch.check_files()
    totals = epoch.totals.by(LATE)
    assert so_far == expected, f"in the end: {difference(so_far, expected, 'engine', 'oracle')}"
    late = dict(scenario.answer.late)
    assert totals == late, f"late rows: engine {totals}, oracle {late}"


def _decides_by_itself(setting: Setting) -> bool:
    """Whether epochs beside those of the schedule may emit owed results, or other groups be closed after a crash."""
    return setting.spill is not None or setting.restless is not None or setting.young


@dataclass(frozen=True)
class Committed:
    """What a batch has come to, mishaps included, while its files are there; `attempts` are what lost ones found."""

    results: pa.Table
    engine: InProcessQuery
    attempts: tuple[pa.Table, ...] = ()
    has_cleaned: bool = False
    has_lost_attempts: bool = False
    has_rivals: bool = False

    @property
    def totals(self) -> Counts:
        return self.engine.manifest.totals

    def check_files(self) -> None:
        manifest, setup = self.engine.manifest, self.engine.setup
        files = {path.name: path.stat().st_size for path in self.engine.checkpoint.segments.glob("*")}
        named = {ref.name: ref.bytes for ref in manifest.segments.values()}
        if self.has_rivals:  # what these left is swept by the next driver
            files = {name: size for name, size in files.items() if name in named}
        assert files == named, f"segments on disk {files}, in the manifest {named}"
        used = {extent.segment for extent in manifest.all_extents()}
        assert used == set(named), "the manifest names segments without extents, or the other way round"
        results = {path.name for path in self.engine.slots.results.glob("*")}
        told = {file.name for file in manifest.outbox.files}
        assert told <= results, f"results {told - results} are named and gone"
        is_swept = setup.parts is None and not self.has_lost_attempts  # nobody reads parts that no log names
        assert not is_swept or results == told, f"results {results - told} are left over"
        is_built = any(event["kind"].startswith("migrat") for event in manifest.events)  # the next epoch sweeps
        closed = {extent.segment for extent in manifest.all_extents() if not extent.is_active}
        active = {extent.segment for extent in manifest.all_extents() if extent.is_active}
        for memory in setup.memories:
            held = {path.name: path.stat().st_size for path in memory.glob("*")}
            written = {name for name in held if name.endswith(".seg")}
            stale = {name for name in written - named.keys() if epoch_of(name) < manifest.epoch}
            if setup.hosts > 1:  # the next task there sweeps it
                stale -= {*self.engine._drops.recent.get(manifest.epoch, ())}
            assert not stale or is_built, f"memory holds {stale}, which the manifest no longer names"
            if setup.memory_budget_bytes is not None:
                budget = setup.memory_budget_bytes * -(-manifest.slots // setup.hosts)
                resident = sum(held.values())
                assert resident <= budget, f"memory holds {resident}, over the budget {budget} of its host"
                stale = {name for name in written & (closed - active) if epoch_of(name) >= manifest.epoch}
                assert not stale, f"memory holds {stale}, which is closed"


def epochs_in_process(scenario: Scenario) -> Iterator[Committed]:
    """Act the scenario out; each batch is handed over when it is committed, with all that followed from it."""
    with (
        tempfile.TemporaryDirectory(dir=RAM, prefix="watersmeet-test-") as folder,
        _bytes_bounded(scenario.setting.merge_bytes),
        shares_checked(),
    ):
        setting = scenario.setting
        player = Player(_starter(scenario, Path(folder), setting), EpochSink(replaces=scenario.mode == "complete"))
        for number, (batch, epoch) in enumerate(zip(scenario.batches, scenario.epochs, strict=True)):
            if epoch.slots is not None or epoch.budget is not None:
                setting = replace(setting, slots=epoch.slots or setting.slots, budget=epoch.budget or setting.budget)
                player.restart(_starter(scenario, Path(folder), setting))
            for memory in player.engine.setup.memories:
                if epoch.wiped:
                    shutil.rmtree(memory, ignore_errors=True)
                if epoch.spoiled:
                    spoil_copies(memory)

            def prepare(engine: InProcessQuery, epoch: Epoch = epoch) -> None:
                moves = moving(engine.plan, engine.manifest, epoch.move)
                engine.order(spilling(engine.plan, engine.manifest.placement, epoch.spill), moves)

            clock = Clock(epoch.now_ms, setting.idle_timeout_ms, scenario.starts_ms[number])
            player.join(number, batch, clock, epoch.failures, prepare)
            # Those of a clean-up or a migration follow, and find something else.
            lost = tuple(map(player.engine.slots.results_of, player.engine.attempts.lost))
            shown = [player.sink.new()]
            kept = range(player.engine.manifest.slots) if epoch.keep else ()
            if epoch.clean:
                failures = (*(("crash",) if epoch.lost else ()), *epoch.clean_failures)
                player.clean_up(failures, bytes_at_once=1000, kept_slots=kept, epochs_max=epoch.clean)
            if epoch.migrate:
                player.migrate(epoch.migrate_failures, *target(scenario, epoch.migrate, setting))
            if epoch.abort:
                player.abort()
            if batch is scenario.batches[-1]:
                player.clean_up(bytes_at_once=3000, kept_slots=kept, epochs_max=CLEAN_UPS_MAX)
                owes = is_owing(player.engine.plan, player.engine.manifest)
                assert not owes, f"the clean-up has not ended after {CLEAN_UPS_MAX} epochs"
            shown.append(player.sink.new())
            found = [results for results in shown if results is not None]
            found = found[-1:] if player.sink.replaces else found
            assert not player.sink.torn, f"epochs {player.sink.torn} were begun and never ended"
            player.sink.check_parts()
            counted = player.engine.manifest.totals.of(RESULTS)
            assert counted == player.sink.rows, f"{counted} results were counted, the sink has {player.sink.rows}"
            yield Committed(
                pa.concat_tables(found or [player.engine.slots.nothing_shown()]),
                player.engine,
                lost,
                shown[-1] is not None,
                player.has_lost_attempts,
                player.has_rivals,
            )


def target(scenario: Scenario, entry: str, setting: Setting) -> tuple[JoinPlan, str]:
    """The plan and the strategy that an entry of a schedule names, as in `rehearse`."""
    end = entry.rindex(")") + 1
    trees = tuple(parse_tree(text, [s.name for s in scenario.query.streams]) for text in entry[:end].split("|"))
    orders = _drawn_orders(scenario.query, trees, setting)
    plan = plan_join(scenario.query, trees, setting.partitions, scenario.mode, orders)
    return plan, entry[end:].strip() or AUTO


@contextmanager
def _bytes_bounded(bytes_max: int | None) -> Iterator[None]:
    """All that is bounded by bytes, bounded by so few."""
    with ExitStack() as patches:
        for module, name in BYTE_BOUNDS if bytes_max is not None else ():
            patches.enter_context(patch.object(module, name, bytes_max))
        yield


def spilling(plan: JoinPlan, placement: Placement, pairs: Iterable[tuple[int, int]]) -> tuple[Spill, ...]:
    """Orders to close groups, given as (stage, group); both are taken modulo what there is."""
    stages = spillable_stages(plan)
    partitions, owners = plan.partitions, placement.owners
    groups: dict[tuple[int, int], set[int]] = defaultdict(set)
    for stage, named in pairs if stages else ():
        number = stages[stage % len(stages)]
        for group in range(partitions) if named == ALL_GROUPS else (named % partitions,):
            groups[number, owners[plan.key_of_stage(number)][group]].add(group)
    return tuple(Spill(stage, slot, tuple(sorted(chosen))) for (stage, slot), chosen in groups.items())


def moving(plan: JoinPlan, manifest: Manifest, named: Iterable[tuple[int, int, int]]) -> tuple[Move, ...]:
    """Moves of groups, given as (key, group, receiver); all are taken modulo what there is. None while the plan
    changes, or where slots have stores of their own."""
    if manifest.migration is not None or differs_by_slot(plan):
        return ()
    keys, groups = sorted(manifest.placement.owners), defaultdict(list)
    chosen: dict[tuple[str, int], int] = {}
    for key, group, receiver in named:
        chosen[keys[key % len(keys)], group % plan.partitions] = receiver % manifest.slots
    for (key, group), receiver in chosen.items():
        sender = manifest.placement.owners[key][group]
        if sender != receiver:
            groups[key, sender, receiver].append(group)
    return tuple(Move(*places, tuple(moved)) for places, moved in groups.items())


def _starter(scenario: Scenario, folder: Path, setting: Setting) -> Callable[[EpochSink], InProcessQuery]:
    """Makes drivers on the folder; like every run, each starts with empty memory."""
    rows_max = setting.chunk_rows
    runs = count()
    names = [stream.name for stream in scenario.query.streams]
    trees = (
        [Join(tuple(map(Leaf, range(len(names)))))]
        if setting.young
        else [parse_tree(text, names) for text in scenario.trees]
    )

    def start(sink: EpochSink) -> InProcessQuery:
        shutil.rmtree(folder / "memory", ignore_errors=True)
        (folder / "memory").mkdir(parents=True)
        sink.folder = folder / "parts"
        memory = folder / "memory" / str(next(runs))  # of its own: an earlier driver may still be running
        return InProcessQuery(
            scenario.query,
            folder / "checkpoint",
            slots=setting.slots,
            partitions=setting.partitions,
            memory=memory if setting.memory else None,
            memory_budget_bytes=setting.budget,
            hosts=1 if setting.wander is None else HOSTS,
            host_of=_drawn_host(setting),
            hash_keys=HASHES[setting.hash],
            trees=trees,
            orders=NO_ORDERS
            if setting.young
            else _drawn_orders(scenario.query, trees or [default_tree(scenario.query)], setting),
            cut=chunks if rows_max is None else lambda frames: chunks(frames, rows_max=rows_max),
            mode=scenario.mode,
            spill=None
            if setting.spill is None or setting.budget is None
            else SpillSettings(policy=policy_named(setting.spill), budget_bytes=setting.budget, upkeep=setting.upkeep),
            placement=_drawn_placement(setting),
            rows_at_once=setting.feed_rows or ROWS_AT_ONCE,
            merging=_merging(setting),
            sink=sink,
            parts=sink if setting.parts else None,
            keeps_results=True,
            reoptimizer=_reoptimizer(scenario, setting),
        )

    return start


def _reoptimizer(scenario: Scenario, setting: Setting) -> Reoptimizer | None:
    how = scenario.query, setting.slots, setting.partitions, scenario.mode
    if setting.young:
        return Eager(*how)
    return None if setting.restless is None else Restless(*how, setting.restless)


def _merging(setting: Setting) -> Merging:
    merging = EAGER if setting.merge_rows is None else replace(EAGER, rows_min=setting.merge_rows, **STEPWISE)
    return replace(merging, row_bytes=setting.merge_bytes or merging.row_bytes)


def _drawn_host(setting: Setting) -> Callable[[SlotTask], int]:
    """Any host for any task, drawn anew for every epoch, or every few."""
    if (number := setting.wander) is None:
        return lambda _: 0
    return lambda task: random.Random(f"{number} {task.epoch // (1 + number)} {task.stage} {task.slot}").randrange(
        HOSTS
    )


def _drawn_placement(setting: Setting) -> Callable[[Manifest], Placement] | None:
    """Any groups for any slot, drawn anew for every key and number of slots. Some slots may have none."""
    if setting.scatter is None:
        return None

    def drawn(manifest: Manifest) -> Placement:
        chance, slots = random.Random(f"{setting.scatter} {setting.slots}"), range(setting.slots)
        keys = manifest.placement.owners
        return Placement(setting.slots, {key: tuple(chance.choices(slots, k=setting.partitions)) for key in keys})

    return drawn


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
