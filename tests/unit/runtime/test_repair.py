"""What `watersmeet repair` says of a checkpoint and does to it: real checkpoints, of the in-process runner.

Golden texts in tests/golden/repair; if one is meant to change: WATERSMEET_GOLDEN=write.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.oracle import canonical
from tests.tearing import LOG, STATE, TEARS, copied, last_in, lose_last
from watersmeet.cli import main
from watersmeet.errors import CheckpointError
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime import inprocess_log
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.repair import apply, look
from watersmeet.state import spark_log
from watersmeet.state.checkpoint import Checkpoint

GOLDEN = Path(__file__).parents[2] / "golden" / "repair"
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
QUERY = build_query(
    [Stream(name, SCHEMA, "ts") for name in "ab"], where=["a.k = b.k"], within="1 hour", windows={}, select=["a.k"]
)
BATCHES = 4
REPAIRABLE = {"no-offsets": "put-back", "no-end": "put-back", "no-log": "put-back", "another-log": "put-back"} | {
    "older-log": "put-back",
    "older-state": "rewind",
}


def batch(number: int) -> dict[str, pa.Table]:
    rows = pa.table(
        [pa.array([number % 2, 7]), pa.array([number, number]).cast(SCHEMA.field("ts").type)], schema=SCHEMA
    )
    return {"a": rows, "b": rows}


def run(checkpoint: Path, numbers: range) -> list[pa.Table]:
    """The results of the batches."""
    engine = InProcessQuery(QUERY, checkpoint, partitions=4)
    return [engine.run(batch(number)) for number in numbers]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint after some batches, and a backup that was made of it two batches earlier."""
    run(tmp_path / "ck", range(2))
    copied(tmp_path / "ck", tmp_path / "older")
    run(tmp_path / "ck", range(2, BATCHES))
    return tmp_path


def of_files(checkpoint: Path) -> None:
    """Spark's log is that of a query over a file source, and the manifest names its offsets."""
    offsets = checkpoint / LOG / "offsets"
    (checkpoint / LOG / "sources" / "0").mkdir(parents=True)
    for path in offsets.iterdir():
        path.write_text(path.read_text().replace('{"batch":', '{"logOffset":'))
        (checkpoint / LOG / "sources" / "0" / path.name).touch()
    last = last_in(offsets)
    [manifest] = (checkpoint / STATE / "manifests").iterdir()
    value = json.loads(manifest.read_bytes())
    named = spark_log.SparkLog(checkpoint / LOG).offsets(last)
    assert named is not None
    manifest.write_text(unchecked(value | {"offsets": [named.query, named.hash, named.text]}))


