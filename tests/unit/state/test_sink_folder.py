"""What is swept of a sink's folder, and what is not: only what is proven to be left over."""

import json
import uuid
from pathlib import Path

import pytest

from watersmeet.state.part_files import Maker, remove_attempts
from watersmeet.state.sink_folder import LOG_FOLDER, SinkFolder

OURS, OTHERS = Maker("a" * 32, "b" * 8), Maker("c" * 32, "b" * 8)


def put(folder: Path, name: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return name


def log(folder: Path, entry: str, *names: str, place: str = "/elsewhere") -> None:
    """An entry of the log; the folder may have had another path when it was written."""
    lines = [json.dumps({"path": f"file://{place}/{name}"}) for name in names]
    put(folder, f"{LOG_FOLDER}/{entry}")
    (folder / LOG_FOLDER / entry).write_text("\n".join(["v1", *lines]))


def swept(folder: Path) -> int:
    sink = SinkFolder(folder)
    return sink.sweep(sink.leftovers(OURS))


def test_a_name_says_whose_file_it_is_and_of_which_attempt():
    name = OURS.part_name(7, 3, "snappy.parquet")
    assert name.startswith("part-00003-aaaaaaaaaaaa-00000007-bbbbbbbb")
    assert name.endswith("-c000.snappy.parquet")
    assert name != OURS.part_name(7, 3, "snappy.parquet")
    assert OURS.has_made(name)
    assert Maker("a" * 32, "d" * 8).has_made(name)
    assert not OTHERS.has_made(name)
    assert OURS.has_tried(name, 7)
    assert not OURS.has_tried(name, 8)
    assert not Maker("a" * 32, "d" * 8).has_tried(name, 7)
    assert not OURS.has_made(f"part-00003-{uuid.uuid4()}-c000.snappy.parquet")


def test_a_failed_epoch_is_removed_and_no_other(tmp_path):
    kept = {put(tmp_path, OURS.part_name(6, 0, "csv")), put(tmp_path, OTHERS.part_name(7, 0, "csv"))}
    kept.add(put(tmp_path, Maker("a" * 32, "d" * 8).part_name(7, 0, "csv")))  # of a rival, who may yet commit it
    put(tmp_path, OURS.part_name(7, 0, "csv"))
    remove_attempts(tmp_path, OURS, 7)
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_what_the_log_names_stays_wherever_the_folder_was(tmp_path):
    first, second, third = (put(tmp_path, OURS.part_name(epoch, 0, "csv")) for epoch in range(3))
    partitioned = put(tmp_path, f"k=1/{OURS.part_name(2, 1, 'csv')}")
    log(tmp_path, "1.compact", first, second)
    log(tmp_path, "2", third, partitioned)
    left = [put(tmp_path, OURS.part_name(1, 0, "csv")), put(tmp_path, f"k=1/j=2/{OURS.part_name(2, 0, 'csv')}")]
    left += [put(tmp_path, f"{LOG_FOLDER}/.3.{uuid.uuid4()}.tmp"), put(tmp_path, f"{OURS.staging}1/part-0")]
    put(tmp_path, f"{OTHERS.staging}1/part-0")
    assert swept(tmp_path) == len(left)
    assert not [name for name in left if (tmp_path / name).exists()]
    assert all((tmp_path / name).exists() for name in (first, second, third, partitioned))
    assert (tmp_path / f"{OTHERS.staging}1" / "part-0").exists()


@pytest.mark.parametrize("damage", ["missing", "gap", "first", "torn"])
def test_a_log_that_is_not_whole_proves_nothing(tmp_path, damage):
    names = [put(tmp_path, OURS.part_name(epoch, 0, "csv")) for epoch in range(4)]
    for epoch, name in enumerate(names[:3]):
        log(tmp_path, str(epoch), name)
    entries = {"gap": "1", "first": "0", "torn": "1"}
    if damage == "missing":
        for entry in (tmp_path / LOG_FOLDER).iterdir():
            entry.unlink()
    elif damage == "torn":
        (tmp_path / LOG_FOLDER / entries[damage]).write_bytes(b'v1\n{"path":')
    else:
        (tmp_path / LOG_FOLDER / entries[damage]).unlink()
    assert swept(tmp_path) == 0
    assert all((tmp_path / name).exists() for name in names)
