"""The fields of `statistics`: made by one table, which the guide shows; moving values per slot, store and predicate."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.adaptation.test_moving import QUERY, report
from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.adaptation.memories import Memories
from watersmeet.epoch.after import initial_manifest
from watersmeet.epoch.kinds import Batch, Cleaning
from watersmeet.observe.statistic_fields import FIELDS, Observed, idle, statistics
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.state.measures import Counts

GUIDE = Path(__file__).parents[3] / "docs" / "guide.md"
PLAN = plan_join(QUERY, (parse_tree("((a b) c)", "abc"),), 8)
SECOND_US = 1_000_000


def at(seconds: int):
    return replace(initial_manifest(PLAN, 2), times_max_us=(seconds * SECOND_US,) * 3)


def after(*epochs, memories=None) -> Memories:
    """The memories after micro-batches, a second each."""
    memories = memories or Memories(QUERY)
    for second, reports in enumerate(epochs):
        memories.note(Batch(second), at(second), reports)
    return memories


def seen(memories, totals=None) -> Observed:
    return Observed(
        QUERY,
        PLAN,
        totals or Counts(),
        2,
        (5, 6, 7),
        [(0, SECOND_US)] * 3,
        2.0,
        [report(), report(slot=1)],
        [],
        memories,
    )


def test_the_fields_are_those_of_the_table():
    totals = Counts.named({"state_rows.a": 3, "store_bytes.a": 24, "insert_ns": 50, "inserted": 5})
    found = statistics(seen(after([report()], [report(stored=3)]), totals))
    assert found["arrivals"]["b"] == {"rows": 6, "rowsPerSecond": 3.0, "rowsPerEventSecond": 6.0}
    assert found["stores"] == {"a": {"rows": 3, "bytes": 24}}
    assert found["costsNs"] == {"insert": 10.0}
    assert [slot["rows"] for slot in found["slots"]] == [100, 100]
    assert (found["partitionGroups"], found["selectivities"]) == ([], {})
    assert found.keys() == {field.path.split(".")[0].removesuffix("[n]") for field in FIELDS}


def test_moving_values_of_slots_stores_and_predicates_follow_recent_epochs():
    before = [[report(rows=100, tested=100, passed=50, stored=10), report(rows=50, slot=1)]] * 40
    now = [[report(rows=100, tested=100, passed=10, stored=30), report(rows=200, slot=1)]] * 40
    totals = Counts.named({"state_rows.a": 30})
    recent = statistics(seen(after(*before, *now), totals))["recent"]
    assert [slot["rowsPerSecond"] for slot in recent["slots"]] == pytest.approx([100, 200], rel=0.01)
    assert [slot["cpuPerSecond"] for slot in recent["slots"]] == pytest.approx([0.004, 0.004])
    assert recent["stores"]["a"]["rows"] == pytest.approx(30, rel=0.01)
    assert recent["selectivities"] == {"a.z < c.z": pytest.approx(0.1, rel=0.01)}
    assert recent["arrivals"]["a"]["rowsPerSecond"] == pytest.approx(300, rel=0.01)


def test_totals_of_slots_count_every_epoch_also_the_first_and_those_without_rows():
    memories = after([report(rows=100)], [report(rows=20), report(rows=5, slot=1)])
    memories.note(Cleaning((), "asked for"), at(1), [report(rows=0, slot=1)])
    totals = statistics(seen(memories))["totals"]
    assert [slot["rows"] for slot in totals["slots"]] == [120, 5]
    assert [slot["cpuMs"] for slot in totals["slots"]] == [8, 8]
    assert totals["arrivals"]["a"] == {"rows": 125}


def test_before_the_second_micro_batch_nothing_moves():
    assert statistics(seen(after([report()])))["recent"] == {"seconds": 0.0}


def test_a_run_without_an_optimiser_keeps_its_moving_values_over_a_restart():
    one, other = (Coordinator(PLAN, 2, None, memories=Memories(QUERY)) for _ in range(2))
    for second in range(3):
        one.note(Batch(second), at(second), [report(rows=100), report(rows=40, slot=1)])
    other.restore(one.table(at(2).placement))
    assert statistics(seen(other.memories)) == statistics(seen(one.memories))
    assert [slot["rows"] for slot in statistics(seen(other.memories))["totals"]["slots"]] == [300, 120]
    assert json.loads(json.dumps(one.memories.to_value()))["at_s"] == 2


def test_a_trigger_without_rows_has_the_state_and_no_activity():
    before = statistics(seen(after([report()], [report()]), Counts.named({"state_rows.a": 3})))
    found = idle(before)
    assert found["arrivals"]["a"] == {"rows": 0, "rowsPerSecond": 0, "rowsPerEventSecond": 0}
    assert [(slot["slot"], slot["rows"], slot["cpuMs"]) for slot in found["slots"]] == [(0, 0, 0), (1, 0, 0)]
    assert found["slots"][0]["hosts"] == before["slots"][0]["hosts"]
    for section in ("stores", "recent", "totals", "selectivities"):
        assert found[section] == before[section]
    assert before["arrivals"]["a"]["rows"] == 5


def test_the_guide_has_the_table():
    expected = [f"| `{field.path}` | {field.of} | {field.unit} | {field.meaning} |" for field in FIELDS]
    table = GUIDE.read_text().split("| field of `statistics` | of | unit | meaning |\n|---|---|---|---|\n")[1]
    assert table.split("\n\n")[0].splitlines() == expected
