"""State and Spark's log that do not belong together: refused before anything is done, and mended as repair says.

Each test has a checkpoint after four batches, and a backup that was made after two. File sources number what they have
listed, so their offsets alone do not tell batches apart; offsets of `rate-micro-batch` say what the rows are.
"""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from tests.oracle import canonical
from tests.spark.helpers import expected, join_of, output, random_batches, run, start, write_batches
from tests.spark.refusals import refusal
from tests.tearing import LOG, TEARS, copied, last_in, put_back
from watersmeet import StreamJoin
from watersmeet.cli import main
from watersmeet.errors import CheckpointError
from watersmeet.state.checkpoint import Checkpoint

BATCHES = random_batches(seed=5, streams="ab", batches=5, rows=20)
ROWS_A_BATCH = 5


class Received:
    """A function that remembers epochs, and what they brought."""

    def __init__(self) -> None:
        self.epochs: dict[int, Counter] = {}

    def __call__(self, results: DataFrame, epoch: int) -> None:
        self.epochs[epoch] = canonical(results.toArrow())

    @property
    def rows(self) -> Counter:
        return sum(self.epochs.values(), Counter())


def call(join: StreamJoin, function: Received, checkpoint: Path):
    writer = join.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory):
    """Both sinks after four batches, in `now`, and after two, in `older`; a fifth batch lies in `next`."""
    base = tmp_path_factory.mktemp("ran")
    received = Received()
    for begin, moment in ((0, "older"), (2, "now")):
        write_batches(base / "feed", BATCHES[begin : begin + 2], start=begin)
        run(join_of(spark, base / "feed", "ab"), base / "out", base / "ck-parquet")
        call(join_of(spark, base / "feed", "ab"), received, base / "ck-function").awaitTermination()
        for sink in ("parquet", "function"):
            copied(base / f"ck-{sink}", base / moment / f"ck-{sink}")
        shutil.copytree(base / "out", base / moment / "out")
    return base, received


@pytest.fixture
def torn(ran, tmp_path):
    """Everything as it was after four batches, at the places where it was made; and what the function got."""
    base, received = ran
    for sink in ("parquet", "function"):
        for other in (base / f"ck-{sink}").glob("repaired-*"):
            shutil.rmtree(other)
        put_back(base / f"ck-{sink}", base / "now" / f"ck-{sink}")
    shutil.rmtree(base / "out")
    shutil.copytree(base / "now" / "out", base / "out")
    for file in (base / "feed").glob("*/00004.parquet"):
        file.unlink()
    kept = Received()
    kept.epochs = dict(received.epochs)
    return base, kept


def another_query(base: Path, sink: str) -> None:
    other = {"parquet": "function", "function": "parquet"}[sink]
    put_back(base / f"ck-{sink}", base / "now" / f"ck-{other}", LOG)


def contents(*folders: Path) -> dict[str, bytes]:
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and path.name != "lock":
                found[str(path)] = path.read_bytes()
    return found


@pytest.mark.parametrize("sink", ["parquet", "function"])
@pytest.mark.parametrize("how", [*TEARS, "log-of-another-query"])
@pytest.mark.parametrize("has_rows", [True, False], ids=["new-rows", "nothing-new"])
def test_what_does_not_belong_together_is_refused_and_nothing_is_written(spark, torn, sink, how, has_rows):
    base, received = torn
    checkpoint = base / f"ck-{sink}"
    if how in TEARS:
        TEARS[how](checkpoint, base / "older" / f"ck-{sink}")
    else:
        another_query(base, sink)
    if has_rows:
        write_batches(base / "feed", BATCHES[4:], start=4)
    before = contents(checkpoint, base / "out"), dict(received.epochs)
    join = join_of(spark, base / "feed", "ab")
    begin = (
        (lambda: start(join, base / "out", checkpoint))
        if sink == "parquet"
        else lambda: call(join, received, checkpoint)
    )
    text = refusal(CheckpointError, begin)
    if how == "no-manifests":  # what was acknowledged tells that there were some
        assert text.startswith("[CHECKPOINT_DAMAGED] ")
    else:
        assert text.startswith("[DIFFERENT_BATCHES] the state and Spark's log do not belong together: ")
        assert text.endswith(f"watersmeet repair {checkpoint}")
    assert (contents(checkpoint, base / "out"), received.epochs) == before
    assert not spark.streams.active


def test_a_sound_checkpoint_goes_on(spark, torn):
    base, _ = torn
    write_batches(base / "feed", BATCHES[4:], start=4)
    run(join_of(spark, base / "feed", "ab"), base / "out", base / "ck-parquet")
    assert output(spark, base / "out") == expected(join_of(spark, base / "feed", "ab"), BATCHES)


