"""Damaged and hostile checkpoints on Spark: refused by name or of no account, and nothing outside is touched.

The whole matrix of files and damages runs in process: tests/properties/test_damaged_checkpoints.py.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.damage import looks, plant
from tests.effort import mostly_long
from tests.spark.conftest import BATCHES
from tests.spark.helpers import expected, join_of, output, run, start, write_batches
from tests.spark.refusals import refusal
from watersmeet.errors import CheckpointError
from watersmeet.state.sealed_json import sealed


@pytest.fixture
def half(spark, tmp_path):
    """A query that has joined one of two batches, with canaries beside it: the folder of its state."""
    write_batches(tmp_path, BATCHES[:1])
    run(join_of(spark, tmp_path, "ab"), tmp_path / "out", tmp_path / "ck")
    write_batches(tmp_path, BATCHES[1:], start=1)
    plant(tmp_path / "outside")
    before = looks(tmp_path / "outside")
    yield tmp_path / "ck" / "watersmeet"
    assert looks(tmp_path / "outside") == before


def last_manifest(ours: Path) -> Path:
    return max((ours / "manifests").iterdir())


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def link(path: Path, to: str) -> None:
    """In place of what is there."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(path.parents[2 if path.name != "watersmeet" else 1] / "outside" / to)


ATTACKS = {
    "lock": (lambda ours: link(ours / "lock", "file"), "lock is damaged: it is a symbolic link"),
    "segments": (lambda ours: link(ours / "segments", "folder"), "segments is damaged: it is a symbolic link"),
    "all": (lambda ours: link(ours, "folder"), "watersmeet is damaged: it is a symbolic link"),
    "flip": (lambda ours: flipped(last_manifest(ours)), ".json is damaged: its checksum does not match its bytes"),
    "five": (lambda ours: last_manifest(ours).write_text("5"), ".json is damaged: it is not a JSON object"),
    "none": (lambda ours: shutil.rmtree(ours / "manifests"), ".json is damaged: it is missing"),
    "query": (lambda ours: link(ours / "query.json", "file"), "query.json is damaged: it is a symbolic link"),
}


@pytest.mark.parametrize("attack", mostly_long(ATTACKS, "all", "segments", "lock"))
def test_an_attack_is_refused_by_name(spark, tmp_path, half, attack):
    inflict, says = ATTACKS[attack]
    inflict(half)
    before = output(spark, tmp_path / "out")
    text = refusal(CheckpointError, lambda: start(join_of(spark, tmp_path, "ab"), tmp_path / "out", tmp_path / "ck"))
    assert text.startswith("[CHECKPOINT_DAMAGED] ")
    assert says in text
    assert output(spark, tmp_path / "out") == before


@pytest.mark.parametrize("name", ["../../../outside/file", "/etc/passwd", "..", "a b"])
def test_a_name_in_a_forged_manifest_leads_nowhere(spark, tmp_path, half, name):
    value = json.loads(last_manifest(half).read_bytes())
    del value["crc"]
    value["segments"] = {column: [*value["segments"][column], 1] for column in ("bytes", "crc")} | {
        "name": f"{value['segments']['name']} {name}"
    }
    last_manifest(half).write_bytes(sealed(json.dumps(value).encode()))
    text = refusal(CheckpointError, lambda: start(join_of(spark, tmp_path, "ab"), tmp_path / "out", tmp_path / "ck"))
    assert "not the name of a segment" in text


@pytest.mark.parametrize("damage", ["deleted", "of another query"])
def test_another_window_does_not_pass_without_query_json(spark, tmp_path, half, damage):
    path = half / "query.json"
    if damage == "deleted":
        path.unlink()
    else:
        value = json.loads(path.read_text())
        marks = value["fingerprint"] | {f"window of {name}": "3 minutes" for name in "ab"}
        path.write_bytes(sealed(json.dumps({"format": value["format"], "fingerprint": marks}).encode()))
    other = join_of(spark, tmp_path, "ab", within="3 minutes")
    text = refusal(CheckpointError, lambda: start(other, tmp_path / "out", tmp_path / "ck"))
    assert f"{path} is damaged: it is " in text
    same = join_of(spark, tmp_path, "ab")
    run(same, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(same, BATCHES)
    assert "2 minutes" in path.read_text(), "the file is as it was"


def test_what_nothing_depends_on_is_begun_anew_and_files_of_others_stay(spark, tmp_path, half):
    link(half / "events.jsonl", "file")
    (half / "statistics.arrow").unlink()
    (half / "statistics.arrow").mkdir()
    others = [half / folder / ".nfs0001" for folder in ("manifests", "segments", "acks", "outbox")]
    others += [half / "manifests" / "000000000099.json~", half / "segments" / "notes.bak"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"somebody else's")
    (half / "segments" / "0-0-0-abc-0.seg").symlink_to(tmp_path / "outside" / "file")
    join = join_of(spark, tmp_path, "ab")
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, BATCHES)
    assert all(path.read_bytes() == b"somebody else's" for path in others)
    assert not (half / "segments" / "0-0-0-abc-0.seg").is_symlink()
    assert (half / "statistics.arrow").is_file()