def said(checkpoint: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command; names that differ from run to run are replaced."""
    code = main(["repair", str(checkpoint), *arguments])
    given = capsys.readouterr()
    query = spark_log.SparkLog(checkpoint / LOG).query()
    named = Checkpoint(checkpoint).ending()
    text = (given.out + given.err).replace(str(checkpoint.parent), "/data")
    for name, shown in ((query, "ID-OF-LOG"), (named.offsets.query if named and named.offsets else "", "ID-OF-STATE")):
        text = text.replace(name, shown) if name else text
    return code, text


def unchecked(value: dict) -> str:
    """A manifest as a build without checksums wrote it."""
    return json.dumps({name: v for name, v in value.items() if name != "crc"} | {"features": []})


def golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def contents(checkpoint: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(checkpoint)): path.read_bytes()
        for path in checkpoint.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def test_a_sound_checkpoint_needs_no_repair(folder: Path, capsys: pytest.CaptureFixture[str]):
    code, text = said(folder / "ck", capsys)
    golden("sound", text)
    assert code == 0


def test_a_batch_that_was_planned_and_not_joined_is_in_order(folder: Path):
    inprocess_log.LogInFiles(Checkpoint(folder / "ck").spark_log).plan(BATCHES)
    assert look(Checkpoint(folder / "ck")).difference is None


@pytest.mark.parametrize("how", sorted(TEARS.keys() - {"no-manifests"}))
def test_what_is_wrong_and_what_can_be_done_is_said_and_nothing_is_changed(
    folder: Path, capsys: pytest.CaptureFixture[str], how: str
):
    TEARS[how](folder / "ck", folder / "older")
    torn = contents(folder / "ck")
    code, text = said(folder / "ck", capsys)
    golden(how, text)
    assert code == 1
    assert contents(folder / "ck") == torn


def test_lost_manifests_are_named_with_the_cure(folder: Path):
    """The acknowledgement tells that there were some."""
    TEARS["no-manifests"](folder / "ck", folder / "older")
    torn = contents(folder / "ck")
    with pytest.raises(CheckpointError, match="it is missing, and so are later ones, though its results were sent"):
        look(Checkpoint(folder / "ck"))
    assert contents(folder / "ck") == torn


@pytest.mark.parametrize("how", REPAIRABLE)
def test_after_a_repair_the_query_goes_on_as_was_said(folder: Path, capsys: pytest.CaptureFixture[str], how: str):
    TEARS[how](folder / "ck", folder / "older")
    code, text = said(folder / "ck", capsys, "--apply", REPAIRABLE[how])
    assert code == 0, text
    assert text.endswith(
        "\n\ndone: start the query again. What was taken out of Spark's log is in /data/ck/repaired-1\n"
    )
    numbers = range(2 if REPAIRABLE[how] == "rewind" else BATCHES, BATCHES + 1)
    found = pa.concat_tables(run(folder / "ck", numbers))
    sound = pa.concat_tables(run(folder / "afresh", range(BATCHES + 1))[numbers.start :])
    assert canonical(found) == canonical(sound)


def test_what_is_taken_out_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]):
    TEARS["older-state"](folder / "ck", folder / "older")
    before = contents(folder / "ck")
    said(folder / "ck", capsys, "--apply", "rewind")
    after = contents(folder / "ck")
    assert {name.removeprefix("repaired-1/"): data for name, data in after.items()} == before
    assert {name for name in after if name.startswith("repaired")} == {
        f"repaired-1/spark/{log}/{number}" for log in ("offsets", "commits") for number in (2, 3)
    }
    TEARS["another-log"](folder / "ck", folder / "older")
    said(folder / "ck", capsys, "--apply", "put-back")
    assert (folder / "ck" / "repaired-2" / "spark" / "metadata").exists()


def source_log_lost(checkpoint: Path) -> None:
    lose_last(checkpoint / LOG / "offsets", checkpoint / LOG / "sources" / "0")


def source_log_short(checkpoint: Path) -> None:
    lose_last(checkpoint / LOG / "sources" / "0")


def made_anew(checkpoint: Path) -> None:
    path = checkpoint / LOG / "offsets" / str(BATCHES - 1)
    path.write_text(path.read_text().replace("batchTimestampMs", "anew"))


def query_renamed(checkpoint: Path) -> None:
    TEARS["another-log"](checkpoint, checkpoint)


def offsets_lost(checkpoint: Path) -> None:
    lose_last(checkpoint / LOG / "offsets")


@pytest.mark.parametrize(
    ("tear", "obstacle"),
    [
        (source_log_lost, "the log of file source 0 ends too early, and there is no copy of it"),
        (source_log_short, "the log of file source 0 ends too early, and there is no copy of it"),
        (made_anew, "file source 0 has listed other files for batch 3"),
        (query_renamed, "file source 0 needs its own log, and this is another query's"),
        (offsets_lost, None),
    ],
)
def test_a_file_source_needs_its_own_log(folder: Path, tear: Callable[[Path], None], obstacle: str | None):
    of_files(folder / "ck")
    checkpoint = Checkpoint(folder / "ck")
    assert look(checkpoint).difference is None
    tear(folder / "ck")
    found = look(checkpoint)
    assert found.difference is not None
    assert found.way is not None
    assert found.way.obstacle == obstacle
    if obstacle is None:
        apply(checkpoint, found, "put-back")
        assert look(checkpoint).difference is None


def test_what_cannot_be_done_is_not_done(folder: Path, capsys: pytest.CaptureFixture[str]):
    of_files(folder / "ck")
    source_log_lost(folder / "ck")
    torn = contents(folder / "ck")
    code, text = said(folder / "ck", capsys, "--apply", "put-back")
    golden("obstacle", text)
    assert code == 1
    code, text = said(folder / "ck", capsys, "--apply", "rewind")
    assert (code, contents(folder / "ck")) == (1, torn)
    assert "rewind is no way here. without --apply, repair says what can be done" in text


def test_offsets_that_are_too_long_to_be_kept_are_compared_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(spark_log, "TEXT_BYTES_MAX", 10)
    run(tmp_path / "ck", range(2))
    checkpoint = Checkpoint(tmp_path / "ck")
    assert look(checkpoint).difference is None
    path = tmp_path / "ck" / LOG / "offsets" / "1"
    path.write_text(path.read_text().replace('"batch":1', '"batch":2'))
    found = look(checkpoint)
    assert found.difference == "Spark has made another batch 1 than the one in the state"
    assert found.way is not None
    assert found.way.obstacle == "the manifest has no copy of the offsets"


def test_a_checkpoint_in_use_is_left_alone(folder: Path, capsys: pytest.CaptureFixture[str]):
    checkpoint = Checkpoint(folder / "ck")
    checkpoint.acquire("query 'q'")
    try:
        code, text = said(folder / "ck", capsys)
    finally:
        checkpoint.release()
    assert code == 1
    assert "is in use by query 'q'" in text


def test_what_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, text = said(tmp_path / "ck", capsys)
    assert (code, (tmp_path / "ck").exists()) == (1, False)
    assert "there is no checkpoint in /data/ck. name the checkpointLocation of the query" in text


def test_state_that_names_no_offsets_is_tied_by_its_number(folder: Path):
    [manifest] = (folder / "ck" / STATE / "manifests").iterdir()
    value = json.loads(manifest.read_bytes())
    del value["offsets"]
    manifest.write_text(unchecked(value))
    assert look(Checkpoint(folder / "ck")).difference is None
    run(folder / "ck", range(BATCHES, BATCHES + 1))
    ending = Checkpoint(folder / "ck").ending()
    assert ending is not None
    assert ending.offsets is not None
    manifest.unlink(missing_ok=True)
    shutil.rmtree(folder / "ck" / LOG)
    assert look(Checkpoint(folder / "ck")).difference == "the state ends with batch 4, but Spark's log is empty"