def test_a_log_that_changes_while_the_query_runs_is_noticed_by_the_next_batch(spark, tmp_path):
    write_batches(tmp_path / "feed", BATCHES[:2])
    join = join_of(spark, tmp_path / "feed", "ab")
    writer = join.writeStream.option("path", tmp_path / "out").option("checkpointLocation", tmp_path / "ck")
    query = writer.trigger(processingTime="100 milliseconds").start()
    query.processAllAvailable()
    before = output(spark, tmp_path / "out")
    path = tmp_path / "ck" / LOG / "offsets" / "1"
    path.write_text(path.read_text().replace("batchTimestampMs", "batchTimestampMS"))
    write_batches(tmp_path / "feed", BATCHES[2:3], start=2)
    with pytest.raises(CheckpointError, match="Spark has made another batch 1 than the one in the state"):
        query.awaitTermination(120)
    assert not query.isActive
    assert output(spark, tmp_path / "out") == before


# Repair


@pytest.mark.parametrize("sink", ["parquet", "function"])
@pytest.mark.parametrize("how", ["no-offsets", "no-end"])
def test_lost_offsets_are_put_back_and_nothing_is_lost_or_repeated(spark, torn, sink, how):
    base, received = torn
    checkpoint = base / f"ck-{sink}"
    TEARS[how](checkpoint, base / "older" / f"ck-{sink}")
    assert main(["repair", str(checkpoint), "--apply", "put-back"]) == 0
    write_batches(base / "feed", BATCHES[4:], start=4)
    join = join_of(spark, base / "feed", "ab")
    if sink == "parquet":
        run(join, base / "out", checkpoint)
    else:
        call(join, received, checkpoint).awaitTermination()
    found = output(spark, base / "out") if sink == "parquet" else received.rows
    assert found == expected(join, BATCHES)
    assert main(["repair", str(checkpoint)]) == 0


@pytest.mark.parametrize("how", ["no-log", "older-log", "another-log"])
def test_the_log_of_a_file_source_cannot_be_made_again(torn, capsys, how):
    base, _ = torn
    checkpoint = base / "ck-parquet"
    TEARS[how](checkpoint, base / "older" / "ck-parquet")
    before = contents(checkpoint)
    assert main(["repair", str(checkpoint), "--apply", "put-back"]) == 1
    assert "it cannot be done: " in capsys.readouterr().out
    assert contents(checkpoint) == before


@pytest.mark.parametrize("sink", ["parquet", "function"])
def test_spark_reads_again_what_an_older_state_lacks(spark, torn, sink):
    """The sink goes back with the state: a function forgets later epochs, a folder comes from the same backup."""
    base, received = torn
    checkpoint = base / f"ck-{sink}"
    TEARS["older-state"](checkpoint, base / "older" / f"ck-{sink}")
    ending = Checkpoint(checkpoint).ending()
    assert ending is not None
    assert main(["repair", str(checkpoint), "--apply", "rewind"]) == 0
    write_batches(base / "feed", BATCHES[4:], start=4)
    join = join_of(spark, base / "feed", "ab")
    if sink == "parquet":
        shutil.rmtree(base / "out")
        shutil.copytree(base / "older" / "out", base / "out")
        run(join, base / "out", checkpoint)
    else:
        received.epochs = {epoch: rows for epoch, rows in received.epochs.items() if epoch <= ending.epoch}
        call(join, received, checkpoint).awaitTermination()
    found = output(spark, base / "out") if sink == "parquet" else received.rows
    assert found == expected(join, BATCHES)


def test_a_folder_of_files_that_is_ahead_of_the_state_is_refused_after_a_rewind(spark, torn):
    base, _ = torn
    TEARS["older-state"](base / "ck-parquet", base / "older" / "ck-parquet")
    assert main(["repair", str(base / "ck-parquet"), "--apply", "rewind"]) == 0
    with pytest.raises(Exception, match="holds the output of another query"):
        start(join_of(spark, base / "feed", "ab"), base / "out", base / "ck-parquet")


def rates(spark) -> StreamJoin:
    """Rows that depend on their offsets alone: value n of one stream meets value n of the other."""
    join = StreamJoin(spark)
    for name in "ab":
        reader = spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
        rows = reader.option("rowsPerBatch", ROWS_A_BATCH).option("startTimestamp", 1_700_000_000_000).load()
        join = join.stream(name, rows, eventTime="timestamp")
    return join.where("a.value = b.value").within("1 hour").select("a.value AS value")


@pytest.mark.parametrize(
    "how",
    [
        "no-end",
        "no-log",
        *(pytest.param(how, marks=pytest.mark.long) for how in ("no-offsets", "older-log", "another-log")),
    ],
)
def test_offsets_that_say_all_are_enough_to_make_the_log_again(spark, tmp_path, how):
    batches = 5
    for number in range(batches - 1):
        run(rates(spark), tmp_path / "out", tmp_path / "ck")
        if number == 1:
            copied(tmp_path / "ck", tmp_path / "older")
    assert last_in(tmp_path / "ck" / LOG / "offsets") == batches - 2
    TEARS[how](tmp_path / "ck", tmp_path / "older")
    refusal(CheckpointError, lambda: start(rates(spark), tmp_path / "out", tmp_path / "ck"))
    assert main(["repair", str(tmp_path / "ck"), "--apply", "put-back"]) == 0
    run(rates(spark), tmp_path / "out", tmp_path / "ck")
    found = Counter(row.value for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == Counter(range(found.total()))
    assert found.total() >= ROWS_A_BATCH * batches
