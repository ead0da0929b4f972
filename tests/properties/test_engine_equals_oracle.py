"""The one property: whatever the query, the input, the disorder and the mishaps, the engine owes what the oracle says.

`WATERSMEET_EXAMPLES=2000 pytest tests/properties` is the long run. A failure prints the scenario as a file for
`tests/scenarios/`, and the line that replays it.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings

from tests.acting import check_every_epoch
from tests.effort import examples
from tests.oracle import canonical, duckdb_join
from tests.scenarios import UTC
from tests.strategies import scenarios
from watersmeet.engine.inbox import chunks
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

EXAMPLES = examples(30)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(scenarios())
def test_engine_equals_oracle_after_every_epoch(scenario):
    note(repr(scenario))
    check_every_epoch(scenario)


@pytest.mark.parametrize("within", [None, "2 seconds"])
def test_large_joins_equal_duckdb(tmp_path, within):
    schema = pa.schema([("k", pa.int64()), ("ts", UTC), ("v", pa.int64())])
    query = build_query(
        [Stream(name, schema, "ts", delay_us=60_000_000) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k"],
        within=within,
        windows={},
        select=["a.v", "b.v", "c.v", "a.k", "c.ts"],
    )
    rng = np.random.default_rng(7)
    engine = InProcessQuery(
        query,
        tmp_path / "checkpoint",
        slots=2,
        memory=tmp_path / "memory",
        memory_budget_bytes=100_000,
        cut=lambda frames: chunks(frames, rows_max=1000),
    )
    fed, found = [], []
    for number in range(5):
        batch = {name: _rows(rng, schema, 2000, number * 10_000_000, keys=1500) for name in "abc"}
        fed.append(batch)
        found.append(engine.run(batch))
    everything = {name: pa.concat_tables(batch[name] for batch in fed) for name in "abc"}
    results = canonical(pa.concat_tables(found))
    assert results.total() > 1000
    assert results == canonical(duckdb_join(query, everything))


def _rows(rng: np.random.Generator, schema: pa.Schema, rows: int, start_us: int, keys: int) -> pa.Table:
    columns = (
        rng.integers(0, keys, rows),
        pa.array(start_us + rng.integers(-10_000_000, 10_000_000, rows)).cast(UTC),
        rng.integers(0, 1000, rows),
    )
    return pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema)
