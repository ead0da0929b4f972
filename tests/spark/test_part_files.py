"""Parquet results that tasks write themselves: the folder and Spark's log agree, and failures leave nothing behind."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.helpers import expected, join_of, output, random_batches, run, write_batches
from watersmeet.runtime.spark.file_sink import FileSink
from watersmeet.runtime.spark.sinks import Delivery
from watersmeet.state.manifest import ResultFile
from watersmeet.state.outbox import ResultFolder, ResultWriter
from watersmeet.state.part_files import ANYBODY

SCHEMA = pa.schema([("a.k", pa.int64())])


def named_by_log(out: Path) -> set[str]:
    logs = [file for file in (out / "_spark_metadata").iterdir() if not file.name.startswith(".")]
    lines = [line for file in logs for line in file.read_text().splitlines()[1:]]
    return {Path(json.loads(line)["path"]).name for line in lines}


@pytest.fixture
def finished(spark, tmp_path):
    batches = random_batches(seed=3, streams="abc", batches=2, rows=20)
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path)
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    return tmp_path / "out"


def test_the_log_names_every_file_of_the_folder(finished):
    files = {file.name for file in finished.iterdir() if file.name.startswith("part-")}
    assert files == named_by_log(finished)
    assert len(files) >= 2


def test_an_epoch_that_is_delivered_again_is_in_the_log_once(spark, finished):
    """It was sent before a crash, and not acknowledged: its manifest names the same files again."""
    before = sorted(log.read_bytes() for log in (finished / "_spark_metadata").iterdir())
    file = ResultFile(min(named_by_log(finished)), 1, 1)

    def read() -> None:
        raise AssertionError("part files are not read")

    delivery = Delivery(0, True, spark, [(finished / file.name, file)], read)
    FileSink(str(finished), "parquet", {}).located(spark, ANYBODY).deliver(delivery)
    assert sorted(log.read_bytes() for log in (finished / "_spark_metadata").iterdir()) == before


def test_a_failed_attempt_leaves_no_file(tmp_path):
    folder = ResultFolder(tmp_path, (("a.k", "k"),), "{}", "snappy")
    writer = ResultWriter(folder, slot=1)
    writer.write(pa.RecordBatch.from_pydict({"a.k": [1, 2]}, schema=SCHEMA))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []
    assert ResultWriter(folder, slot=1).close() == ()
