"""Log entries of Spark's: which are whole, and which are removed before Spark reads them."""

import zlib
from pathlib import Path

import pytest

from watersmeet.state.log_folder import LogFolder
from watersmeet.state.spark_log_sync import SparkLogSync

WIDTH = 512


def write(folder: Path, name: str, data: bytes, *, with_checksum: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    if with_checksum:
        sums = [zlib.crc32(data[i : i + WIDTH]).to_bytes(4, "big") for i in range(0, len(data), WIDTH)]
        (folder / f".{name}.crc").write_bytes(b"crc\0" + WIDTH.to_bytes(4, "big") + b"".join(sums))


@pytest.fixture
def logs(tmp_path) -> Path:
    """Two batches over two sources, both planned, and the first done."""
    for batch in range(2):
        write(tmp_path / "offsets", str(batch), b'v1\n{}\n{"logOffset":%d}\n{"logOffset":0}' % batch)
        write(tmp_path / "sources" / "0", str(batch), b"v1\n{}")
    write(tmp_path / "sources" / "1", "0", b"v1\n{}")
    write(tmp_path / "commits", "0", b"v1\n{}")
    write(tmp_path, "metadata", b'{"id":"x"}')
    return tmp_path


def entries(logs: Path) -> list[str]:
    return sorted(str(path.relative_to(logs)) for path in logs.rglob("*") if path.is_file() and path.name.isdigit())


ALL = ["commits/0", "offsets/0", "offsets/1", "sources/0/0", "sources/0/1", "sources/1/0"]


@pytest.mark.parametrize("change", [lambda d: b"", lambda d: d[:WIDTH], lambda d: bytes(len(d)), lambda d: d + b"x"])
def test_an_entry_is_whole_if_it_has_the_bytes_of_its_checksum(tmp_path, change):
    log, data = LogFolder(tmp_path), b"v1\n" + b"{}\n" * 400
    write(tmp_path, "9.compact", data)
    assert log.entry(9) == "9.compact"
    assert log.is_whole("9.compact")
    (tmp_path / "9.compact").write_bytes(change(data))
    assert not log.is_whole("9.compact")
    write(tmp_path, "10", data, with_checksum=False)
    assert not log.is_whole("10")
    assert not log.is_whole("11")


@pytest.mark.parametrize("last_batch", [None, 0, 1])
def test_logs_that_are_whole_stay(logs, last_batch):
    SparkLogSync(logs).mend(last_batch)
    assert entries(logs) == ALL
    assert (logs / "metadata").exists()


@pytest.mark.parametrize("data", [b"", b"v1", bytes(50)], ids=["empty", "short", "zeros"])
def test_a_torn_batch_that_the_state_has_not_seen_is_removed(logs, data):
    (logs / "offsets" / "1").write_bytes(data)
    (logs / "commits" / "0").write_bytes(data)
    SparkLogSync(logs).mend(0)
    assert entries(logs) == ["offsets/0", "sources/0/0", "sources/0/1", "sources/1/0"]
    assert not (logs / "offsets" / ".1.crc").exists()


def test_a_batch_goes_with_the_part_that_a_source_has_lost(logs):
    (logs / "sources" / "0" / "1").write_bytes(b"v1")
    SparkLogSync(logs).mend(0)
    assert entries(logs) == ["commits/0", "offsets/0", "sources/0/0", "sources/1/0"]
    (logs / "sources" / "1" / "0").unlink()
    SparkLogSync(logs).mend(None)
    assert entries(logs) == ["commits/0", "sources/0/0"]


def test_what_the_state_rests_on_is_never_removed(logs):
    """It was synced before: that it is torn is damage, and not for us to hide."""
    (logs / "offsets" / "1").write_bytes(b"")
    (logs / "sources" / "1" / "0").write_bytes(b"")
    SparkLogSync(logs).mend(1)
    assert entries(logs) == ALL
    (logs / "sources" / "0" / "0").write_bytes(b"")
    SparkLogSync(logs).mend(0)
    assert entries(logs) == [name for name in ALL if name != "offsets/1"]


def test_without_checksums_a_batch_after_the_state_is_planned_again(logs):
    """A power cut may leave half of an entry, and nothing of its checksum."""
    for checksum in logs.rglob(".*.crc"):
        checksum.unlink()
    SparkLogSync(logs).mend(1)
    assert entries(logs) == ALL
    (logs / "commits" / "0").write_bytes(bytes(7))
    SparkLogSync(logs).mend(0)
    assert entries(logs) == ["offsets/0", "sources/0/0", "sources/1/0"]


@pytest.fixture
def named(tmp_path) -> Path:
    """Source b was dropped before batch 1, and source c was added with it."""
    for batch, text in enumerate((b'a:{"logOffset":0}\nb:{"logOffset":0}', b'a:{"logOffset":1}\nc:{"logOffset":0}')):
        write(tmp_path / "offsets", str(batch), b"v2\n{}\n" + text)
    for name in ("a/0", "a/1", "b/0", "c/0"):
        write(tmp_path / "sources" / name[0], name[2], b"v1\n{}")
    write(tmp_path, "metadata", b'{"id":"x"}')
    return tmp_path


OF_NAMED = ["offsets/0", "offsets/1", "sources/a/0", "sources/a/1", "sources/b/0", "sources/c/0"]


@pytest.mark.parametrize(
    ("torn", "last_batch", "gone"),
    [
        (None, 0, []),
        ("sources/c/0", 0, ["offsets/1", "sources/c/0"]),  # the state does not know of c yet
        ("sources/c/0", 1, []),
        ("sources/a/0", 0, []),
        ("offsets/1", 0, ["offsets/1"]),
    ],
)
def test_logs_of_named_sources_are_mended(named, torn, last_batch, gone):
    if torn is not None:
        (named / torn).write_bytes(b"v")
    SparkLogSync(named).mend(last_batch)
    assert entries(named) == [name for name in OF_NAMED if name not in gone]


def test_logs_of_named_sources_are_synced(named, monkeypatch):
    synced = []
    monkeypatch.setattr(LogFolder, "sync", lambda log, names: synced.extend((log.folder.name, n) for n in names))
    SparkLogSync(named).sync()
    assert {("a", "1"), ("b", "0"), ("c", "0"), ("offsets", "1")} <= set(synced)


@pytest.mark.parametrize(
    ("sources", "last_batch", "is_there"),
    [((), 0, True), ("ac", 0, True), ("a", 0, False), ("abc", 0, False), ("ab", 1, True)],
)
def test_a_batch_that_was_planned_for_other_sources_is_planned_again(named, sources, last_batch, is_there):
    SparkLogSync(named).mend(last_batch, sources)
    assert ("offsets/1" in entries(named)) is is_there
    assert entries(named)[-4:] == OF_NAMED[-4:]
