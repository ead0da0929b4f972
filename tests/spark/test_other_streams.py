"""A restart with a stream more or less: sources have names, results are the oracle's, and a refusal touches nothing."""

import json
from collections import Counter
from itertools import pairwise

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from tests.changing import Oracle, contents
from tests.spark.helpers import READINGS, output, random_batches, read_stream, run, start, until, write_file
from tests.spark.refusals import refusal
from watersmeet import StreamJoin
from watersmeet.errors import CheckpointError, QueryError
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.spark_log import EVOLUTION, SparkLog

pytestmark = pytest.mark.spark

BATCHES = random_batches(seed=5, streams="abcde", batches=8, rows=25, keys=8)
SELECT = ("b.k AS k", "b.ts", "b.v", "c.v AS other")


@pytest.fixture
def naming(spark):
    """Sources may have names, and each must."""
    spark.conf.set(EVOLUTION, "true")
    yield spark
    spark.conf.unset(EVOLUTION)


def named(spark, folder, name):
    """A stream over a named source."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = spark.readStream.name(name).schema(from_arrow_schema(READINGS, prefer_timestamp_ntz=True))
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def unnamed(spark, folder, name):
    return read_stream(spark, folder, READINGS)


def join_of(spark, folder, streams, *more, read=named, sources=None, plan=None):
    join = StreamJoin(spark)
    for name in streams:
        source = (sources or {}).get(name, f"of_{name}")
        join = join.stream(name, read(spark, folder / source, source), eventTime="ts", delay="30 seconds")
    for condition in (*(f"{left}.k = {right}.k" for left, right in pairwise(streams)), *more):
        join = join.where(condition)
    join = join.within("3 minutes").select(*SELECT).option("onChange", "migrate")
    return join if plan is None else join.option("plan", plan)


def query_of(join):
    return pieces_of(join).build()[0]


def batch_of(number, streams, first):
    """The rows of a batch. A source that is added starts with its first file, so it is behind the others."""
    return {name: BATCHES[number - first.get(name, 0)][name] for name in streams}


def write_batch(folder, number, batch, sources):
    for name, rows in batch.items():
        write_file(folder / sources.get(name, f"of_{name}"), number, rows)


def forget_commit(folder):
    """As if the driver had died before Spark's last commit: Spark hands over the batch once more."""
    if found := sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name)):
        for path in (found[-1], found[-1].with_name(f".{found[-1].name}.crc")):
            path.unlink(missing_ok=True)


STEPS = (
    ("abc", (), "((a b) c)", {}),
    ("bcd", ("b.v <> 70",), "(b (c d))", {}),
    ("bc", (), "(b c)", {}),
    ("abce", ("a.v < e.v + 60",), "((a b) (c e))", {"a": "of_a_again"}),
)
"""Streams, predicates, a tree, and sources with other names: stream a comes back over a new source."""
FIRST = {"d": 2, "e": 6}


def test_streams_are_added_and_dropped(naming, tmp_path):
    oracle, due = None, Counter()
    for step, (streams, more, plan, sources) in enumerate(STEPS):
        naming.conf.set(EVOLUTION, "true")
        join = join_of(naming, tmp_path, streams, *more, sources=sources, plan=plan)
        naming.conf.unset(EVOLUTION)  # it is needed where sources are read, and no more
        if oracle is None:
            oracle = Oracle(query_of(join))
        else:
            oracle.change(query_of(join))
        for number in (2 * step, 2 * step + 1):
            batch = batch_of(number, streams, FIRST)
            write_batch(tmp_path, number, batch, sources)
            due += oracle.run(batch)
        forget_commit(tmp_path / "ck" / "spark" / "commits")
        run(join, tmp_path / "out", tmp_path / "ck")
        found = output(naming, tmp_path / "out")
        assert found == due, f"step {step}: {found - due} too many, {due - found} missing"
    assert SparkLog(tmp_path / "ck" / "spark").names_sources()
    texts = json.loads((tmp_path / "ck" / "watersmeet" / "query.json").read_bytes().split(b"\n")[0])["texts"]
    assert texts["sources"]["a"] == ["of_a_again"]
    assert texts["formerSources"] == ["of_a", "of_d"]


def test_a_running_query_gets_another_stream(naming, tmp_path):
    oracle = Oracle(query_of(join_of(naming, tmp_path, "bc")))
    write_batch(tmp_path, 0, {name: BATCHES[0][name] for name in "bc"}, {})
    query = join_of(naming, tmp_path, "bc").writeStream.start(
        str(tmp_path / "out"), checkpointLocation=str(tmp_path / "ck")
    )
    try:
        query.processAllAvailable()
        due = oracle.run(BATCHES[0])
        wider = join_of(naming, tmp_path, "abc", sources={"a": "of_late"})
        write_file(tmp_path / "of_late", 1, BATCHES[0]["a"])
        query = query.change(wider)
        query.processAllAvailable()
        oracle.change(query_of(wider))
        due += oracle.run({"a": BATCHES[0]["a"]})
        query = query.change(join_of(naming, tmp_path, "bc"))
        write_batch(tmp_path, 2, {name: BATCHES[1][name] for name in "bc"}, {})
        query.processAllAvailable()
        oracle.change(query_of(join_of(naming, tmp_path, "bc")))
        due += oracle.run(BATCHES[1])
    finally:
        query.stop()
    assert output(naming, tmp_path / "out") == due


