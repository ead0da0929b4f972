"""Progress in Spark's words, made from the table of measures."""

from pathlib import Path

from watersmeet.observe.progress import EpochProgress, at_rest, state_operator, with_closing
from watersmeet.state.measures import LATE, MEASURES, RESULTS, Counts

GUIDE = Path(__file__).parents[3] / "docs" / "guide.md"
COUNTS = Counts.named(
    {"results": 7, "state_rows.a": 3, "state_rows.b": 4, "late.a": 1, "late.b": 5, "null_key.a": 2, "null_key.b": 1}
)
TOTALS = Counts.named({"results": 70, "spilled_bytes": 9, "owed": 2})


def progress(counts=COUNTS, slot_counts=(), rows=None, slots=1, **changed) -> EpochProgress:
    return EpochProgress(0, 0, slots, rows or {}, counts, slot_counts, TOTALS, None, (), 12, 0, 0, 0, **changed)


def test_the_memory_of_a_slot_is_that_of_all_its_stages():
    counts = [Counts.named({"memory_bytes": n}) for n in (1, 20, 300, 4000)]  # two stages of two slots
    found = progress(slot_counts=counts, slots=2)
    metrics = state_operator(found, found)["customMetrics"]
    assert {name: n for name, n in metrics.items() if name.startswith("memoryBytes")} == {
        "memoryBytes.slot0": 301,
        "memoryBytes.slot1": 4020,
    }


def test_custom_metrics_have_the_names_that_users_know():
    found = progress(rows={"a": 5, "b": 6}, slot_counts=[Counts.named({"memory_bytes": 8})], owing_groups=3)
    assert state_operator(found, found)["customMetrics"] == {
        "results": 7,
        "resultsTotal": 70,
        "stateBytes": 0,
        "spilledBytes": 0,
        "spilledRows": 0,
        "spilledBytesTotal": 9,
        "owedGroups": 3,
        "owedResultsTotal": 2,
        "fetchedColdBytes": 0,
        "spoiledCopies": 0,
        "segments": 12,
        "rowsDroppedNullKey": 3,
        "rowsDroppedNoEventTime": 0,
        "rows.a": 5,
        "rows.b": 6,
        "stateRows.a": 3,
        "stateRows.b": 4,
        "memoryBytes.slot0": 8,
    }


def test_counters_are_of_the_epoch_and_gauges_of_the_last_one():
    batch = progress(Counts.named({"results": 7, "state_bytes": 100}))
    cleaning = progress(Counts.named({"results": 50, "state_bytes": 10}))
    metrics = state_operator(batch, cleaning)["customMetrics"]
    assert (metrics["results"], metrics["stateBytes"]) == (7, 10)


def test_a_figure_over_all_subjects():
    assert progress().count(LATE) == 6


def test_results_of_windows_that_close_are_added():
    both = with_closing(progress(), progress(Counts.named({"results": 3, "state_rows.a": 1})))
    assert both.count(RESULTS) == 10
    assert both.counts.by_name()["state_rows.a"] == 1


def test_at_rest_there_are_gauges_only():
    assert at_rest(progress()).counts.by_name() == {"state_rows.a": 3, "state_rows.b": 4}


def test_the_guide_has_the_table():
    expected = []
    for measure in MEASURES:
        when = "now" if measure.is_gauge else "epoch"
        shown = [(measure.shown, when), (measure.shown_in_total, "total"), (measure.shown_by_slot, when)]
        expected += [f"| `{name}` | {when} | {measure.unit} | {measure.meaning} |" for name, when in shown if name]
    table = GUIDE.read_text().split("| field | of | unit | meaning |\n|---|---|---|---|\n")[1].split("\n\n")[0]
    assert table.splitlines() == expected
