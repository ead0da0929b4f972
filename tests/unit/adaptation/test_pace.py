"""Micro-batches with a chunk of a migration are little longer than usual ones, whatever chunks cost."""

import pytest

from watersmeet.adaptation.pace import BATCHES, FACTOR, FIRST_ROWS, SHARE_MIN, TIMES, Pace
from watersmeet.epoch.task import SlotReport
from watersmeet.state.measures import BUILD_NS, BUILT_ROWS, INSERT_NS, INSERTED, PROBE_NS, Counts, Figure


def reports(measure, seconds: float, slots: int = 1) -> list[SlotReport]:
    return [SlotReport(0, 0, slot, (), (), Counts({Figure(measure): int(seconds * 1e9)})) for slot in range(slots)]


def with_chunk(batch_s: float, chunk_s: float) -> list[SlotReport]:
    return reports(PROBE_NS, batch_s) + reports(BUILD_NS, chunk_s)


def after_chunks(pace: Pace, us_per_row: float, chunks: int = 12, batch_s: float = 1.0) -> Pace:
    pace.note_batch(reports(PROBE_NS, 1.0), 1)
    for _ in range(chunks):
        noted = with_chunk(batch_s, pace.rows * us_per_row / 1e6)
        pace.note_batch(noted, 1, is_usual=False)
        pace.note_chunk(pace.rows, noted, 1)
    return pace


@pytest.mark.parametrize("us_per_row", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("batch_s", [0.8, 1.1])
def test_a_micro_batch_with_a_chunk_comes_to_take_its_time(us_per_row, batch_s):
    pace = after_chunks(Pace(1 << 40), us_per_row, batch_s=batch_s)
    assert batch_s + pace.rows * us_per_row / 1e6 == pytest.approx(TIMES, rel=0.01)


def test_chunks_go_on_where_a_migration_makes_micro_batches_long():
    pace = after_chunks(Pace(1 << 40), us_per_row=1.0, batch_s=3.0)
    assert pace.rows / 1e6 == pytest.approx(SHARE_MIN, rel=0.01)


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


def test_micro_batches_of_a_migration_are_not_usual():
    pace = Pace(1000)
    pace.note_batch(reports(PROBE_NS, 1.0), 1)
    for _ in range(BATCHES):
        pace.note_batch(reports(PROBE_NS, 2.0), 1, is_usual=False)
    assert pace.batch_s == 1.0


@pytest.mark.parametrize(("seconds", "is_overloaded"), [(0.9, False), (1.1, True)])
@pytest.mark.parametrize("is_usual", [True, False])
def test_a_query_is_overloaded_if_it_falls_behind_event_time(seconds, is_overloaded, is_usual):
    pace = Pace(1000)
    for number in range(BATCHES + 1):
        assert not pace.is_overloaded
        pace.note_batch(reports(PROBE_NS, seconds), 1, number * 1_000_000, is_usual=is_usual)
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
    pace.note_chunk(1_000_000, with_chunk(1.0, 2 * (TIMES - 1)), 1)
    assert pace.rows == pytest.approx(500_000)


def test_rows_of_a_chunk_that_are_stored_with_a_batch_count_for_the_chunk():
    pace = Pace(1 << 40)
    both = Counts({Figure(PROBE_NS): 600, Figure(INSERT_NS): 800, Figure(INSERTED): 4, Figure(BUILT_ROWS): 2})
    pace.note_batch([SlotReport(0, 0, 0, (), (), both)], 1)
    assert pace.batch_s == 1000e-9
    pace.note_chunk(1000, [SlotReport(0, 0, 0, (), (), both)], 1)
    assert pace.rows == round(1000 * (TIMES * 1000 - 1000) / 400)