def test_a_change_that_was_not_approved_loses_no_rows_of_its_sources(naming, tmp_path):
    """Spark has planned a batch with them by then."""
    narrow, wide = join_of(naming, tmp_path, "bc"), join_of(naming, tmp_path, "abc")
    oracle = Oracle(query_of(narrow))
    write_batch(tmp_path, 0, batch_of(0, "bc", {}), {})
    run(narrow, tmp_path / "out", tmp_path / "ck")
    write_batch(tmp_path, 1, batch_of(1, "abc", {}), {})
    query = start(wide.option("onChange", "ask"), tmp_path / "out", tmp_path / "ck")
    until(lambda: (tmp_path / "ck" / "spark" / "offsets" / "1").exists())
    query.stop()
    run(narrow, tmp_path / "out", tmp_path / "ck")
    run(wide, tmp_path / "out", tmp_path / "ck")
    due = oracle.run(batch_of(0, "bc", {})) + oracle.run(batch_of(1, "bc", {}))
    oracle.change(query_of(wide))
    due += oracle.run({"a": BATCHES[1]["a"]})
    assert output(naming, tmp_path / "out") == due


def test_a_driver_that_dies_after_the_change_has_read_nothing_of_its_sources(naming, tmp_path, monkeypatch):
    narrow, wide = join_of(naming, tmp_path, "bc"), join_of(naming, tmp_path, "abc")
    oracle = Oracle(query_of(narrow))
    write_batch(tmp_path, 0, batch_of(0, "bc", {}), {})
    run(narrow, tmp_path / "out", tmp_path / "ck")
    write_batch(tmp_path, 1, batch_of(1, "abc", {}), {})
    with monkeypatch.context() as patched:
        patched.setattr("watersmeet.runtime.spark.writer.unite", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            start(wide, tmp_path / "out", tmp_path / "ck")
    refusal(CheckpointError, lambda: start(narrow.option("onChange", "refuse"), tmp_path / "out", tmp_path / "ck"))
    run(wide.option("onChange", "refuse"), tmp_path / "out", tmp_path / "ck")
    due = oracle.run(batch_of(0, "bc", {}))
    oracle.change(query_of(wide))
    due += oracle.run(batch_of(1, "abc", {}))
    assert output(naming, tmp_path / "out") == due


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Checkpoints: over sources without names, and over named ones, of which that of stream d was dropped."""
    folder = tmp_path_factory.mktemp("made")
    write_batch(folder, 0, batch_of(0, "abcd", {}), {})
    run(join_of(spark, folder, "abc", read=unnamed), folder / "unnamed-out", folder / "unnamed")
    spark.conf.set(EVOLUTION, "true")
    for streams in ("abcd", "abc"):
        run(join_of(spark, folder, streams), folder / "named-out", folder / "named")
    spark.conf.unset(EVOLUTION)
    return folder


CHANGED = "[CANNOT_CHANGE_QUERY] the query cannot be changed: "
POSITION = "streams may not be added or dropped: Spark keeps the offsets of sources by their position"
REFUSED = {
    "a stream more": ("unnamed", "abce", {"read": unnamed}, CHANGED + POSITION),
    "a stream less": ("unnamed", "bc", {"read": unnamed}, CHANGED + POSITION),
    "names too late": ("unnamed", "abc", {}, "its sources have no names, and Spark cannot give them names later"),
    "names no more": ("named", "abc", {"read": unnamed}, "its sources have names, and those of the query have none"),
    "another name": (
        "named",
        "abc",
        {"sources": {"a": "x"}},
        "[DIFFERENT_SOURCES] checkpoint",
        "stream a has read of_a, and Spark would read x from the beginning",
    ),
    "a dropped source": ("named", "abcd", {}, CHANGED + "stream d reads source of_d, which this checkpoint has read"),
    "a source that goes": ("named", "bce", {"sources": {"e": "of_a"}}, CHANGED + "stream e reads source of_a, which"),
    "a key that was not kept": ("named", "abce", {"more": "a.name = e.name"}, "key column a.name was not kept"),
    "a column that was not kept": ("named", "abce", {"more": "a.v < e.v"}, "column a.v was not kept"),
    "other columns": (
        "named",
        "abce",
        {"select": "e.v AS more"},
        "[DIFFERENT_OUTPUT]",
        "result columns: checkpoint has",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused_streams_leave_the_checkpoint_as_it_was(spark, made, why):
    checkpoint, streams, given, *words = REFUSED[why]
    read = given.get("read", named)
    spark.conf.set(EVOLUTION, str(read is named).lower())
    more = [given["more"]] if "more" in given else []
    join = join_of(spark, made, streams, *more, read=read, sources=given.get("sources"))
    if "select" in given:
        join = join.select(*SELECT, given["select"])
    before = contents_of(made / checkpoint)
    try:
        text = refusal(CheckpointError, lambda: start(join, made / f"{checkpoint}-out", made / checkpoint))
    finally:
        spark.conf.unset(EVOLUTION)
    assert all(word in text for word in words), text
    assert contents_of(made / checkpoint) == before
    if POSITION in text:
        assert "name the sources from its first start on" in text


def contents_of(folder):
    return {name: digest for name, digest in contents(folder).items() if not name.endswith("lock")}


def test_a_named_source_has_one_stream(naming, tmp_path):
    twice = join_of(naming, tmp_path, "abc", sources={"b": "of_a"})
    text = refusal(QueryError, lambda: start(twice, tmp_path / "out", tmp_path / "ck"))
    assert text.startswith("[SOURCE_READ_TWICE] the source named 'of_a' is read by more than one stream")
