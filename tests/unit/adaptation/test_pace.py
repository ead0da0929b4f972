"""Chunks of a migration take a share of the time of micro-batches, whatever they cost."""

import pytest

from watersmeet.adaptation.pace import BATCHES, FACTOR, FIRST_ROWS, SHARE, Pace
from watersmeet.epoch.task import SlotReport
from watersmeet.state.measures import BUILD_NS, BUILT_ROWS, INSERT_NS, INSERTED, PROBE_NS, Counts, Figure


def reports(measure, seconds: float, slots: int = 1) -> list[SlotReport]:
    return [SlotReport(0, 0, slot, (), (), Counts({Figure(measure): int(seconds * 1e9)})) for slot in range(slots)]


def after_chunks(pace: Pace, us_per_row: float, chunks: int = 12) -> Pace:
    for _ in range(chunks):
        pace.note_batch(reports(PROBE_NS, 1.0), 1)
        pace.note_chunk(pace.rows, reports(BUILD_NS, pace.rows * us_per_row / 1e6), 1)
    return pace


@pytest.mark.parametrize("us_per_row", [0.1, 1.0, 100.0])
def test_chunks_come_to_take_their_share(us_per_row):
    pace = after_chunks(Pace(1 << 40), us_per_row)
    assert pace.rows * us_per_row / 1e6 == pytest.approx(SHARE, rel=0.01)


def test_the_first_chunk_is_small_and_the_next_are_not_much_larger():
    pace = after_chunks(Pace(1 << 40), us_per_row=1e-6, chunks=1)
    assert pace.rows == FIRST_ROWS * FACTOR


def test_chunks_have_at_most_the_rows_that_are_allowed():
    assert Pace(5).rows == 5
    assert after_chunks(Pace(20_000), us_per_row=0.001).rows == 20_000


def test_time_is_of_a_slot_and_one_slow_batch_does_not_count():
    pace = Pace(1000)
    for seconds in (1.0, 1.0, 50.0):
        pace.note_batch(reports(PROBE_NS, seconds, slots=2), 2)
    assert pace.batch_s == 1.0


@pytest.mark.parametrize(("seconds", "is_overloaded"), [(0.9, False), (1.1, True)])
def test_a_query_is_overloaded_if_it_falls_behind_event_time(seconds, is_overloaded):
    pace = Pace(1000)
    for number in range(BATCHES + 1):
        assert not pace.is_overloaded
        pace.note_batch(reports(PROBE_NS, seconds), 1, number * 1_000_000)
    assert pace.is_overloaded == is_overloaded


def test_without_a_watermark_no_query_is_overloaded():
    pace = Pace(1000)
    for _ in range(2 * BATCHES):
        pace.note_batch(reports(PROBE_NS, 9.0), 1)
    assert not pace.is_overloaded


def test_without_a_batch_nothing_changes():
    pace = Pace(1 << 40)
    assert pace.batch_s is None
    pace.note_chunk(7, reports(BUILD_NS, 9.0), 1)
    assert pace.rows == FIRST_ROWS


def test_the_price_of_a_chunk_is_that_of_the_rows_it_has_read():
    pace = Pace(1 << 40)
    pace.note_batch(reports(PROBE_NS, 1.0), 1)
    pace.note_chunk(1_000_000, reports(BUILD_NS, 2 * SHARE), 1)
    assert pace.rows == 500_000


def test_rows_of_a_chunk_that_are_stored_with_a_batch_count_for_the_chunk():
    pace = Pace(1 << 40)
    both = Counts({Figure(PROBE_NS): 600, Figure(INSERT_NS): 800, Figure(INSERTED): 4, Figure(BUILT_ROWS): 2})
    pace.note_batch([SlotReport(0, 0, 0, (), (), both)], 1)
    assert pace.batch_s == 1000e-9
    pace.note_chunk(1000, [SlotReport(0, 0, 0, (), (), both)], 1)
    assert pace.rows == round(1000 * SHARE * 1000 / 400)
