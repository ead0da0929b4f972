"""Measures and counts: names in files are read back, sums and selections are by measure."""

import pickle

from watersmeet.state.measures import (
    LATE,
    MEASURES,
    RESULTS,
    STATE_ROWS,
    Counts,
    Figure,
    figure_named,
    name_of,
    total,
)

NAMES = {"results": 3, "late.a": 1, "late.b.c": 2, "state_rows.(a b)": 10}


def test_names_are_read_back_also_subjects_with_dots():
    counts = Counts.named(NAMES)
    assert counts.by_name() == NAMES
    assert (counts.of(RESULTS), counts.of(LATE, "b.c"), counts.of(LATE, "z")) == (3, 2, 0)


def test_a_figure_of_another_version_keeps_its_name_and_adds_up():
    old = Counts.named({"of_old.x": 4})
    assert total([old, old]).by_name() == {"of_old.x": 8}
    assert old.counters() == old
    assert figure_named("of_old.x") == figure_named("of_old.x")


def test_sums_and_selections():
    counts = Counts.named(NAMES)
    assert (counts.sum(LATE), counts.by(LATE)) == (3, {"a": 1, "b.c": 2})
    assert counts.gauges().by_name() == {"state_rows.(a b)": 10}
    assert counts.counters().by_name() == {"results": 3, "late.a": 1, "late.b.c": 2}
    assert counts.without(LATE, STATE_ROWS).by_name() == {"results": 3}
    assert counts.with_values(Counts({Figure(RESULTS): 9})).of(RESULTS) == 9
    assert total([counts, counts]).by_name() == {name: 2 * value for name, value in NAMES.items()}


def test_every_measure_has_a_name_a_unit_and_a_meaning_of_its_own():
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert all(measure.unit and measure.meaning and "." not in measure.name for measure in MEASURES)
    shown = [name for m in MEASURES for name in (m.shown, m.shown_in_total, m.shown_by_slot) if name]
    assert len(set(shown)) == len(shown)
    assert {name_of(Figure(measure)) for measure in MEASURES} == {measure.name for measure in MEASURES}


def test_a_measure_is_one_object_also_in_another_process():
    for measure in (RESULTS, figure_named("of_old.x").measure):
        assert pickle.loads(pickle.dumps(measure)) is measure
