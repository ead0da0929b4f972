"""A checkpoint that an earlier version wrote still opens, and what arrives next is joined with the state in it."""

import json
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from tests.oracle import canonical
from tests.spark.helpers import answer, write_batches
from tests.spark.make_old_checkpoint import BASE, BATCHES_BEFORE, CASES, KEPT, Case, old_batches, old_join
from watersmeet.epoch.owing import is_owing
from watersmeet.errors import CheckpointError
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import Manifest

JOINED = """
    SELECT a.name AS name, a.v AS av, b.v AS bv, b.name AS bname, epoch_us(greatest(a.ts, b.ts)) AS us
    FROM a, b WHERE a.k = b.k AND abs(epoch_us(a.ts) - epoch_us(b.ts)) < 120000000
"""
WINDOWS = """
    , w AS (SELECT *, unnest([us - us % 20000000 - 20000000, us - us % 20000000]) AS s FROM j)
    SELECT name, s, count(*), sum(bv) FROM w
    WHERE s + 40000000 <= $watermark GROUP BY name, s
"""
GROUPS = "SELECT name, count(*), sum(av + bv), min(av), max(bname), avg(bv), count(DISTINCT bv) FROM j GROUP BY name"


def opened(kept: Path, folder: Path) -> None:
    """Copy an old checkpoint to `folder/ck`, as if it had been made there."""
    shutil.copytree(kept / "ck", folder / "ck")
    for log in (folder / "ck" / "spark" / "sources").glob("*/*"):  # Spark's memory of files it has seen
        log.write_text(log.read_text().replace(str(BASE), str(folder)))


def gone_on(spark, case: Case, folder: Path) -> dict[int, Counter]:
    """Go on with an old checkpoint, on more slots, over the batches that are left; what the sink gets, by epoch.

    The first epoch takes over, and shows nothing."""
    opened(case.kept, folder)
    write_batches(folder, case.batches())
    found: dict[int, Counter] = {}

    def sink(results: DataFrame, epoch: int) -> None:
        rows = canonical(results.toArrow())
        assert found.setdefault(epoch, rows) == rows

    writer = case.join(spark, folder).option("slots", 3).writeStream.outputMode(case.mode).foreachBatch(sink)
    writer = writer.option("checkpointLocation", folder / "ck").trigger(availableNow=True)
    writer.start().awaitTermination()
    return found


def last_of(spark, case: Case, location: Path, feed: Path) -> tuple[JoinPlan, Manifest]:
    """The plan and the last manifest of a checkpoint of a case, as the present version sees them."""
    checkpoint, (planner, _) = Checkpoint(location), pieces_of(case.join(spark, feed)).planner(case.mode)
    plan = planner.remembered_plan(checkpoint.plan())
    return plan, checkpoint.latest(plan)


def as_written(kept: Path) -> dict:
    """The last manifest of an old checkpoint."""
    return json.loads(max((kept / "ck" / "watersmeet" / "manifests").iterdir()).read_text())


def aggregates(case: Case, sql: str, **parameters: int) -> Counter:
    """What DuckDB makes of all rows of a case with the join in JOINED; none of them is late."""
    a, b = (pa.concat_tables(batch[name] for batch in case.batches()) for name in "ab")
    with duckdb.connect() as connection:
        connection.register("a", a)
        connection.register("b", b)
        return canonical(connection.sql(f"WITH j AS ({JOINED}) {sql}", params=parameters).to_arrow_table())


def test_a_checkpoint_of_format_1_goes_on(spark, tmp_path):
    opened(KEPT, tmp_path)
    batches = old_batches()
    write_batches(tmp_path, batches)
    join = old_join(spark, tmp_path).option("slots", 3)
    found: dict[int, Counter] = {}
    writer = join.writeStream.foreachBatch(lambda results, epoch: found.update({epoch: canonical(results.toArrow())}))
    query = writer.option("checkpointLocation", tmp_path / "ck").trigger(availableNow=True).start()
    query.awaitTermination()
    right = answer(join, batches)
    assert found == {batch + 1: right.batches[batch] for batch in (3, 4)}
    alone = answer(join, batches[BATCHES_BEFORE:]).results
    assert sum(found.values(), Counter()) != alone, "the state took no part in these results"
    totals = Checkpoint(tmp_path / "ck").latest().totals.by_name()
    assert totals["results"] == sum(right.results.values())


