"""The builder, the writer and the handle: all of the surface, each part seen at work once."""

import json
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.oracle import canonical
from tests.spark.helpers import (
    READINGS,
    expected,
    join_of,
    output,
    random_batches,
    read_stream,
    readings,
    run,
    start,
    until,
    write_batches,
)
from watersmeet import StreamJoin
from watersmeet.errors import CheckpointError
from watersmeet.runtime.spark.file_sink import FileSink
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.checkpoint import Checkpoint

BATCHES = random_batches(seed=1, streams="abc", batches=3, rows=25)


@pytest.fixture(scope="module")
def feed(tmp_path_factory) -> Path:
    """Three streams of three files."""
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


@pytest.fixture
def join(spark, feed) -> StreamJoin:
    """Of these in two micro-batches."""
    return join_of(spark, feed, maxFilesPerTrigger=2)


@pytest.fixture(scope="module")
def right(spark, feed) -> Counter:
    """The right answer to `join`."""
    found = expected(join_of(spark, feed), BATCHES)
    assert sum(found.values()) > 500
    return found


# --- builder ---------------------------------------------------------------------------------------------------------


def test_the_whole_builder_at_once(spark, tmp_path, feed):
    join = StreamJoin(spark)
    windows = {"a": "2 minutes", "b": "90 seconds", "c": None}
    for name, window in windows.items():
        join = join.stream(
            name, read_stream(spark, feed / name, READINGS), eventTime="TS", delay="1 minute", window=window
        )
    join = join.where("a.k = b.k").filter("b.k = c.k AND a.v < c.v").select("a.v", "c.v AS other", "b.*")
    join = join.option("SLOTS", 3).options(memorybudget="4m", partitions=16)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    assert spark.read.parquet(str(tmp_path / "out")).columns == ["a_v", "other", "b_k", "b_ts", "b_v", "b_name"]
    assert query.lastProgress["stateOperators"][0]["numShufflePartitions"] == 3


def test_without_select_all_columns_come_out_under_their_streams(spark, tmp_path, feed):
    join = StreamJoin(spark)
    for name in "ba":
        join = join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts")
    join = join.where("a.k = b.k").within("10 seconds")
    run(join, tmp_path / "out", tmp_path / "ck")
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.columns == [f"{stream}_{column}" for stream in "ba" for column in READINGS.names]
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)


def test_without_window_nothing_is_late_and_nothing_expires(spark, tmp_path):
    batches = [
        {"a": readings([(1, 1e6, 1), (None, 0, 2)]), "b": readings([(1, 5, 1)])},
        {"a": readings([(1, 0, 3)]), "b": readings([(None, None, 4)])},
        {"a": readings([(2, None, 5)]), "b": readings([(1, 2e6, 6), (2, 0, 7)])},
    ]
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path, "ab", within=None)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    assert sum(output(spark, tmp_path / "out").values()) == 5
    assert query.lastProgress["stateOperators"][0]["numRowsTotal"] == 6


def test_eight_streams(spark, tmp_path):
    streams = "abcdefgh"
    batches = [{s: readings([(n % 2, n, i), (1, n + 1, i + 10)]) for i, s in enumerate(streams)} for n in range(2)]
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path, streams, within="1 hour")
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)


def test_session_defaults_and_options_of_any_case(spark, join, tmp_path):
    spark.conf.set("spark.watersmeet.slots", "3")
    try:
        assert pieces_of(join).build()[2].slots == 3
        assert pieces_of(join.option("sLoTs", 1)).build()[2].slots == 1
    finally:
        spark.conf.unset("spark.watersmeet.slots")
    assert pieces_of(StreamJoin(spark).options(MEMORYBUDGET="1k")).options == {"memoryBudget": "1k"}


