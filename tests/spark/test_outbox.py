"""Results wait in files: whatever dies after the manifest, they are sent from there, without asking the source."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.effort import mostly_long
from tests.oracle import canonical
from tests.spark.dying import dying_before
from tests.spark.helpers import READINGS, expected, join_of, output, random_batches, readings, write_batches
from tests.spark.helpers import run as run_to_parquet
from tests.spark.outbox_program import STARTS, groups, rows, sent
from tests.spark.processes import PACKAGES, ROOT, visiting
from watersmeet import StreamJoin
from watersmeet.epoch import protocol
from watersmeet.errors import CheckpointError
from watersmeet.failpoints import VARIABLE
from watersmeet.state.checkpoint import Checkpoint

BATCHES = random_batches(seed=8, streams="ab", batches=3, rows=20, keys=6)


def named_by_log(out: Path) -> set[str]:
    logs = [file for file in (out / "_spark_metadata").iterdir() if not file.name.startswith(".")]
    return {json.loads(line)["path"] for file in logs for line in file.read_text().splitlines()[1:]}


def run(spark, folder: Path, kind: str = "parquet") -> None:
    STARTS[kind](spark, folder).awaitTermination()


def right(spark, folder: Path, kind: str = "parquet") -> Counter:
    if kind != "complete":
        return expected(rows(spark, folder), BATCHES)
    found: dict[int, list[int]] = {}
    for (k, _, _, _, v), count in expected(rows(spark, folder), BATCHES).items():
        found.setdefault(k, []).extend([v] * count)
    return Counter((k, len(values), sum(values)) for k, values in found.items())


def forget_the_source(folder: Path) -> None:
    for stream in "ab":
        for file in (folder / stream).iterdir():
            file.unlink()


@pytest.mark.chaos
@pytest.mark.parametrize("kind", mostly_long(STARTS, "parquet", "function", "complete"))
def test_a_killed_driver_has_its_results_sent_without_the_source(spark, tmp_path, kind):
    write_batches(tmp_path, BATCHES)
    paths = [str(PACKAGES), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **visiting(spark), VARIABLE: f"after-manifest@{len(BATCHES)}"}
    program = [sys.executable, "-m", "tests.spark.outbox_program", kind, str(tmp_path)]
    died = subprocess.run(program, cwd=ROOT, env={**env, "PYTHONPATH": os.pathsep.join(paths)}, timeout=240)
    assert died.returncode == -signal.SIGKILL
    last = Checkpoint(tmp_path / "ck").latest()
    assert (last.epoch, last.batch) == (2, 2)
    assert sent(spark, tmp_path, kind) != right(spark, tmp_path, kind)
    forget_the_source(tmp_path)
    run(spark, tmp_path, kind)
    assert sent(spark, tmp_path, kind) == right(spark, tmp_path, kind)


@pytest.mark.parametrize(
    "kind",
    ["parquet", pytest.param("csv", marks=pytest.mark.long), pytest.param("partitioned", marks=pytest.mark.long)],
)
def test_an_epoch_that_the_log_knows_is_not_sent_again(spark, tmp_path, kind):
    write_batches(tmp_path, BATCHES)
    with dying_before(protocol.Acknowledge, len(BATCHES)), pytest.raises(Exception, match="before Acknowledge"):
        run(spark, tmp_path, kind)
    named, files = named_by_log(tmp_path / "out"), set((tmp_path / "out").rglob("part-*"))
    assert sent(spark, tmp_path, kind) == right(spark, tmp_path, kind)
    forget_the_source(tmp_path)
    run(spark, tmp_path, kind)
    assert (named_by_log(tmp_path / "out"), set((tmp_path / "out").rglob("part-*"))) == (named, files)
    assert sent(spark, tmp_path, kind) == right(spark, tmp_path, kind)


def test_a_sink_that_fails_outside_of_a_batch_ends_the_query_with_its_own_error(spark, tmp_path):
    """In the recovery, and in the clean-up at the end of a stream."""
    write_batches(tmp_path, BATCHES)
    with dying_before(protocol.Send), pytest.raises(Exception, match="before Send"):
        run(spark, tmp_path, "function")

    def start(join: StreamJoin, checkpoint: str, refused: int) -> list[int]:
        epochs = []

        def take(_: object, epoch: int) -> None:
            epochs.append(epoch)
            if epoch == refused:
                raise ValueError(f"epoch {epoch} is refused")

        writer = join.writeStream.foreachBatch(take).option("checkpointLocation", tmp_path / checkpoint)
        query = writer.trigger(availableNow=True).start()
        with pytest.raises(Exception, match=f"ValueError: epoch {refused} is refused|^epoch {refused} is refused"):
            query.awaitTermination()
        return epochs

    assert start(rows(spark, tmp_path), "ck", refused=0) == [0]
    spilling = rows(spark, tmp_path).options(memoryBudget="1k", partitions=8)
    assert start(spilling, "other", refused=len(BATCHES)) == [0, 1, 2, 3]


@pytest.fixture(params=["parquet", "csv"])
def waiting(spark, tmp_path, request):
    """A query whose last results wait to be sent, as part files or in the checkpoint; and one of those files."""
    write_batches(tmp_path, BATCHES)
    with dying_before(protocol.Send, len(BATCHES)), pytest.raises(Exception, match="before Send"):
        run(spark, tmp_path, request.param)
    last = Checkpoint(tmp_path / "ck").latest()
    folder = tmp_path / "out" if last.outbox.place == "sink" else Checkpoint(tmp_path / "ck").outbox
    assert last.outbox.place == ("sink" if request.param == "parquet" else "checkpoint")
    return request.param, folder / last.outbox.files[0].name


def test_a_missing_file_of_results_is_named(spark, tmp_path, waiting):
    kind, file = waiting
    whole = file.read_bytes()
    file.unlink()
    before = sent(spark, tmp_path, kind)
    with pytest.raises(CheckpointError, match=file.name):
        run(spark, tmp_path, kind)
    assert sent(spark, tmp_path, kind) == before
    file.write_bytes(whole)
    run(spark, tmp_path, kind)
    assert sent(spark, tmp_path, kind) == right(spark, tmp_path, kind)


def test_a_shortened_file_of_results_is_named(spark, tmp_path, waiting):
    kind, file = waiting
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match=file.name):
        run(spark, tmp_path, kind)


def test_a_file_of_results_with_other_bytes_is_named(spark, tmp_path, waiting):
    """In a page, which Parquet has checksums for, and in its footer, which it has none for."""
    kind, file = waiting
    whole, before = file.read_bytes(), sent(spark, tmp_path, kind)
    place = pq.ParquetFile(file).metadata.row_group(0).column(2)
    for position in (place.data_page_offset + place.total_compressed_size - 3, len(whole) - 20):
        data = bytearray(whole)
        data[position] ^= 1
        file.write_bytes(data)
        with pytest.raises(CheckpointError, match=f"{file.name} is damaged: its checksum does not match the manifest"):
            run(spark, tmp_path, kind)
        assert sent(spark, tmp_path, kind) == before
    checkpoint = Checkpoint(tmp_path / "ck")
    assert not checkpoint.is_acknowledged(checkpoint.latest().epoch)


def test_an_epoch_without_results_does_not_replace_what_is_there(spark, tmp_path):
    """The takeover of a restart, and a batch that is empty, leave all groups shown."""
    write_batches(tmp_path, BATCHES)
    for _ in range(2):
        run(spark, tmp_path, "complete")
    assert len(list((tmp_path / "sent").iterdir())) == len(BATCHES)
    assert sent(spark, tmp_path, "complete") == right(spark, tmp_path, "complete")
    write_batches(tmp_path, [{s: READINGS.empty_table() for s in "ab"}], start=len(BATCHES))
    run(spark, tmp_path, "complete")
    assert sent(spark, tmp_path, "complete") == right(spark, tmp_path, "complete")


@pytest.mark.parametrize(
    "expression", [pytest.param("100 DIV (a.v - 7)", marks=pytest.mark.long), "if(a.v = 7, raise_error('seven'), a.v)"]
)
def test_an_expression_that_fails_does_so_before_the_commit(spark, tmp_path, expression):
    good = {s: readings([(1, 10, 3), (2, 11, 5)]) for s in "ab"}
    bad = {"a": readings([(1, 20, 7)]), "b": good["b"]}
    write_batches(tmp_path, [good, bad])

    def join() -> StreamJoin:
        made = join_of(spark, tmp_path, "ab").option("slots", 2)
        return made.select("a.v AS v", "b.v AS w", f"{expression} AS x")

    with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|seven"):
        run_to_parquet(join(), tmp_path / "out", tmp_path / "ck")
    checkpoint = Checkpoint(tmp_path / "ck")
    assert checkpoint.latest().epoch == 0
    assert output(spark, tmp_path / "out").total() == 2
    mended = {"a": readings([(1, 20, 8)]), "b": good["b"]}
    write_batches(tmp_path, [mended], start=1)
    run_to_parquet(join(), tmp_path / "out", tmp_path / "ck")
    found = Counter((v, w) for (v, w, _), n in output(spark, tmp_path / "out").items() for _ in range(n))
    plain = expected(rows(spark, tmp_path), [good, mended])
    assert found == _pairs(plain)


def _pairs(results: Counter) -> Counter:
    found: Counter = Counter()
    for (_, _, v, _, w), count in results.items():
        found[v, w] += count
    return found


def test_files_hold_final_rows_only(spark, tmp_path):
    """What HAVING and predicates of Spark's leave out is not in the outbox."""
    write_batches(tmp_path, BATCHES)
    joined = expected(rows(spark, tmp_path), BATCHES[:1])
    many = groups(spark, tmp_path).having("count(*) > 20")
    spelled = rows(spark, tmp_path).where("levenshtein(a.name, b.name) < 1")
    for name, join, mode in (("groups", many, "update"), ("names", spelled, "append")):
        writer = join.writeStream.outputMode(mode).foreachBatch(lambda *_: None)
        writer = writer.option("checkpointLocation", tmp_path / name).trigger(availableNow=True)
        with dying_before(protocol.Send), pytest.raises(Exception, match="before Send"):
            writer.start().awaitTermination()
        checkpoint = Checkpoint(tmp_path / name)
        files = [checkpoint.outbox / file.name for file in checkpoint.latest().outbox.files]
        found = pa.concat_tables(pq.read_table(file) for file in files)
        if mode == "update":
            assert found.column_names == ["k", "n", "total"]
            sizes = Counter(k for (k, *_), count in joined.items() for _ in range(count))
            assert Counter(dict(zip(*(found[c].to_pylist() for c in "kn"), strict=True))) == Counter(
                {k: n for k, n in sizes.items() if n > 20}
            )
            assert 0 < found.num_rows < len(sizes)
        else:
            assert found.column_names == ["k", "a_ts", "a_v", "b_ts", "b_v"]
            same = Counter({row: n for row, n in joined.items() if row[2] % 3 == row[4] % 3})
            assert canonical(found) == same
            assert 0 < same.total() < joined.total()


@pytest.mark.parametrize(
    "kind", ["parquet", pytest.param("csv", marks=pytest.mark.long), pytest.param("complete", marks=pytest.mark.long)]
)
def test_paths_may_have_any_characters(spark, tmp_path, kind):
    write_batches(tmp_path, BATCHES)
    folder = tmp_path / "a *[b]{c,d}?" / "100%20 é ü+&=#"
    folder.mkdir(parents=True)
    with dying_before(protocol.Send, len(BATCHES)), pytest.raises(Exception, match="before Send"):
        STARTS[kind](spark, folder, tmp_path).awaitTermination()
    STARTS[kind](spark, folder, tmp_path).awaitTermination()
    assert sent(spark, folder, kind) == right(spark, tmp_path, kind)
