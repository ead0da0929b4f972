"""Statistics come back as they were kept, or not at all: nothing is ever refused because of them."""

import os
import random

import pyarrow as pa

from watersmeet.state.statistics_file import MAGIC, STATISTICS, read_statistics, write_statistics

TABLE = pa.table({"group": pa.array([1, 2], pa.int32()), "key": ["a", "b"]}).replace_schema_metadata({"mark": "x"})


def test_a_table_comes_back(tmp_path):
    assert read_statistics(tmp_path) is None
    for table in (TABLE, TABLE.slice(1)):
        write_statistics(tmp_path, table)
        found = read_statistics(tmp_path)
        assert found == table
        assert found.schema.metadata == table.schema.metadata
    assert os.listdir(tmp_path) == [STATISTICS]


def test_a_table_of_an_earlier_version_comes_back(tmp_path):
    with pa.OSFile(str(tmp_path / STATISTICS), "wb") as file, pa.ipc.new_file(file, TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert read_statistics(tmp_path) == TABLE


def test_no_flipped_bit_and_no_cut_comes_back(tmp_path):
    write_statistics(tmp_path, TABLE)
    path = tmp_path / STATISTICS
    whole = path.read_bytes()
    rng = random.Random(1)
    for _ in range(500):
        content = bytearray(whole)
        content[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        assert read_statistics(tmp_path) is None
        path.write_bytes(whole[: rng.randrange(len(whole) - len(MAGIC) - 4)])
        assert read_statistics(tmp_path) is None


def test_what_is_no_file_is_set_aside(tmp_path):
    (tmp_path / "outside").write_bytes(b"untouched")
    for put in (lambda path: path.mkdir(), lambda path: path.symlink_to(tmp_path / "outside")):
        path = tmp_path / STATISTICS
        path.unlink(missing_ok=True)
        put(path)
        assert read_statistics(tmp_path) is None
        write_statistics(tmp_path, TABLE)
        assert read_statistics(tmp_path) == TABLE
    assert (tmp_path / "outside").read_bytes() == b"untouched"