def test_select_expressions_aliases_and_filters_are_those_of_spark(spark, tmp_path, feed):
    select = ["a.k", "upper(b.name) AS loud", "a.v + c.v * 2 AS total", "CASE WHEN a.v > b.v THEN 'x' END AS flag"]
    where = "a.k = b.k AND b.k = c.k AND c.k = a.k AND a.name LIKE 'n%' AND b.v % 2 = 0 AND c.name IN ('n0', 'n1')"
    join = StreamJoin(spark)
    for name in "abc":
        df = read_stream(spark, feed / name, READINGS, maxFilesPerTrigger=2)
        join = join.stream(name, df, eventTime="ts", delay="1 hour")
        spark.read.parquet(str(feed / name)).createOrReplaceTempView(f"rows_{name}")
    run(join.where(where).within("45 seconds").select(*select), tmp_path / "out", tmp_path / "ck")
    pairs = (("a", "b"), ("b", "c"), ("a", "c"))
    near = " AND ".join(f"abs(unix_micros({x}.ts) - unix_micros({y}.ts)) < 45000000" for x, y in pairs)
    text = ", ".join(select).replace("a.k,", "a.k AS a_k,")
    sql = f"SELECT {text} FROM rows_a a, rows_b b, rows_c c WHERE {where} AND {near}"
    found = output(spark, tmp_path / "out")
    assert found == canonical(spark.sql(sql).toArrow())
    assert len(found) > 10


def test_explain_prints_the_query_and_its_state(join, tmp_path, capsys):
    join.explain()
    assert "join (a b c)" in capsys.readouterr().out
    query = run(join, tmp_path / "out", tmp_path / "ck")
    query.explain()
    text = capsys.readouterr().out
    assert "within 2 minutes, delay 30 seconds" in text
    assert "epoch 1: state" in text
    query.explain(True)
    assert "Physical Plan" in capsys.readouterr().out


# --- sinks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "format", ["csv", pytest.param("json", marks=pytest.mark.long), pytest.param("orc", marks=pytest.mark.long)]
)
def test_file_sinks(spark, join, right, tmp_path, format):
    writer = join.writeStream.format(format.upper()).option("PATH", str(tmp_path / "out"))
    query = writer.option("checkpointlocation", tmp_path / "ck").trigger(availableNow=True).start()
    query.awaitTermination()
    schema = "k int, a_ts timestamp, a_v long, b_ts timestamp, b_v long, c_ts timestamp, c_v long"
    found = spark.read.format(format).schema(schema).load(str(tmp_path / "out"))
    assert canonical(found.toArrow()) == right
    assert query.lastProgress["sink"]["description"].startswith(f"FileSink[{format}:")


def test_partitioned_files_by_the_arguments_of_start(spark, join, right, tmp_path):
    writer = join.writeStream.partitionBy("k").outputMode("Append").trigger(availableNow=True)
    query = writer.start(
        str(tmp_path / "out"), format="parquet", queryName="parted", checkpointLocation=tmp_path / "ck"
    )
    query.awaitTermination()
    assert query.name == "parted"
    assert (tmp_path / "out" / "k=3").is_dir()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert canonical(found.select("k", *(c for c in found.columns if c != "k")).toArrow()) == right


def test_foreach_batch_gets_rising_epochs_over_restarts(spark, tmp_path):
    write_batches(tmp_path, BATCHES[:2])
    seen: dict[int, Counter] = {}

    def keep(results, epoch):
        assert epoch not in seen
        seen[epoch] = canonical(results.toArrow())

    for more in (0, 1):
        write_batches(tmp_path, BATCHES[2 : 2 + more], start=2)
        writer = join_of(spark, tmp_path).writeStream.foreachBatch(keep)
        writer.option("checkpointLocation", tmp_path / "ck").trigger(availableNow=True).start().awaitTermination()
    assert list(seen) == [0, 1, 3]  # epoch 2 took over, and shows nothing
    assert sum(seen.values(), Counter()) == expected(join_of(spark, tmp_path), BATCHES)


def test_an_epoch_that_the_function_refused_comes_again_with_its_number(spark, feed, right, tmp_path):
    seen: list[tuple[int, Counter]] = []

    def fail_once(results, epoch):
        seen.append((epoch, canonical(results.toArrow())))
        if [e for e, _ in seen] == [0, 1]:
            raise RuntimeError("the disk is full")

    def attempt():
        writer = join_of(spark, feed).writeStream.foreachBatch(fail_once).option("checkpointLocation", tmp_path / "ck")
        return writer.trigger(availableNow=True).start()

    query = attempt()
    with pytest.raises(Exception, match="the disk is full"):
        query.awaitTermination()
    assert "the disk is full" in str(query.exception())
    assert not query.isActive
    attempt().awaitTermination()
    assert [epoch for epoch, _ in seen] == [0, 1, 1, 3]  # epoch 2 took over, and shows nothing
    assert seen[1] == seen[2]
    assert sum((results for _, results in seen[:1] + seen[2:]), Counter()) == right


