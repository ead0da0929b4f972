"""Slots that own any groups, not neighbouring ones: as few layers, no copies for nothing, and bytes counted once."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.engine.compaction import Merging
from watersmeet.plan.partitioning import even_assignment
from watersmeet.plan.placement import Placement
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state import cuts
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import ACTIVE_BYTES, CLOSED_ROWS
from watersmeet.state.run import select_keys

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", UTC), ("v", pa.int64())])
PARTITIONS = 64


def query(within: str | None = None) -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts", 0) for name in "ab"]
    return build_query(streams, where=["a.k = b.k"], within=within, windows={}, select=["a.v", "b.v"])


def batch(rng: np.random.Generator, number: int, rows: int = 300) -> dict[str, pa.Table]:
    def table() -> pa.Table:
        times = pa.array(number * 1000 + rng.integers(0, 1000, rows)).cast(UTC)
        keys = pa.array(rng.integers(0, 40 * rows, rows))
        return pa.Table.from_arrays([keys, times, pa.array(np.arange(rows))], schema=SCHEMA)

    return {name: table() for name in "ab"}


def scattered(slots: int, seed: int) -> tuple[int, ...]:
    return tuple(random.Random(seed).sample(even_assignment(PARTITIONS, slots), PARTITIONS))


def placed_by(assignment: tuple[int, ...]) -> Callable[[Manifest], Placement]:
    """The same slot of every group under all keys."""
    return lambda manifest: Placement(max(assignment) + 1, dict.fromkeys(manifest.placement.owners, assignment))


def layers(manifest: Manifest) -> tuple[int, int]:
    """Extents, and files by slot."""
    files = [{extent.segment for extents in slot.values() for extent in extents} for slot in manifest.extents]
    return len(list(manifest.all_extents())), sum(map(len, files))


def counts_of_layers(folder, merging: Merging, assignments: Sequence[tuple[int, ...]], within: str | None):
    """Means over the last batches on each of some assignments."""
    rng = np.random.default_rng(3)
    found, number = [], 0
    for assignment in assignments:
        engine = InProcessQuery(
            query(within),
            folder,
            slots=max(assignment) + 1,
            partitions=PARTITIONS,
            merging=merging,
            placement=placed_by(assignment),
        )
        seen = []
        for _ in range(60):
            engine.run(batch(rng, number))
            number += 1
            seen.append(layers(engine.manifest))
        found.append(np.mean(seen[-20:], axis=0))
    return np.array(found)


@pytest.mark.parametrize(
    ("rows_min", "within"),
    [
        (60_000, None),
        pytest.param(1_000, "20 milliseconds", marks=pytest.mark.long),
        pytest.param(60_000, "20 milliseconds", marks=pytest.mark.long),
        pytest.param(1_000, None, marks=pytest.mark.long),
    ],
)
def test_scattered_groups_lie_in_about_as_few_layers(tmp_path, rows_min, within):
    """Before and after a restart onto another assignment, with layers merged whole and by range."""
    merging = Merging(rows_min=rows_min, rows_per_arrived=2)
    even = [even_assignment(PARTITIONS, slots) for slots in (3, 4)]
    contiguous = counts_of_layers(tmp_path / "contiguous", merging, even, within)
    apart = counts_of_layers(tmp_path / "scattered", merging, [scattered(3, 1), scattered(4, 2)], within)
    assert (apart <= 1.5 * contiguous).all(), f"extents and files {apart}, of contiguous groups {contiguous}"


def test_no_row_is_copied_twice_for_an_extent_that_stays(tmp_path, monkeypatch):
    copied = []

    def counted(run, positions):
        found = select_keys(run, positions)
        copied.append(found.rows)
        return found

    monkeypatch.setattr(cuts, "select_keys", counted)
    never = Merging(small_fan_in=1000, fan_in=1000)
    rng = np.random.default_rng(3)

    def engine(seed: int) -> InProcessQuery:
        return InProcessQuery(
            query(),
            tmp_path / "checkpoint",
            memory=tmp_path / "memory",
            slots=3,
            partitions=PARTITIONS,
            merging=never,
            placement=placed_by(scattered(3, seed)),
        )

    first = engine(1)
    for number in range(5):
        first.run(batch(rng, number))
    assert copied == [], "the slot's own files have no other rows"
    again = engine(2)
    again.run(batch(rng, 6))
    assert 0 < sum(copied) <= 5 * 2 * 300
    copied.clear()
    for number in range(3):
        again.run(batch(rng, 7 + number))
    assert copied == []


@pytest.mark.parametrize("scatter", [False, True])
def test_more_slots_count_the_same_bytes_and_spill_nothing(tmp_path, scatter):
    """One slot, and then four on the same state, each with a quarter of it and a fifth more."""
    rng = np.random.default_rng(3)
    one = InProcessQuery(
        query(), tmp_path / "c", partitions=PARTITIONS, memory=tmp_path / "m", memory_budget_bytes=1 << 30
    )
    for number in range(12):
        one.run(batch(rng, number, rows=2000))
    held = one.manifest.totals.of(ACTIVE_BYTES)
    budget = int(1.2 * held / 4)
    four = InProcessQuery(
        query(),
        tmp_path / "c",
        slots=4,
        partitions=PARTITIONS,
        memory=tmp_path / "m4",
        memory_budget_bytes=budget,
        spill=SpillSettings(policy=policy_named("global-output"), budget_bytes=budget),
        placement=placed_by(scattered(4, 5)) if scatter else None,
    )
    few = {name: table.slice(0, 20) for name, table in batch(rng, 12).items()}
    for _ in range(3):
        four.run(few)
        assert four.manifest.totals.of(ACTIVE_BYTES) == pytest.approx(held, rel=0.1)
        assert four.coordinator.orders == ()
        assert sum(path.stat().st_size for path in (tmp_path / "m4").glob("*")) <= 4 * budget
    assert four.manifest.totals.of(CLOSED_ROWS) == 0
    rows = sum(extent.rows for extent in four.manifest.all_extents())
    assert rows == 12 * 2 * 2000 + 3 * 2 * 20
