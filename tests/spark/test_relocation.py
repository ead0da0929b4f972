"""Groups that change slots on Spark: by script, by hand, by a policy, and on another number of slots."""

import json

import pytest

from tests.spark.helpers import expected, join_of, output, random_batches, run, write_batches
from watersmeet import WatersmeetError

pytestmark = pytest.mark.slow

BATCHES = random_batches(seed=5, streams="abc", batches=5, rows=24, keys=9)


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


def events(checkpoint, *kinds):
    """Events of some kinds, oldest first."""
    (log,) = checkpoint.rglob("events.jsonl")
    return [event for event in map(json.loads, log.read_text().splitlines()) if event["kind"] in kinds]


def test_a_script_moves_spills_and_cleans_up(spark, feed, tmp_path):
    script = "0: relocate 0 1 0.5; 2: spill 1 0.5; 4: clean; 5: relocate 1 0 1"
    join = join_of(spark, feed).options(slots=2, rehearse=script, relocation="off", plan="(a b c)")
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    told = events(tmp_path / "ck", "relocate", "spill", "cleanUp")
    assert [event["kind"] for event in told][:2] == ["relocate", "spill"]
    first, last = (event for event in told if event["kind"] == "relocate")
    assert {event["reason"] for event in told} <= {"rehearsal", "memory has become free"}
    assert (first["slot"], first["to"], last["slot"], last["to"]) == (0, 1, 1, 0)
    assert first["bytesAfter"][0] == pytest.approx(first["bytesBefore"][0] / 2, rel=0.3)
    assert last["bytesAfter"][0] == 0


def test_groups_move_when_the_handle_is_asked(spark, tmp_path):
    write_batches(tmp_path, BATCHES[:4])
    join = join_of(spark, tmp_path).options(slots=2, relocation="off", plan="((a b) c)")
    query = join.writeStream.start(str(tmp_path / "out"), checkpointLocation=str(tmp_path / "ck"))
    try:
        query.processAllAvailable()
        before = query.partitionGroups().column("slot").to_pylist()
        moved = query.relocate(0, 1, 0.5)
        after = query.partitionGroups().column("slot").to_pylist()
        assert moved >= 1
        assert sum(after) > sum(before)
        for wrong, error in [
            ((0, 2, 0.5), "there is no slot 2, only 0 to 1"),
            ((-1, 1, 0.5), "there is no slot -1"),
            (("a", 1, 0.5), "there is no slot 'a'"),
            ((1, 1, 0.5), "slot 1 cannot give groups to itself"),
            ((0, 1, 0), "a share of its bytes, more than 0 and at most 1, not 0"),
            ((0, 1, 1.2), "a share of its bytes, more than 0 and at most 1, not 1.2"),
            ((0, 1, "half"), "a share of its bytes, more than 0 and at most 1, not 'half'"),
        ]:
            with pytest.raises(WatersmeetError, match=error):
                query.relocate(*wrong)
        assert query.relocate(0, 1, 1) >= 1
        with pytest.raises(WatersmeetError, match="slot 0 has no state in use that could move"):
            query.relocate(0, 1, 1)
        query.migrate("(a (b c))", "parallel-track")
        with pytest.raises(WatersmeetError, match="no group can change slots now: a migration is under way"):
            query.relocate(1, 0, 0.5)
        query.abortMigration()
        write_batches(tmp_path, BATCHES[4:], start=4)
        query.processAllAvailable()
        assert len(events(tmp_path / "ck", "relocate")) == 2
    finally:
        query.stop()
    with pytest.raises(WatersmeetError, match="the query has ended and cannot be relocated"):
        query.relocate(0, 1, 0.5)
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["lazy-disk", "active-disk", "balance"])
def test_a_policy_moves_groups_and_changes_no_result(spark, feed, tmp_path, policy):
    join = join_of(spark, feed).options(
        slots=3, relocation=policy, relocationThreshold=1, relocationInterval="0 seconds", activeDiskRatio=1
    )
    join = join.option("memoryBudget", "8k").option("partitions", 16)
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    told = events(tmp_path / "ck", "relocate")
    assert told
    assert all(event["reason"] and event["groups"] for event in told)


def test_another_number_of_slots_moves_few_groups(spark, tmp_path):
    places = []
    for number, slots in enumerate((2, 3)):
        write_batches(tmp_path, BATCHES[number : number + 1], start=number)
        join = join_of(spark, tmp_path).options(slots=slots, relocation="off", partitions=8)
        query = run(join, tmp_path / "out", tmp_path / "ck")
        groups = query.partitionGroups()
        places.append(dict(zip(groups.column("group").to_pylist(), groups.column("slot").to_pylist(), strict=True)))
    stayed = sum(places[1][group] == slot for group, slot in places[0].items())
    assert stayed >= len(places[0]) / 2
    assert set(places[1].values()) == {0, 1, 2}
    assert output(spark, tmp_path / "out") == expected(join, BATCHES[:2])


def test_groups_go_to_slots_of_other_shapes_and_their_number_changes(spark, tmp_path):
    plan = "(a b c) | ((a b) c)"
    for number, (slots, script) in enumerate([(2, "0: relocate 0 1 1"), (3, ""), (1, "")]):
        write_batches(tmp_path, BATCHES[number : number + 1], start=number)
        join = join_of(spark, tmp_path).options(slots=slots, relocation="off", partitions=8, plan=plan)
        run(join.option("rehearse", script) if script else join, tmp_path / "out", tmp_path / "ck")
        assert output(spark, tmp_path / "out") == expected(join, BATCHES[: number + 1])
    told = events(tmp_path / "ck", "relocate", "slots")
    assert [(event["kind"], event.get("slots")) for event in told] == [("relocate", None), ("slots", 3), ("slots", 1)]
    assert all(event["groups"] for event in told)
