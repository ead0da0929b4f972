"""Whoever looks at the memory folder while a query runs sees what its progress says, and at most 1.5 times the rows."""

import numpy as np
import pyarrow as pa

from tests.observer import Observer
from tests.spark.helpers import READINGS, SECOND_US, join_of, output, random_batches, run, start, write_batches

ROWS, BATCHES, WINDOW_SECONDS, BATCH_SECONDS = 6_000, 5, 120, 40


def table_of(rng: np.random.Generator, number: int) -> pa.Table:
    times = (number * BATCH_SECONDS * SECOND_US + rng.integers(0, BATCH_SECONDS * SECOND_US, ROWS)).astype(np.int64)
    columns = [
        pa.array(rng.integers(0, 1 << 30, ROWS), pa.int32()),
        pa.array(times).cast(READINGS.field("ts").type),
        pa.array(rng.integers(0, 1 << 40, ROWS)),
        pa.array(["n"] * ROWS),
    ]
    return pa.Table.from_arrays(columns, schema=READINGS)


def test_the_memory_folder_of_a_running_query(spark, tmp_path):
    rng = np.random.default_rng(9)
    batches = [{name: table_of(rng, number) for name in "abc"} for number in range(BATCHES)]
    write_batches(tmp_path, batches)
    memory = tmp_path / "memory"
    memory.mkdir()
    join = join_of(spark, tmp_path, within=f"{WINDOW_SECONDS} seconds", delay="0 seconds")
    join = join.options(slots=2, memoryLocation=memory)
    with Observer(memory) as seen:
        query = start(join, tmp_path / "out", tmp_path / "ck")
        query.awaitTermination()
    told = [progress["stateOperators"][0] for progress in query.recentProgress]
    assert len(told) == BATCHES
    row_bytes = 4 + 8 + 8  # k, ts and v: nothing else is selected or compared
    latest = [max(int(t["ts"].cast(pa.int64()).to_numpy().max()) for t in batch.values()) for batch in batches]
    times = [np.concatenate([t["ts"].cast(pa.int64()).to_numpy() for t in batch.values()]) for batch in batches]
    alive = [
        sum(int((t + WINDOW_SECONDS * SECOND_US > latest[number]).sum()) for t in times[: number + 1]) * row_bytes
        for number in range(BATCHES)
    ]
    for number, entry in enumerate(told):
        assert 0 < entry["memoryUsedBytes"] <= 1.5 * alive[number], f"batch {number}"
    assert seen.most() <= 1.5 * max(alive)
    sizes = {size for _, size in seen.samples}
    assert sizes & {entry["memoryUsedBytes"] for entry in told}, "progress tells sizes that no one has seen"


def test_a_slot_borrows_before_it_spills(spark, tmp_path):
    """All rows have one key, so one slot holds all state; with budgets that are too small by themselves it borrows."""
    batches = random_batches(seed=4, streams="ab", batches=7, rows=40, keys=1)
    write_batches(tmp_path, batches)
    memory = tmp_path / "memory"
    memory.mkdir()
    join = join_of(spark, tmp_path, "ab", within="1 hour").options(slots=2, memoryLocation=memory)
    alone = run(join, tmp_path / "alone", tmp_path / "ck")
    most = max(slot["memoryBytes"] for told in alone.recentProgress for slot in told["statistics"]["slots"])
    budget = most * 3 // 4
    with Observer(memory) as seen:
        query = run(join.option("memoryBudget", budget), tmp_path / "out", tmp_path / "ck2")
    told = query.recentProgress
    borrowed = [[slot["borrowedBytes"] for slot in progress["statistics"]["slots"]] for progress in told]
    held = [[slot["memoryBytes"] for slot in progress["statistics"]["slots"]] for progress in told]
    assert max(map(max, borrowed)) > budget // 5
    assert borrowed == [[max(0, of_slot - budget) for of_slot in row] for row in held]
    assert not [event for progress in told for event in progress["adaptations"] if event["kind"] == "spill"]
    assert seen.most() <= 2 * budget
    assert output(spark, tmp_path / "out") == output(spark, tmp_path / "alone")