@pytest.fixture
def unsent(spark, feed, tmp_path, monkeypatch):
    """A checkpoint whose first epoch is committed, but not in its sink, which is `tmp_path/out`."""

    def fail(*_):
        raise RuntimeError("the sink is gone")

    with monkeypatch.context() as patched:
        patched.setattr(FileSink, "deliver", fail)
        with pytest.raises(Exception, match="the sink is gone"):
            run(join_of(spark, feed), tmp_path / "out", tmp_path / "ck")
    assert Checkpoint(tmp_path / "ck").sent_and_committed() == (-1, 0)
    return tmp_path


def test_results_that_wait_in_the_folder_of_a_sink_go_nowhere_else(spark, feed, right, unsent):
    with pytest.raises(CheckpointError, match="was made for another output"):
        run(join_of(spark, feed), unsent / "elsewhere", unsent / "ck")
    writer = join_of(spark, feed).writeStream.foreachBatch(lambda df, epoch: df.collect())
    with pytest.raises(CheckpointError, match=r"sink: checkpoint has 'parquet files in .*query has 'foreachbatch'"):
        writer.option("checkpointLocation", unsent / "ck").trigger(availableNow=True).start()
    run(join_of(spark, feed), unsent / "out", unsent / "ck")
    assert output(spark, unsent / "out") == right


def test_results_wait_in_a_checkpoint_with_any_name(spark, join, right, tmp_path):
    """Spark takes some characters of paths for patterns."""
    writer = join.option("slots", 2).writeStream.format("memory").queryName("any_name")
    writer = writer.option("checkpointLocation", tmp_path / "a [1] {b,c} \\ 100% #?*")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert canonical(spark.table("any_name").toArrow()) == right


def test_a_select_list_without_columns_has_a_row_for_every_result(spark, feed, right, tmp_path):
    join = StreamJoin(spark)
    for name in "abc":
        join = join.stream(name, read_stream(spark, feed / name, READINGS), eventTime="ts", delay="30 seconds")
    join = (
        join.where("a.k = b.k AND b.k = c.k AND a.v <> c.v + 3").within("2 minutes").select("'met' AS what", "1 AS n")
    )
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == Counter({("met", 1): right.total()})


def test_memory_sink_is_a_view(spark, join, right):
    query = join.writeStream.format("memory").queryName("kept_in_memory").trigger(availableNow=True).start()
    query.awaitTermination()
    assert canonical(spark.table("kept_in_memory").toArrow()) == right


def test_console_and_noop(join, right, tmp_path, capsys):
    writer = join.writeStream.format("console").option("numRows", 2).option("truncate", False)
    writer.trigger(availableNow=True).start().awaitTermination()
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("Epoch")] == ["Epoch: 0", "Epoch: 1"]
    assert "only showing top 2 rows" in text
    query = join.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.lastProgress["stateOperators"][0]["customMetrics"]["resultsTotal"] == sum(right.values())


# --- triggers and the handle -----------------------------------------------------------------------------------------


def test_trigger_once_takes_all_in_one_batch(spark, join, tmp_path):
    writer = join.writeStream.option("path", tmp_path / "out").option("checkpointLocation", tmp_path / "ck")
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    union = {name: pa.concat_tables([batch[name] for batch in BATCHES]) for name in "abc"}
    assert output(spark, tmp_path / "out") == expected(join, [union])
    assert [p["batchId"] for p in query.recentProgress] == [0]


def test_a_running_query_shows_itself_takes_new_files_and_stops(spark, tmp_path):
    write_batches(tmp_path, BATCHES[:1])
    join = join_of(spark, tmp_path)
    writer = join.writeStream.format("parquet").queryName("running").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", tmp_path / "ck").trigger(processingTime="100 milliseconds").start()
    query.processAllAvailable()
    assert output(spark, tmp_path / "out") == expected(join, BATCHES[:1])
    assert query.isActive
    assert query.name == "running"
    assert query.exception() is None
    assert set(query.status) == {"message", "isDataAvailable", "isTriggerActive"}
    assert query.awaitTermination(0.01) is False
    write_batches(tmp_path, BATCHES[1:], start=1)
    query.processAllAvailable()
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    epochs = [p["epoch"] for p in query.recentProgress if p["numInputRows"]]
    assert epochs == list(range(len(epochs)))  # how many depends on when the files are seen
    assert len(epochs) >= 2
    query.stop()
    assert not query.isActive
    assert query.exception() is None
    assert query.awaitTermination(60) is True
    query.stop()


