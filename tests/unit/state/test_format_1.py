"""Checkpoints of format 1: places become names, and what version 0.1 alone can do is left to it.

The queries of the checkpoints in tests/data are built anew from the marks that these have of them.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.errors import CheckpointError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.fingerprint import marks_of_format_1, query_marks
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest, PlanText, extent_of
from watersmeet.state.manifest_json import from_json, to_json
from watersmeet.state.measures import RESULTS
from watersmeet.state.tiers import Tiers

DATA = Path(__file__).parents[2] / "data"
READINGS = pa.schema([("k", pa.int32()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("name", pa.string())])


@dataclass(frozen=True)
class Case:
    """A checkpoint in tests/data, and the query that it is of (see tests/spark/make_old_checkpoint.py)."""

    folder: str
    streams: str
    where: tuple[str, ...]
    select: tuple[str, ...]
    within: str | None = "2 minutes"
    group_by: tuple[str, ...] = ()
    mode: OutputMode | None = None

    def query(self) -> JoinQuery:
        return build_query(
            [Stream(name, READINGS, "ts" if self.within else None, 30_000_000) for name in self.streams],
            where=self.where,
            within=self.within,
            windows={},
            select=self.select,
            group_by=self.group_by,
        )

    def plan(self, text: PlanText) -> JoinPlan:
        return plan_join(self.query(), (parse_tree(text.trees, self.streams),), 16, self.mode)

    def copied(self, to: Path) -> Checkpoint:
        shutil.copytree(DATA / self.folder / "ck", to / "ck")
        return Checkpoint(to / "ck")


PAIRS = ("a.k", "a.ts", "b.ts", "a.v", "b.v")
CHAIN = ("a.k = b.k AND b.name = c.name",), tuple(f"{name}.{column}" for name in "abc" for column in ("ts", "v"))
THREE = ("a.k = b.k AND b.k = c.k", "a.v <> c.v + 3"), ("a.k", *(f"{n}.{c}" for n in "abc" for c in ("ts", "v")))
PLAIN = Case("checkpoint-v1", "ab", ("a.k = b.k", "a.v <> b.v + 3"), PAIRS)
UNSENT = replace(PLAIN, folder="checkpoint-v1-unacknowledged")
LEARNING = Case("checkpoint-v1-learning", "abc", *CHAIN, within="1 minute")
CASES = [
    PLAIN,
    LEARNING,
    Case("checkpoint-v1-hops", "abc", *CHAIN, within="1 minute"),
    Case("checkpoint-v1-spilled", "abc", *THREE),
    Case("checkpoint-v1-spilled-tree", "abc", *THREE, within=None),
    Case(
        "checkpoint-v1-aggregates-append",
        "ab",
        ("a.k = b.k",),
        ("a.name AS name", "window.start AS start", "count(*) AS n", "sum(b.v) AS total"),
        group_by=("a.name", "window(result_time, '40 seconds', '20 seconds')"),
        mode="append",
    ),
    Case(
        "checkpoint-v1-aggregates-complete",
        "ab",
        ("a.k = b.k",),
        (
            "a.name AS name", "count(*) AS n", "sum(a.v + b.v) AS total", "min(a.v) AS low", "max(b.name) AS last",
            "avg(b.v) AS mean", "count(DISTINCT b.v) AS kinds",
        ),
        group_by=("a.name",),
        mode="complete",
    ),
]  # fmt: skip


def upgraded(case: Case, to: Path) -> tuple[Checkpoint, JoinPlan, Manifest]:
    checkpoint = case.copied(to)
    text = checkpoint.plan()
    assert text is not None
    plan = case.plan(text)
    checkpoint.require_same_query(query_marks(case.query(), plan), marks_of_format_1(case.query(), plan))
    manifest = checkpoint.latest(plan)
    assert manifest is not None
    return checkpoint, plan, manifest


def old_value(checkpoint: Checkpoint) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(sorted((checkpoint.folder / "manifests").iterdir())[-1].read_bytes())
    return value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_places_become_names_and_everything_stays(case, tmp_path):
    checkpoint, plan, manifest = upgraded(case, tmp_path)
    old = old_value(checkpoint)
    for stage, by_slot in enumerate(old["extents"]):
        for slot, entries in enumerate(by_slot):
            found = manifest.of(slot, [layout.name for layout in plan.layouts(stage, slot)])
            assert sorted(map(repr, found)) == sorted(repr(extent_of(entry)) for entry in entries)
    assert sum(1 for _ in manifest.all_extents()) == sum(len(e) for stage in old["extents"] for e in stage)
    assert {extent.segment for extent in manifest.all_extents()} == set(manifest.segments)
    assert all(owners == tuple(old["assignment"]) for owners in manifest.placement.owners.values())
    for name in ("epoch", "batch", "watermark_us"):
        assert getattr(manifest, name) == old[name]
    assert (list(manifest.times_max_us), list(manifest.last_seen_ms)) == (old["times_max_us"], old["last_seen_ms"])
    assert manifest.closed_us == old.get("closed_us")
    assert not manifest.outbox.shows
    assert manifest.counters.of(RESULTS) == old["totals"]["results"] > 0
    assert not any(name.startswith(("state_", "memory_")) for name in manifest.totals.by_name())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_every_store_has_the_columns_that_its_name_says(case, tmp_path):
    """A name that was given to the wrong files would be seen here."""
    checkpoint, plan, manifest = upgraded(case, tmp_path)
    tiers = Tiers(checkpoint.segments, None)
    layouts = {layout.name: layout for s in range(plan.stage_count) for layout in plan.layouts(s, 0)}
    for slot in manifest.extents:
        for name, extents in slot.items():
            for extent in extents:
                _, run = tiers.open(manifest.segments[extent.segment])[extent.index]
                assert run.payload.schema.types == layouts[name].payload.types
                assert run.rows == extent.rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_the_next_manifest_is_of_format_2(case, tmp_path):
    checkpoint, _, manifest = upgraded(case, tmp_path)
    following = replace(manifest, epoch=manifest.epoch + 1)
    assert checkpoint.commit(following)
    without_places = from_json(to_json(following))
    assert checkpoint.latest() == without_places
    assert checkpoint.old() is None
    assert checkpoint.plan() == manifest.plan
    assert [e.segment for e in without_places.all_extents()] == [e.segment for e in manifest.all_extents()]


def test_results_that_were_not_sent_are_left_to_version_0_1(tmp_path):
    checkpoint = UNSENT.copied(tmp_path)
    text = checkpoint.plan()
    assert text is not None
    with pytest.raises(CheckpointError, match="epoch 2 never reached the sink") as refused:
        checkpoint.latest(UNSENT.plan(text))
    assert refused.value.error_class == "UNSENT_RESULTS"
    assert "start it once with version 0.1" in (refused.value.hint or "")
    checkpoint.acknowledge(2)
    assert checkpoint.latest(UNSENT.plan(text)) is not None


def test_a_plan_that_was_being_learned_stays(tmp_path):
    checkpoint, _, manifest = upgraded(LEARNING, tmp_path)
    assert old_value(checkpoint)["first"], "version 0.1 kept its first rows"
    assert manifest.plan == PlanText("((b c) a)")
    checkpoint.commit(replace(manifest, epoch=manifest.epoch + 1))
    last = checkpoint.latest()
    assert last is not None
    checkpoint.sweep(last, checkpoint.files())
    assert not (checkpoint.folder / "trial").exists(), "its first rows are not needed"
    assert checkpoint.plan() == manifest.plan


def test_a_plan_that_was_learned_is_where_the_manifest_says(tmp_path):
    checkpoint = LEARNING.copied(tmp_path)
    path = sorted((checkpoint.folder / "manifests").iterdir())[-1]
    path.write_text(json.dumps({**old_value(checkpoint), "join": "j.json"}))
    with pytest.raises(CheckpointError, match=r"trial/j\.json is damaged: it is missing"):
        checkpoint.plan()
    marks = json.loads((checkpoint.folder / "query.json").read_text())["fingerprint"] | {"plan": "(a (b c))"}
    orders = {"(b c)": [[1], [0]]}
    text = json.dumps({"format": 1, "fingerprint": marks, "probeOrders": orders})
    (checkpoint.folder / "trial" / "j.json").write_text(text)
    assert checkpoint.plan() == PlanText("(a (b c))", orders)


def test_another_query_is_refused_by_what_format_1_knew(tmp_path):
    checkpoint = PLAIN.copied(tmp_path)
    other = replace(PLAIN, within="3 minutes", select=("a.v",))
    text = checkpoint.plan()
    assert text is not None
    plan = other.plan(text)
    with pytest.raises(CheckpointError) as refused:
        checkpoint.require_same_query(query_marks(other.query(), plan), marks_of_format_1(other.query(), plan))
    assert "window of b: checkpoint has '2 minutes', query has '3 minutes'" in refused.value.message
    assert "kept columns of b: checkpoint has 'ts, v', query has 'v'" in refused.value.message


def test_a_query_that_has_committed_nothing_goes_on_in_format_2(tmp_path):
    checkpoint = PLAIN.copied(tmp_path)
    for name in ("manifests", "acks"):
        shutil.rmtree(checkpoint.folder / name)
    plan = PLAIN.plan(PlanText("(a b)"))
    marks = query_marks(PLAIN.query(), plan)
    checkpoint.require_same_query(marks, {})
    checkpoint.remember_query(marks)
    checkpoint.require_same_query(marks, {})
    with pytest.raises(CheckpointError, match="window of a"):
        checkpoint.require_same_query(marks | {"window of a": "unbounded"}, {})
