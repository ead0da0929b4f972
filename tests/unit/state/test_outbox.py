"""Files of results: there when the writer says so, one per attempt, and none of an attempt that failed."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.errors import CheckpointError, SinkError
from watersmeet.state.manifest import ResultFile
from watersmeet.state.outbox import (
    SPARK_SCHEMA,
    ResultFolder,
    ResultWriter,
    read_results,
    remove_results,
    require_whole,
)

SCHEMA = pa.schema([("a_v", pa.int64()), ("b_v", pa.string())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"a_v": v, "b_v": str(v)} for v in values], schema=SCHEMA)


def test_what_was_written_is_read_again(tmp_path):
    writers = [ResultWriter(ResultFolder(tmp_path / "outbox"), slot) for slot in (0, 1)]
    writers[0].write(rows(1, 2))
    writers[0].write(rows(3))
    writers[1].write(rows(4))
    files = [file for writer in writers for file in writer.close()]
    assert {file.name for file in files} == set(os.listdir(tmp_path / "outbox"))
    assert [file.bytes for file in files] == [(tmp_path / "outbox" / file.name).stat().st_size for file in files]
    assert all(file.modified_ms > 1_600_000_000_000 for file in files)
    assert read_results(tmp_path / "outbox", files, SCHEMA)["a_v"].to_pylist() == [1, 2, 3, 4]
    assert read_results(tmp_path / "outbox", files[1:], SCHEMA)["b_v"].to_pylist() == ["4"]


def test_no_files_are_no_rows(tmp_path):
    assert read_results(tmp_path, [], SCHEMA) == SCHEMA.empty_table()


def test_a_task_without_results_leaves_no_file(tmp_path):
    assert ResultWriter(ResultFolder(tmp_path / "outbox"), 0).close() == ()
    assert not (tmp_path / "outbox").exists()


def test_a_folder_can_be_given_a_schema_without_rows(tmp_path):
    (file,) = ResultWriter(ResultFolder(tmp_path), 0).close(empty=SCHEMA)
    assert pq.read_table(tmp_path / file.name).schema.names == SCHEMA.names


def test_two_attempts_of_one_task_write_two_files(tmp_path):
    names = []
    for _ in range(2):
        writer = ResultWriter(ResultFolder(tmp_path), 3)
        writer.write(rows(1))
        (file,) = writer.close()
        names.append(file.name)
    assert sorted(names) == sorted(os.listdir(tmp_path))
    assert len(set(names)) == 2
    assert all(name.startswith("part-00003-") and name.endswith(".snappy.parquet") for name in names)


def test_the_sink_says_which_columns_under_which_names(tmp_path):
    target = ResultFolder(tmp_path, (("b_v", "text"),), spark_schema='{"type": "struct"}', compression="zstd")
    writer = ResultWriter(target, 0)
    writer.write(rows(7))
    (file,) = writer.close()
    found = pq.ParquetFile(tmp_path / file.name)
    assert found.read().to_pylist() == [{"text": "7"}]
    assert found.schema_arrow.metadata[SPARK_SCHEMA] == b'{"type": "struct"}'
    assert found.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_failed_attempt_leaves_nothing(tmp_path):
    begun, untouched, done = (ResultWriter(ResultFolder(tmp_path), slot) for slot in range(3))
    begun.write(rows(1))
    done.write(rows(2))
    (file,) = done.close()
    for writer in (begun, untouched, done):
        writer.abandon()
    assert os.listdir(tmp_path) == [file.name], "what was closed is durable: whoever accepts reports decides"


def test_results_that_no_manifest_will_name_are_removed_and_others_stay(tmp_path):
    files = []
    for slot in range(3):
        writer = ResultWriter(ResultFolder(tmp_path), slot)
        writer.write(rows(slot))
        files += writer.close()
    remove_results(tmp_path, [*files[:2], ResultFile("gone already", 1, 1)])
    assert os.listdir(tmp_path) == [files[2].name]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "outbox").write_bytes(b"a file, not a folder")
    writer = ResultWriter(ResultFolder(tmp_path / "outbox"), 0)
    with pytest.raises(SinkError, match=r"cannot write .*outbox"):
        writer.write(rows(1))


@pytest.fixture
def one(tmp_path):
    """A file of results, and its path."""
    writer = ResultWriter(ResultFolder(tmp_path), 0)
    writer.write(rows(*range(100)))
    (file,) = writer.close()
    return file, tmp_path / file.name


def test_no_flipped_bit_of_results_goes_unnoticed(one, tmp_path):
    file, path = one
    require_whole(tmp_path, [file], reads=True)
    whole = path.read_bytes()
    for bit in range(0, len(whole) * 8, 13):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        require_whole(tmp_path, [file], reads=False)
        with pytest.raises(CheckpointError, match="its checksum does not match the manifest"):
            require_whole(tmp_path, [file], reads=True)


@pytest.mark.parametrize("reads", [True, False])
def test_results_that_are_missing_shorter_or_a_link_are_named(one, tmp_path, reads):
    file, path = one
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=f"{file.name} is damaged: it has {len(whole) - 1} bytes"):
        require_whole(tmp_path, [file], reads=reads)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{file.name} is damaged: it is missing"):
        require_whole(tmp_path, [file], reads=reads)
    (tmp_path / "elsewhere").write_bytes(whole)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="symbolic link") as refused:
        require_whole(tmp_path, [file], reads=reads)
    assert refused.value.error_class == "CHECKPOINT_DAMAGED"


def test_results_of_an_earlier_version_are_checked_by_their_length(one, tmp_path):
    file, _ = one
    require_whole(tmp_path, [ResultFile(file.name, file.bytes, file.modified_ms)], reads=True)
