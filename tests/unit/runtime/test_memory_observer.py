"""Whoever looks at the memory tier, at any moment, sees at most 1.5 times the bytes of the rows that count."""

import time

import numpy as np
import pyarrow as pa
import pytest

from tests.observer import Observer, bytes_below
from tests.scenarios import UTC
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import MEMORY_BYTES

SCHEMA = pa.schema([("k", pa.int64()), ("ts", UTC), ("v", pa.float64()), ("s", pa.string())])
SECOND_US = 1_000_000
WINDOW_US = 30 * SECOND_US
ROWS, BATCHES, TEXT_BYTES = 8_000, 12, 10


def rows_of(rng: np.random.Generator, number: int, *, spread_keys: bool) -> pa.Table:
    keys = rng.integers(0, 1 << 40, ROWS) if spread_keys else rng.integers(0, ROWS, ROWS)
    times = number * 5 * SECOND_US + rng.integers(0, 5 * SECOND_US, ROWS)
    text = pa.array([f"text {n:05d}" for n in rng.integers(0, 99_999, ROWS)])
    columns = [pa.array(keys), pa.array(times).cast(UTC), pa.array(rng.random(ROWS)), text]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def alive_bytes(engine: InProcessQuery, fed: list[pa.Table]) -> int:
    """Key, event time if there is a window, a double and a text with its offset, of every row that can still join."""
    times = np.concatenate([table["ts"].cast(pa.int64()).to_numpy() for table in fed])
    if not engine.plan.windowed:
        return len(times) * (8 + 8 + 4 + TEXT_BYTES)
    assert engine.manifest.watermark_us is not None
    return int((times + WINDOW_US > engine.manifest.watermark_us).sum()) * (8 + 8 + 8 + 4 + TEXT_BYTES)


@pytest.mark.parametrize("budget", [None, 600_000], ids=["no budget", "budget"])
@pytest.mark.parametrize("within", [None, "30 seconds"], ids=["no window", "window"])
def test_an_observer_sees_what_progress_says_and_never_too_much(tmp_path, within, budget):
    query = build_query(
        [Stream(name, SCHEMA, "ts" if within else None, delay_us=SECOND_US) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k"],
        within=within,
        windows={},
        select=[f"{name}.{column}" for name in "abc" for column in "vs"],
    )
    memory = tmp_path / "memory"
    engine = InProcessQuery(query, tmp_path / "checkpoint", memory=memory, memory_budget_bytes=budget, slots=1)
    rng = np.random.default_rng(5)
    fed: list[pa.Table] = []
    before, shares = 0, []
    with Observer(memory) as seen:
        for number in range(BATCHES):
            batch = {name: rows_of(rng, number, spread_keys=within is None) for name in "abc"}
            began = time.monotonic()
            engine.run(batch)
            fed += batch.values()
            after = alive_bytes(engine, fed)
            at_end = bytes_below(memory)
            assert at_end == engine.manifest.totals.of(MEMORY_BYTES)
            most = max(seen.most(began), at_end)
            assert most <= 1.5 * max(before, after), f"epoch {number}: {most} for {after} bytes that count"
            assert budget is None or most <= budget
            before = after
            shares.append(at_end / after)
    assert len(seen.samples) > BATCHES
    if budget is None:
        assert min(shares) > 1.0, "state was not in memory"
