"""What a sample of the first micro-batch tells, without Spark."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.plan.frame import STREAM
from watersmeet.planning.learned import BY_CHANCE, KEYED_ROWS, Sample, columns_tested, hash_name, learned, sampled_part
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.query.registered import registered

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def query_of(*where: str, **more) -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts") for name in "ab"]
    return build_query(streams, where=where, within="1 minute", windows={}, select=["a.v"], **more)


def keyed(keys: dict[int, list[int | None]]) -> pa.Table:
    """Rows by stream, all of them chosen by chance."""
    streams = np.repeat(list(keys), [len(each) for each in keys.values()])
    hashes = pa.array([key for each in keys.values() for key in each], pa.int64())
    return pa.table({STREAM: streams, BY_CHANCE: np.ones(len(streams), dtype=bool), hash_name(0): hashes})


def values(v: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(v, pa.int64())})


def test_rates_are_rows_by_the_time_that_the_batch_covers():
    found = learned(query_of("a.k = b.k"), Sample([600, 30], 60.0))
    assert (found.rates, found.batch_s) == ({"a": 10.0, "b": 0.5}, 60.0)
    assert learned(query_of("a.k = b.k"), Sample([600, 30], 0.0)).rates == {"a": 600.0, "b": 30.0}


def test_a_batch_of_a_moment_has_a_rate_that_can_be_planned_for():
    assert learned(query_of("a.k = b.k"), Sample([10**9, 1], 1e-6)).rates == {"a": 1e12, "b": 1e6}


def test_a_key_passes_its_equal_pairs_and_null_equals_nothing():
    found = learned(query_of("a.k = b.k"), Sample([4, 2], 1.0, keyed({0: [1, 1, 2, None], 1: [1, 3]})))
    assert found.keys == {0: 2 / 8}


def test_residuals_pass_what_passes_of_the_tested_combinations():
    query = query_of("a.k = b.k", "a.v < b.v")
    assert [(name, [column.name for column in columns]) for name, columns in columns_tested(query).items()] == [
        ("a", ["v"]),
        ("b", ["v"]),
    ]
    found = learned(query, Sample([4, 4], 1.0, tested={"a": values([0, 1, 2, 3]), "b": values([0, 1, 2, 3])}))
    assert found.residuals == {0: 6 / 16}


def test_what_a_sample_does_not_show_has_its_default():
    query = query_of("a.k = b.k", "a.v < b.v", "a.v > 3")
    found = learned(query, Sample([4, 0], 1.0, keyed({0: [1, 1, 2, 2]}), tested={"a": values([1]), "b": values([])}))
    assert (found.keys, found.residuals) == ({}, {})
    assert found.filters == {0: 1.0}  # rows are counted after it


def test_a_residual_that_fails_on_the_sample_has_its_default():
    def fails(one, other):
        raise WatersmeetError("no")

    query = query_of("a.k = b.k", "near(a.v, b.v)", functions={"near": registered("near", fails, vectorized=True)})
    assert learned(query, Sample([1, 1], 1.0, tested={"a": values([1]), "b": values([2])})).residuals == {}


@pytest.mark.parametrize(("rows", "part"), [(10, 1), (KEYED_ROWS, 1), (10 * KEYED_ROWS, 10)])
def test_of_many_rows_a_part_is_counted(rows, part):
    assert sampled_part(rows) == part