@pytest.mark.parametrize("name", ["learning", pytest.param("hops", marks=pytest.mark.long)])
def test_joins_of_format_1_go_on(spark, tmp_path, name):
    case = CASES[name]
    join, batches = case.join(spark, tmp_path), case.batches()
    right = answer(join, batches).batches
    assert case.sent() == dict(enumerate(right[: case.before]))
    found = gone_on(spark, case, tmp_path)
    assert found == dict(enumerate(right[case.before :], case.before + 1))
    alone = answer(join, batches[case.before :]).results
    assert sum(found.values(), Counter()) != alone, "the state took no part in these results"


@pytest.mark.parametrize("name", [pytest.param("spilled", marks=pytest.mark.long), "spilled-tree"])
def test_what_was_owed_in_format_1_comes_out(spark, tmp_path, name):
    case = CASES[name]
    right = answer(case.join(spark, tmp_path), case.batches()).batches
    sent = case.sent()
    assert sum(sent.values(), Counter()) < sum(right[: case.before], Counter()), "nothing was owed"
    found = gone_on(spark, case, tmp_path)
    assert sum((*sent.values(), *found.values()), Counter()) == sum(right, Counter())
    assert list(found) == list(range(len(sent) + 1, len(sent) + 1 + len(found)))
    assert not is_owing(*last_of(spark, case, tmp_path / "ck", tmp_path))


def test_windows_of_format_1_are_closed_once(spark, tmp_path):
    case = CASES["aggregates-append"]
    latest = [max(max(batch[name]["ts"].cast(pa.int64()).to_pylist()) for batch in case.batches()) for name in "ab"]
    sent, found = case.sent(), gone_on(spark, case, tmp_path)
    right = aggregates(case, WINDOWS, watermark=min(latest) - 30_000_000)
    assert sum((*sent.values(), *found.values()), Counter()) == right
    assert 0 < sum(sent.values(), Counter()).total() < right.total()


def test_running_aggregates_of_format_1_go_on(spark, tmp_path):
    case = CASES["aggregates-complete"]
    found = gone_on(spark, case, tmp_path)
    right = aggregates(case, GROUPS)
    assert found[max(found)] == right
    assert case.sent()[case.before - 1] != right
    assert list(found) == [case.before + 1, case.before + 2]


def test_results_that_were_not_acknowledged_in_format_1_need_the_version_that_made_them(spark, tmp_path):
    """They are not in the checkpoint; nothing of it is changed."""
    case = CASES["unacknowledged"]
    with pytest.raises(CheckpointError, match=r"epoch 2 never reached the sink.*start it once with version 0\.1"):
        gone_on(spark, case, tmp_path)
    assert contents(tmp_path / "ck" / "watersmeet") == contents(case.kept / "ck" / "watersmeet")


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != "lock")
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.parametrize("kept", [KEPT, *(case.kept for case in CASES.values())], ids=lambda kept: kept.name)
def test_an_old_checkpoint_has_what_a_checkpoint_has(kept):
    assert (kept / "ck" / "watersmeet" / "query.json").is_file()
    named = {name for name, _, _ in as_written(kept)["segments"]}
    assert {file.name for file in (kept / "ck" / "watersmeet" / "segments").iterdir()} >= named


def test_old_checkpoints_are_what_they_are_kept_for(spark, tmp_path):
    written = {name: as_written(case.kept) for name, case in CASES.items()}
    assert {value["format"] for value in written.values()} == {1}
    assert {name for name, value in written.items() if value["first"]} == {"learning"}
    acknowledged = {name: (CASES[name].kept / "ck" / "watersmeet" / "acks").iterdir() for name in CASES}
    behind = {name for name, files in acknowledged.items() if max(int(f.name) for f in files) < written[name]["epoch"]}
    assert behind == {"unacknowledged"}
    opening = {name: case for name, case in CASES.items() if name not in behind}
    last = {name: last_of(spark, case, case.kept / "ck", tmp_path) for name, case in opening.items()}
    assert {name for name, found in last.items() if is_owing(*found)} == {"spilled", "spilled-tree"}
    assert as_written(KEPT)["epoch"] == BATCHES_BEFORE - 1
