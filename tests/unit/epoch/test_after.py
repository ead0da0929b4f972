"""The manifest after an epoch, made of the one before and the reports; and a restart, which deals state out anew."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.adaptation.plans import CLOSED, chain, extent, manifest_with
from tests.unit.epoch.plans import SCHEMA, aggregate_plan, counted
from watersmeet.epoch.after import (
    Clock,
    counts_of,
    initial_manifest,
    left_over,
    manifest_after,
    plan_as_text,
    resumed,
)
from watersmeet.epoch.events import Event
from watersmeet.epoch.kinds import Batch, Cleaning, Closing, Epoch, Spill, Takeover
from watersmeet.epoch.task import InputRows, Intake, NodeInput, Outcome, SlotReport, no_intake
from watersmeet.errors import CheckpointError
from watersmeet.plan.placement import Placement, even_placement
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ACTIVE, ExtentRef, Manifest, PlanText, ResultFile, SegmentRef
from watersmeet.state.measures import RESULTS, ROWS, STATE_BYTES, Counts

CLEANING = Cleaning((), "asked for")
EMPTY_EPOCHS = [CLEANING, Takeover()]


def after(
    plan: JoinPlan,
    before: Manifest,
    epoch: Epoch,
    *reports: SlotReport,
    intake: Intake | None = None,
    clock: Clock = Clock(),  # noqa: B008  # it is frozen
) -> Manifest:
    return manifest_after(plan, before, epoch, Outcome(reports, intake or no_intake(plan)), clock)


def report(
    stage: int = 0, slot: int = 0, *extents: ExtentRef, files: tuple[str, ...] = (), **counts: int
) -> SlotReport:
    """Names of counts have _dot_ for the dots."""
    refs = tuple(SegmentRef(name, 100, 0) for name in {extent.segment for extent in extents})
    named = {name.replace("_dot_", "."): count for name, count in counts.items()}
    written = tuple(ResultFile(name, 1, 2) for name in files)
    return SlotReport(1, stage, slot, extents, refs, Counts.named(named), files=written)


def of_stage(plan: JoinPlan, manifest: Manifest, stage: int, slot: int = 0) -> list[str]:
    found = manifest.of(slot, [layout.name for layout in plan.layouts(stage, slot)])
    return [f"{extent.segment}{extent.store}" for extent in found]


# Extents and segments


def test_stages_that_did_not_run_keep_what_they_have():
    plan = aggregate_plan()
    before = manifest_with(plan, {(0, 0): [extent(ACTIVE, segment="join")], (1, 0): [extent(ACTIVE, segment="old")]})
    done = after(plan, before, Closing(5), report(1, 0, extent(ACTIVE, segment="new")))
    assert of_stage(plan, done, 0) == ["join0"]
    assert of_stage(plan, done, 1) == ["new0"]
    assert set(done.segments) == {"join", "new"}
    assert after(plan, before, Takeover()).extents == before.extents


def test_a_report_replaces_what_a_slot_had_in_a_stage_store_by_store():
    plan = chain()
    second = replace(extent(ACTIVE, segment="b"), store=1)
    before = manifest_with(plan, {(0, 0): [extent(ACTIVE, segment="a"), second], (0, 1): [second]}, slots=2)
    done = after(plan, before, Batch(1), report(0, 0, replace(second, segment="c")))
    assert of_stage(plan, done, 0, 0) == ["c1"]
    assert of_stage(plan, done, 0, 1) == ["b1"]
    assert set(done.segments) == {"b", "c"}
    nothing = after(plan, done, Batch(2), report(0, 0), report(0, 1))
    assert nothing.extents == ({}, {})
    assert dict(nothing.segments) == {}


def test_an_epoch_follows_the_one_before_whatever_it_does():
    plan = aggregate_plan()
    before = replace(manifest_with(plan, {}), epoch=7, batch=4)
    epochs = {Batch(9): 9, CLEANING: 4, Closing(5): 4, Takeover(): 4}
    for epoch, batch in epochs.items():
        done = after(plan, before, epoch)
        assert (done.epoch, done.batch) == (8, batch)
        assert done.plan == plan_as_text(plan) == PlanText("(a b)")
        assert done.placement == before.placement


def test_events_are_kept_with_the_epoch_that_they_are_of():
    plan = chain()
    event = Event(1, "spill", 0, "no room", {"groups": 2})
    outcome = Outcome([report()], no_intake(plan))
    done = manifest_after(plan, initial_manifest(plan, 1), Batch(0), outcome, Clock(), events=[event])
    assert done.events == ({"epoch": 1, "kind": "spill", "slot": 0, "reason": "no room", "groups": 2},)
    assert after(plan, done, Takeover()).events == ()


# Times


def intake(rows: tuple[int, ...], times: tuple[int | None, ...]) -> Intake:
    return Intake(rows, times)


def test_the_watermark_is_that_of_the_slowest_stream_and_never_falls():
    plan = aggregate_plan()
    first = after(plan, initial_manifest(plan, 1), Batch(0), intake=intake((3, 0), (50, None)))
    assert (first.watermark_us, first.times_max_us) == (None, (50, None))
    second = after(plan, first, Batch(1), intake=intake((1, 1), (40, 30)))
    assert (second.watermark_us, second.times_max_us) == (30, (50, 30))
    third = after(plan, replace(second, watermark_us=45), Batch(2), intake=intake((0, 1), (None, 40)))
    assert (third.watermark_us, third.times_max_us) == (45, (50, 40))


@pytest.mark.parametrize("epoch", [*EMPTY_EPOCHS, Closing(5)], ids=lambda epoch: type(epoch).__name__)
def test_without_rows_neither_watermark_nor_times_nor_idleness_change(epoch):
    plan = aggregate_plan()
    clock = Clock(now_ms=1000, idle_timeout_ms=10)
    before = after(plan, initial_manifest(plan, 1), Batch(0), intake=intake((1, 1), (50, 30)), clock=clock)
    later = after(plan, before, epoch, report(1), clock=Clock(now_ms=9000, idle_timeout_ms=10))
    assert later.watermark_us == before.watermark_us == 30
    assert later.times_max_us == before.times_max_us == (50, 30)
    assert later.last_seen_ms == before.last_seen_ms == (1000, 1000)


def test_an_idle_stream_does_not_hold_the_watermark_back():
    plan = aggregate_plan()
    before = after(plan, initial_manifest(plan, 1), Batch(0), intake=intake((1, 1), (50, 30)), clock=Clock(1000, 10))
    rows = intake((1, 0), (80, None))
    assert after(plan, before, Batch(1), intake=rows, clock=Clock(1010, 10)).watermark_us == 30
    assert after(plan, before, Batch(1), intake=rows, clock=Clock(1011, 10)).watermark_us == 80
    assert after(plan, before, Batch(1), intake=rows, clock=Clock(9999, None)).watermark_us == 30
    assert after(plan, before, Batch(1), intake=rows, clock=Clock(9999, 10, started_ms=9989)).watermark_us == 30
    assert after(plan, before, Batch(1), intake=rows, clock=Clock(9999, 10, started_ms=9988)).watermark_us == 80


def test_windows_that_are_shown_when_they_close_are_closed_by_their_own_epoch():
    plan = aggregate_plan("append")
    before = replace(manifest_with(plan, {}, watermark_us=25), closed_us=10)
    assert after(plan, before, Batch(1)).closed_us == 10
    assert after(plan, before, Closing(20)).closed_us == 20


def test_other_windows_close_as_the_frontier_passes_them():
    plan = aggregate_plan("update")
    before = replace(manifest_with(plan, {}, watermark_us=25), closed_us=10)
    assert after(plan, before, Batch(1)).closed_us == 25
    owing = manifest_with(plan, {(0, 0): [extent(CLOSED, since=5), extent(ACTIVE)]}, watermark_us=25)
    assert after(plan, owing, Batch(1)).closed_us == 5
    assert after(plan, replace(owing, closed_us=10), Batch(1)).closed_us == 10


# Counts


def test_counters_add_up_and_gauges_are_of_the_moment():
    plan = chain()
    first = after(
        plan,
        initial_manifest(plan, 2),
        Batch(0),
        report(0, 0, rows=3, state_bytes=10),
        report(0, 1, rows=4, state_bytes=20),
    )
    assert (first.totals.of(ROWS), first.totals.of(STATE_BYTES)) == (7, 30)
    second = after(plan, first, Batch(1), report(0, 0, rows=1, state_bytes=5), report(0, 1, rows=1, state_bytes=6))
    assert (second.totals.of(ROWS), second.totals.of(STATE_BYTES)) == (9, 11)
    third = after(plan, second, Batch(2), report(0, 0), report(0, 1))
    assert third.totals.by_name() == {"rows": 9}, "a gauge that nobody reports is gone"


def test_gauges_are_kept_by_stage():
    plan = aggregate_plan()
    both = report(0, 0, state_bytes=10, state_rows_dot_a=2), report(1, 0, state_bytes=7)
    first = after(plan, initial_manifest(plan, 1), Batch(0), *both)
    gauges = {stage: counts.by_name() for stage, counts in first.gauges.items()}
    assert gauges == {"a b by a.k = b.k": {"state_bytes": 10, "state_rows.a": 2}, "groups": {"state_bytes": 7}}
    closing = after(plan, first, Closing(5), report(1, 0, state_bytes=3, results=4))
    assert closing.gauges["a b by a.k = b.k"] == first.gauges["a b by a.k = b.k"]
    assert closing.totals.of(STATE_BYTES) == 13
    assert after(plan, closing, Takeover()).totals == closing.totals


def test_gauges_of_stages_that_another_plan_had_are_gone():
    plan = chain()
    before = replace(initial_manifest(plan, 1), gauges={"a d by a.z = d.z": Counts.named({"state_bytes": 9})})
    assert after(plan, before, Batch(0), report(0, 0, state_bytes=1)).totals.by_name() == {"state_bytes": 1}


def test_pairs_are_made_of_the_rows_of_all_slots():
    inputs = {NodeInput(0, "n", "a"): InputRows(1, 1), NodeInput(0, "n", "b"): InputRows(0, 2)}
    reports = [replace(report(0, slot), inputs=inputs) for slot in range(2)]
    assert counts_of(reports).by_name() == {"pairs.a~b": 4 * 4}


def test_results_of_windows_that_a_clean_up_lets_close_count(tmp_path):
    """The epoch that shows them comes after the one that cleaned up."""
    rng = np.random.default_rng(8)
    engine = InProcessQuery(counted(), tmp_path, slots=2, partitions=8, mode="append")
    shown = []
    for number in range(4):
        times = pa.array(number * 20 + rng.integers(0, 20, 60)).cast(SCHEMA.field("ts").type)
        table = pa.table([rng.integers(0, 5, 60), rng.integers(0, 9, 60), times], schema=SCHEMA)
        if number == 1:
            engine.order([Spill(0, slot, tuple(range(4 * slot, 4 * slot + 4))) for slot in range(2)])
        shown.append(engine.run({"a": table, "b": table}).num_rows)
    before = sum(shown)
    assert engine.manifest.counters.of(RESULTS) == before
    late = [rows.num_rows for rows in engine.clean_up()]
    assert sum(late) > 0, "windows were waiting for what was owed"
    assert engine.manifest.counters.of(RESULTS) == before + sum(late)


# The outbox


@pytest.mark.parametrize(
    ("epoch", "counts", "is_shown"),
    [
        (Batch(0), {}, True),
        (Closing(5), {}, True),
        (CLEANING, {"joined": 1}, True),
        (CLEANING, {"results": 1}, False),
        (Takeover(), {}, False),
    ],
)
def test_files_are_named_only_if_the_epoch_shows_something(epoch, counts, is_shown):
    plan = aggregate_plan()
    reports = [report(1, 0, files=("x", "y"), **counts), report(1, 1, files=("z",))]
    outcome = Outcome(reports, no_intake(plan))
    done = manifest_after(plan, initial_manifest(plan, 2), epoch, outcome, Clock(), results_in="sink")
    assert done.outbox.shows == is_shown
    assert done.outbox.place == "sink"
    assert [file.name for file in done.outbox.files] == (["x", "y", "z"] if is_shown else [])
    assert [file.name for file in left_over(outcome, done)] == ([] if is_shown else ["x", "y", "z"])


def test_an_epoch_names_its_own_files_only():
    plan = chain()
    first = after(plan, initial_manifest(plan, 1), Batch(0), report(2, 0, files=("x",)))
    assert after(plan, first, Batch(1), report(2, 0, files=("y",))).outbox.files == (ResultFile("y", 1, 2),)
    assert after(plan, first, Takeover()).outbox.files == ()


# Restarts


def plan(*texts: str) -> JoinPlan:
    streams = [Stream(name, pa.schema([("k", pa.int64())])) for name in "abc"]
    query = build_query(streams, where=["a.k = b.k AND b.k = c.k"], within=None, windows={}, select=[])
    return plan_join(query, tuple(parse_tree(text, "abc") for text in texts), partitions=8)


def even(made: JoinPlan, slots: int) -> Placement:
    return even_placement([made.key_of_stage(0)], 8, slots)


@pytest.mark.parametrize("texts", [("((a b) c)",), ("((a b) c)", "((a b) c)")])
def test_slots_of_one_shape_may_change_in_number(texts):
    made = plan(*texts)
    assert resumed(made, initial_manifest(made, 2), lambda _: even(made, 3)).slots == 3


def test_slots_of_several_shapes_keep_their_number_until_an_epoch_changes_it():
    made = plan("(a b c)", "((a b) c)")
    empty = initial_manifest(made, 2)
    assert resumed(made, empty, lambda _: even(made, 3)).slots == 3
    name = made.layouts(0, 0)[0].name
    held = replace(empty, extents=({name: (ExtentRef("s", 0, 0, 0, 1, None, Groups.between(0, 4)),)}, {}))
    assert resumed(made, held, lambda _: even(made, 3)) is held


def test_state_that_the_plan_has_no_store_for_is_refused(tmp_path):
    """The store of (a b) has its columns in the order of the select list: another order would not find it."""
    schema = pa.schema([("k", pa.int64()), ("u", pa.int64()), ("v", pa.int64())])
    rows = pa.table({"k": [1], "u": [2], "v": [3]}, schema=schema)

    def start(*select: str) -> InProcessQuery:
        streams = [Stream(name, schema) for name in "abc"]
        query = build_query(streams, where=["a.k = b.k", "b.k = c.k"], within=None, windows={}, select=select)
        return InProcessQuery(query, tmp_path, trees=[parse_tree("((a b) c)", "abc")])

    start("a.u", "a.v", "b.u").run({"a": rows, "b": rows})
    with pytest.raises(CheckpointError, match="does not keep") as refused:
        start("a.u", "b.u", "a.v").run({"c": rows})
    assert refused.value.error_class == "DIFFERENT_JOIN"
    assert "(of a b by a.k = b.k = c.k: a.u int64, a.v int64, b.u int64)" in refused.value.message
    assert start("a.u", "a.v", "b.u").run({"c": rows}).num_rows == 1
