"""Windows that follow from the condition: they let all of its results pass, and as little else as they can."""

import itertools
import random

import pyarrow as pa
import pytest

from tests.oracle import nested_loop_join
from watersmeet.query.logical import Stream, build_query

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("at", pa.timestamp("us", "UTC"))])
MINUTE = 60_000_000
SAME = "a.k = b.k"


def query_of(*where, streams="ab", delay=True, within=None, windows=None):
    given = [Stream(name, SCHEMA, "ts", is_delay_given=delay) for name in streams]
    return build_query(given, where=[*where], within=within, windows=windows or {}, select=[f"{s}.k" for s in streams])


def windows_of(*where, **how):
    return query_of(*where, **how).windows_us


CASES = {
    "a.ts BETWEEN b.ts - INTERVAL 5 MINUTES AND b.ts + INTERVAL 5 MINUTES": (5 * MINUTE + 1, 5 * MINUTE + 1),
    "a.ts >= b.ts AND a.ts < b.ts + INTERVAL 1 MINUTE": (1, MINUTE),
    "b.ts - a.ts <= INTERVAL 1 MINUTE AND a.ts - b.ts < INTERVAL 2 MINUTES": (MINUTE + 1, 2 * MINUTE),
    "abs(a.ts - b.ts) < INTERVAL 1 MINUTE": (MINUTE, MINUTE),
    "INTERVAL 1 MINUTE >= abs(a.ts - b.ts)": (MINUTE + 1, MINUTE + 1),
    "a.ts = b.ts + INTERVAL 1 MINUTE": (1, MINUTE + 1),
    "a.ts = b.ts": (1, 1),
    "a.ts > b.ts": (1, None),
    "a.ts > b.ts + INTERVAL 1 MINUTE": (1, None),
    "a.at < b.ts + INTERVAL 1 MINUTE": (None, None),
    "a.ts < b.ts + INTERVAL 1 MINUTE OR a.k = 3": (None, None),
    "a.ts <> b.ts": (None, None),
}


@pytest.mark.parametrize("condition", CASES)
def test_windows_follow_from_comparisons_of_event_times(condition):
    assert windows_of(SAME, condition) == CASES[condition]
    assert query_of(SAME, condition).has_implied_windows == any(CASES[condition])


def test_bounds_add_up_along_streams():
    chain = [
        "a.k = b.k",
        "b.k = c.k",
        "abs(a.ts - b.ts) <= INTERVAL 1 MINUTE",
        "abs(b.ts - c.ts) <= INTERVAL 3 MINUTES",
    ]
    assert windows_of(*chain, streams="abc") == (4 * MINUTE + 1, 3 * MINUTE + 1, 4 * MINUTE + 1)


def test_a_stream_that_is_not_bounded_to_all_others_has_no_window():
    where = ["a.k = b.k", "b.k = c.k", "abs(a.ts - b.ts) <= INTERVAL 1 MINUTE"]
    assert windows_of(*where, streams="abc") == (None, None, None)


def test_windows_that_were_said_stay_as_they_are():
    bound = "abs(a.ts - b.ts) < INTERVAL 1 MINUTE"
    assert windows_of(SAME, bound, within="1 hour") == (60 * MINUTE, 60 * MINUTE)
    assert windows_of(SAME, bound, windows={"a": "1 hour"}) == (60 * MINUTE, None)
    assert not query_of(SAME, bound, within="1 hour").has_implied_windows


def test_without_a_delay_nothing_is_implied():
    """A window makes rows late: nobody has said how late they may be."""
    assert windows_of(SAME, "abs(a.ts - b.ts) < INTERVAL 1 MINUTE", delay=False) == (None, None)


def test_results_are_those_of_the_condition_alone():
    rng = random.Random(3)
    conditions = [condition for condition, windows in CASES.items() if any(windows)]
    for number, (first, second) in enumerate(itertools.product(conditions, conditions)):
        times = {name: [rng.randrange(8) * MINUTE // 2 for _ in range(8)] for name in "abc"}
        tables = {
            name: pa.table({"k": [1] * 8, "ts": pa.array(at, pa.int64()), "at": pa.array(at, pa.int64())}).cast(SCHEMA)
            for name, at in times.items()
        }
        where = ["a.k = b.k", "b.k = c.k", first, second.replace("b.", "c.").replace("a.", "b.")]
        with_windows = query_of(*where, streams="abc")
        without = query_of(*where, streams="abc", delay=False)
        found = nested_loop_join(with_windows, [tables]).results
        assert found == nested_loop_join(without, [tables]).results, f"case {number}: {where}"
