"""Spilling queries that run for long: files, manifest, maps, descriptors, threads and memory stay flat.

`make soak` runs 1,000 epochs of each (WATERSMEET_EPOCHS) and prints the figures; the plain tests run fewer.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.acting import RAM
from tests.flatness import Watch
from tests.scenarios import UTC
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.inprocess_attempts import LostAttempt
from watersmeet.state.measures import CLOSED_ROWS, OWED

EPOCHS = int(os.environ.get("WATERSMEET_EPOCHS", "100"))
ROWS, BUDGET, SECOND = 120, 20_000, 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", UTC), ("v", pa.int64())])

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def folder():
    """In memory, where there is such a place: nothing here depends on a disk."""
    with tempfile.TemporaryDirectory(dir=RAM, prefix="watersmeet-test-") as name:
        yield Path(name)


def engine_of(folder, within: str | None) -> InProcessQuery:
    query = build_query(
        [Stream(name, SCHEMA, "ts" if within else None) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k"],
        within=within,
        windows={},
        select=["a.v", "b.v", "c.v"],
    )
    return InProcessQuery(
        query,
        folder / "checkpoint",
        slots=2,
        partitions=16,
        memory=folder / "memory",
        memory_budget_bytes=BUDGET,
        spill=SpillSettings(policy=policy_named("local-output"), budget_bytes=BUDGET),
    )


def batch_of(rng: np.random.Generator, number: int, keys: int) -> dict[str, pa.Table]:
    def table() -> pa.Table:
        times = number * SECOND + rng.integers(0, SECOND, ROWS)
        columns = (rng.integers(0, keys, ROWS), pa.array(times).cast(UTC), rng.integers(0, 1000, ROWS))
        return pa.Table.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)

    return {name: table() for name in "abc"}


def fail_now_and_then(engine: InProcessQuery, number: int) -> None:
    """Every tenth epoch, an attempt is lost before the one that counts, complete or torn in turn."""
    cut = engine.attempts.cut

    def torn(frames):
        for chunk in cut(frames):
            yield chunk
            raise LostAttempt

    def spoil() -> None:
        if number % 20:
            engine.attempts.cut = torn

    if number % 10 == 0:
        engine.attempts.to_lose.append(spoil)


@pytest.mark.long
def test_a_windowed_query_that_spills_is_flat(folder):
    engine = engine_of(folder, "10 seconds")
    rng, watch, owed = np.random.default_rng(1), Watch(EPOCHS), 0
    for number in range(EPOCHS):
        fail_now_and_then(engine, number)
        engine.run(batch_of(rng, number, keys=400))
        watch.look(number, engine.checkpoint, [os.getpid()])
        owed = engine.manifest.totals.of(OWED)
    assert owed > 10 * EPOCHS, "results are owed when rows expire"
    assert engine.manifest.totals.of(CLOSED_ROWS) > 0
    watch.check()


def test_a_query_without_a_window_that_is_cleaned_up_now_and_then_is_flat(folder):
    """Its state grows for ever; what holds it does not."""
    engine = engine_of(folder, None)
    rng, watch, owed = np.random.default_rng(2), Watch(EPOCHS), 0
    for number in range(EPOCHS):
        fail_now_and_then(engine, number)
        engine.run(batch_of(rng, number, keys=100 * EPOCHS))
        if number % (EPOCHS // 15) == 0:
            owed += sum(results.num_rows for results in engine.clean_up())
        watch.look(number, engine.checkpoint, [os.getpid()])
    assert owed > EPOCHS // 10
    assert engine.manifest.totals.of(CLOSED_ROWS) > EPOCHS * ROWS
    watch.check(grows=["files", "extents", "manifest bytes"])
    files, rows = len(engine.manifest.segments), 3 * EPOCHS * ROWS
    assert files < 40 + rows // 15_000, f"{files} files of {rows} rows"