def test_the_id_survives_a_restart_and_the_run_id_does_not(join, tmp_path):
    first = run(join, tmp_path / "out", tmp_path / "ck")
    second = run(join, tmp_path / "out", tmp_path / "ck")
    assert first.id == second.id
    assert first.runId != second.runId


def test_progress_has_the_names_of_spark_and_counts_late_rows(spark, tmp_path):
    on_time = [[(n % 5, 100 * b + n, n) for n in range(40)] for b in range(3)]
    late = [(1, 1.0, 77), (2, 2.0, 78)]
    batches = [
        {"a": readings(on_time[0]), "b": readings(on_time[0])},
        {"a": readings(on_time[1]), "b": readings([*on_time[1], (1, None, 1)])},
        {"a": readings(on_time[2] + late), "b": readings([*on_time[2], (None, 210, 1)])},
    ]
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path, "ab", within="30 seconds", delay="1 second").options(slots=2, memoryBudget="16k")
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    last = query.lastProgress
    assert {"id", "runId", "batchId", "timestamp", "numInputRows", "durationMs", "sources", "sink"} <= set(last)
    assert last["id"] == query.id
    assert last["numInputRows"] == 83
    assert len(last["sources"]) == 2
    assert last["eventTime"]["watermark"] == "1970-01-01T00:02:18.000Z"
    assert {"join", "commitState", "writeSink", "triggerExecution"} <= set(last["durationMs"])
    assert {event["kind"] for event in last["adaptations"]} <= {"spill", "cleanUp"}
    (operator,) = last["stateOperators"]
    assert operator["operatorName"] == "watersmeetJoin"
    assert operator["numRowsDroppedByWatermark"] == 2
    assert operator["customMetrics"]["rowsDroppedNullKey"] == 1
    assert operator["customMetrics"]["rows.a"] == 42
    assert query.recentProgress[1]["stateOperators"][0]["customMetrics"]["rowsDroppedNoEventTime"] == 1
    assert json.loads(last.json) == json.loads(last.prettyJson)
    assert json.loads(last.json)["stateOperators"] == last["stateOperators"]
    for progress in query.recentProgress:
        (operator,) = progress["stateOperators"]
        assert operator["memoryUsedBytes"] <= 2 * 16 * 1024
        assert all(operator["customMetrics"][f"memoryBytes.slot{slot}"] <= 16 * 1024 for slot in (0, 1))


def test_a_small_budget_bounds_the_files_in_memory(spark, tmp_path):
    """What lies in the memory tier, measured while the query stands still between epochs."""
    shm = tmp_path / "tmpfs"
    shm.mkdir()
    write_batches(tmp_path, BATCHES)
    join = join_of(spark, tmp_path).options(slots=2, memoryBudget="12k", memoryLocation=shm)
    sizes: list[int] = []

    def measure(results, epoch):
        sizes.append(sum(file.stat().st_size for file in shm.rglob("*.seg")))

    writer = join.writeStream.foreachBatch(measure).option("checkpointLocation", tmp_path / "ck")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert len(sizes) > 3, "what was spilled has been cleaned up in epochs of its own"
    assert max(sizes) <= 2 * 12 * 1024
    assert max(sizes) > 0
    until(lambda: not list(shm.rglob("*.seg")), what="the memory tier to be removed")


def test_queries_side_by_side(spark, feed, right, tmp_path):
    """Two joins in one session, on checkpoints of their own, at the same time."""
    joins = [join_of(spark, feed, maxFilesPerTrigger=2) for _ in range(2)]
    queries = [start(join, tmp_path / f"out{i}", tmp_path / f"ck{i}") for i, join in enumerate(joins)]
    for query in queries:
        query.awaitTermination()
    assert [output(spark, tmp_path / f"out{i}") for i in range(2)] == [right, right]
    assert not [t for t in threading.enumerate() if t.name.startswith("watersmeet-")]
