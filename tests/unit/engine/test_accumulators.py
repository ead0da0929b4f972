"""Accumulators at their edges: whole ranges of integers, NaN and -0.0, decimals, NULL, sets."""

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.engine.accumulators import JoinedRows, accumulate, finish, group_numbers, reduce
from watersmeet.errors import WatersmeetError
from watersmeet.plan.aggregate import AggregatePlan, plan_aggregate
from watersmeet.plan.default_tree import default_tree
from watersmeet.query.logical import Stream, build_query

NAN = float("nan")


def plan_of(call: str, kind: pa.DataType) -> AggregatePlan:
    schema = pa.schema([("k", pa.int64()), ("x", kind)])
    query = build_query(
        [Stream(name, schema) for name in "ab"],
        where=["a.k = b.k"],
        within=None,
        windows={},
        select=[f"{call} AS y"],
        group_by=["a.k"],
    )
    plan = plan_aggregate(query, default_tree(query), 1, None, "update")
    assert plan is not None
    return plan


def aggregated(call: str, kind: pa.DataType, *groups: list) -> list:
    """The aggregate of each group of values; accumulated row by row, in parts, and the parts then reduced."""
    plan = plan_of(call, kind)
    values = [value for group in groups for value in group]
    keys = [number for number, group in enumerate(groups) for _ in group]
    parts = []
    for start in range(0, len(values), 2):
        rows = slice(start, start + 2)
        joined = JoinedRows(len(keys[rows]), [pa.array(keys[rows], pa.int64())], [pa.array(values[rows], kind)], None)
        parts.append(accumulate(plan, joined)[0])
    table = pa.Table.from_batches(parts).combine_chunks()
    columns = [table.column(name).combine_chunks() for name in plan.layout.payload.names]
    numbers, first = group_numbers([table.column("_k0").combine_chunks()], table.num_rows)
    (found,) = finish(plan, reduce(numbers, len(first), columns, plan.accumulators))
    assert found.type == plan.finishes[0].aggregate.type
    return found.to_pylist()


@pytest.mark.parametrize(
    "values",
    [
        [2**62, 2**62 - 1, -1, 0],
        [-(2**63), 2**63 - 1, 1],
        [2**63 - 1, 1, -1],
        [-1, -1, -1],
        [2**32 - 1, 1, 2**32],
        [-(2**32), -1, None],
    ],
)
def test_sums_of_long_integers_are_exact(values):
    known = [v for v in values if v is not None]
    assert aggregated("sum(a.x)", pa.int64(), values) == [sum(known)]
    assert aggregated("avg(a.x)", pa.int64(), values) == pytest.approx([sum(known) / len(known)], abs=1e-9)


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1], [2**63 - 1] * 5])
def test_a_sum_that_leaves_its_type_is_an_error(values):
    with pytest.raises(WatersmeetError, match=r"ARITHMETIC_OVERFLOW.*sum\(`a_x`\)"):
        aggregated("sum(a.x)", pa.int64(), values)


def test_groups_with_nothing_known():
    assert aggregated("sum(a.x)", pa.int32(), [None], [1, None]) == [None, 1]
    assert aggregated("avg(a.x)", pa.float64(), [None, None], [1.0, None]) == [None, 1.0]
    assert aggregated("min(a.x)", pa.string(), [None], ["b", "a"]) == [None, "a"]
    assert aggregated("count(a.x)", pa.int32(), [None], [1, None]) == [0, 1]
    assert aggregated("count(DISTINCT a.x)", pa.int32(), [None], [1, None, 1, 2]) == [0, 2]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floats_are_ordered_as_in_spark(kind):
    values = [3.5, -2.0, -0.0, math.inf, -1.5]
    assert aggregated("min(a.x)", kind, values) == [-2.0]
    assert aggregated("max(a.x)", kind, values) == [math.inf]
    assert aggregated("max(a.x)", kind, [-3.0, -2.0]) == [-2.0]
    assert aggregated("min(a.x)", kind, [NAN, 1.0]) == [1.0]
    assert math.isnan(aggregated("max(a.x)", kind, [NAN, 1.0])[0])
    assert math.isnan(aggregated("min(a.x)", kind, [NAN])[0])
    assert aggregated("count(DISTINCT a.x)", kind, [NAN, NAN, 0.0, -0.0]) == [2]


def test_decimals_keep_their_digits():
    kind = pa.decimal128(38, 2)
    large = Decimal("999999999999999999999999999999999999.99")
    assert aggregated("sum(a.x)", kind, [large, large.copy_negate(), Decimal("0.01")]) == [Decimal("0.01")]
    with pytest.raises(WatersmeetError, match="ARITHMETIC_OVERFLOW"):
        aggregated("sum(a.x)", kind, [large, large])
    small = pa.decimal128(6, 2)
    assert aggregated("avg(a.x)", small, [Decimal("0.01"), Decimal("0.02"), Decimal("0.02")]) == [Decimal("0.016667")]
    assert aggregated("avg(a.x)", small, [Decimal("-0.01"), Decimal("0"), Decimal("0")]) == [Decimal("-0.003333")]


@pytest.mark.parametrize(
    ("kind", "values", "least", "greatest"),
    [
        (pa.bool_(), [True, False], False, True),
        (pa.string(), ["é", "z", ""], "", "é"),
        (pa.binary(), [b"\xff", b"a"], b"a", b"\xff"),
        (pa.int8(), [-128, 127], -128, 127),
        (pa.date32(), [date(2024, 2, 29), date(1969, 1, 1)], date(1969, 1, 1), date(2024, 2, 29)),
        (pa.timestamp("us"), [datetime(2024, 2, 29), datetime(1, 1, 1)], datetime(1, 1, 1), datetime(2024, 2, 29)),
        (pa.duration("us"), [timedelta(0), timedelta(days=-3)], timedelta(days=-3), timedelta(0)),
        (pa.time64("ns"), [time(23, 59), time(0)], time(0), time(23, 59)),
        (pa.decimal128(38, 18), [Decimal("-1.5"), Decimal("2")], Decimal("-1.5"), Decimal("2")),
    ],
)
def test_extremes_of_other_types(kind, values, least, greatest):
    assert aggregated("min(a.x)", kind, values) == [least]
    assert aggregated("max(a.x)", kind, values) == [greatest]
    assert aggregated("count(DISTINCT a.x)", kind, [*values, *values, None]) == [len(values)]


def test_nulls_are_one_group():
    numbers, first = group_numbers([pa.array([1, None, 1, None]), pa.array(["x", None, "x", "y"])], 4)
    assert numbers[0] == numbers[2] != numbers[1] != numbers[3]
    assert len(first) == 3
    assert sorted(np.unique(numbers)) == [0, 1, 2]
