"""Event times, windows and delays at the ends of what a timestamp can hold: results are the oracle's, whose integers
have no end."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.acting import check_every_epoch, run_in_process
from tests.effort import examples
from tests.groups import check_aggregates
from tests.scenarios import UTC, Epoch, Scenario, Setting, table_of
from watersmeet.errors import WatersmeetError
from watersmeet.query.logical import Stream

EXAMPLES = examples(15)
EARLIEST, LATEST = -(2**63), 2**63 - 1
MOMENTS = (EARLIEST, EARLIEST + 1, EARLIEST + 4, -(2**62), -1, 0, 2, 2**62, LATEST - 4, LATEST - 1, LATEST)
LENGTHS = (1, 2, 4, 5, 2**62, 2**63 - 1)
SCHEMA = pa.schema([("k", pa.int32()), ("j", pa.int32()), ("ts", UTC), ("v", pa.int64())])
NTZ = SCHEMA.set(2, pa.field("ts", pa.timestamp("us")))
TREES = ("(a b c)", "((a b) c)", "(a (b c))")


@st.composite
def at_the_ends(draw: st.DrawFn) -> Scenario:
    schema = draw(st.sampled_from((SCHEMA, NTZ)))
    streams = tuple(Stream(name, schema, "ts", draw(st.sampled_from((0, 1, *LENGTHS)))) for name in "abc")
    windows = {name: f"{draw(st.sampled_from(LENGTHS))} microseconds" for name in draw(st.sampled_from(("abc", "ab")))}
    moments = draw(st.sampled_from((MOMENTS, MOMENTS[:3], MOMENTS[-3:])))
    rows = st.lists(st.tuples(st.just(0), st.integers(0, 1), st.sampled_from(moments), st.integers(0, 9)), max_size=4)
    batches = [{name: table_of(schema, draw(rows)) for name in "abc"} for _ in range(draw(st.integers(1, 4)))]
    setting = Setting(
        slots=draw(st.integers(1, 2)),
        chunk_rows=draw(st.sampled_from((None, 2))),
        merge_rows=draw(st.sampled_from((None, 1))),
        budget=draw(st.sampled_from((None, 1))),
    )
    spills = draw(st.booleans())
    schedule = tuple(Epoch(spill=((0, draw(st.integers(0, 7))),) if spills else ()) for _ in batches)
    where = ("a.k = b.k", draw(st.sampled_from(("b.k = c.k", "b.j = c.j"))))
    select = ("a.v", "b.v", "c.v", "a.ts", "c.ts")
    trees = () if "b.j = c.j" in where else (draw(st.sampled_from(TREES)),)
    return Scenario("generated", streams, where, None, windows, select, batches, setting, schedule, trees=trees)


@settings(max_examples=2 * EXAMPLES, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(at_the_ends())
def test_times_at_the_ends_lose_no_result(scenario):
    note(repr(scenario))
    check_every_epoch(scenario)


def windowed_count(*moments: int) -> Scenario:
    batches = [{name: table_of(SCHEMA, [(0, 0, moment, 1)]) for name in "ab"} for moment in moments]
    streams = tuple(Stream(name, SCHEMA, "ts", 0) for name in "ab")
    group_by = ("window(result_time, '4 microseconds')",)
    return Scenario(
        "counted",
        streams,
        ("a.k = b.k",),
        "1 microsecond",
        {},
        ("count(*) AS n",),
        batches,
        mode="append",
        group_by=group_by,
    )


@pytest.mark.parametrize("moments", [(EARLIEST + 4, EARLIEST + 30), (LATEST - 50, LATEST - 4)])
def test_windows_of_results_reach_to_the_ends(moments):
    check_aggregates(windowed_count(*moments))


def test_results_too_far_apart_for_the_windows_of_a_group_are_refused():
    with pytest.raises(WatersmeetError, match=r"-290308-.* and \+294247-.*too far apart") as refused:
        run_in_process(windowed_count(EARLIEST + 4, LATEST - 4))
    assert refused.value.error_class == "EVENT_TIME_OUT_OF_RANGE"


@pytest.mark.parametrize("moment", [EARLIEST, EARLIEST + 3, LATEST - 3, LATEST])
def test_a_window_that_no_timestamp_can_end_is_refused(moment):
    with pytest.raises(WatersmeetError, match=f"{moment} microseconds.*beyond what a timestamp can hold") as refused:
        run_in_process(windowed_count(moment))
    assert refused.value.error_class == "EVENT_TIME_OUT_OF_RANGE"
    assert "filter" in refused.value.hint
