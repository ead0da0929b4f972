"""Whatever is done to a file of a checkpoint: the same results or one clear error, and nothing outside is touched.

`WATERSMEET_EXAMPLES=2000 pytest tests/properties/test_damaged_checkpoints.py` is the long run: so many flipped bits, in
every kind of file. What each attack of the matrix comes to, with the text of the error, is in
tests/golden/damage/matrix.txt; `UPDATE_GOLDEN=1` writes it anew.
"""

import os
import random
import re
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.damage import (
    DAMAGES,
    FILES,
    FOLDER_DAMAGES,
    FOLDERS,
    STATES,
    Attacked,
    expected,
    flip,
    looks,
    make,
    query,
)
from tests.damage_mutants import DAMAGE_MUTANTS
from tests.effort import examples
from watersmeet.errors import CheckpointError

FLIPS = examples(48) // len(FILES)
MATRIX = Path(__file__).parents[1] / "golden" / "damage" / "matrix.txt"


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Power cuts are another test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def right():
    return expected()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """By state: a folder with a checkpoint, and its sink."""
    folders = {state: tmp_path_factory.mktemp(state) for state in STATES}
    return {state: (folder, make(folder, state)) for state, folder in folders.items()}


def plainly(text: str, folder: Path) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(folder), "")
    text = re.sub(r"[0-9]+-[0-9]+-[0-9]+-[0-9a-f]+-[0-9]+\.seg", "SEGMENT", text)
    text = re.sub(r"part-[0-9a-f-]+-c000\.snappy\.parquet", "RESULTS", text)
    return re.sub(r"has [0-9]+ bytes instead of [0-9]+", "has N bytes instead of M", text)


def recorded(section: str, found: dict[str, str]) -> str:
    """The outcomes of a file's damages, by what they come to."""
    by_outcome = defaultdict(list)
    for damage, outcome in found.items():
        by_outcome[outcome].append(damage)
    lines = [f"== {section}"]
    for outcome, damages in by_outcome.items():
        lines += [outcome, *(f"    {damage}" for damage in damages)]
    return "\n".join(lines) + "\n"


def golden(section: str, found: dict[str, str]) -> tuple[str, str]:
    """What was recorded of a section, and what is found now."""
    text = recorded(section, found)
    sections = dict.fromkeys(
        re.findall(r"^== .*?(?=^== |\Z)", MATRIX.read_text() if MATRIX.exists() else "", re.M | re.S)
    )
    named = {part.splitlines()[0]: part.rstrip("\n") + "\n" for part in sections}
    if os.environ.get("UPDATE_GOLDEN"):
        named[text.splitlines()[0]] = text
        MATRIX.write_text("\n".join(named[name] for name in sorted(named)))
    return named.get(text.splitlines()[0], ""), text


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("file", FILES)
def test_damage_to_a_file(made, right, tmp_path, state, file):
    found = {}
    for damage, inflict in DAMAGES.items():
        attacked = Attacked(*made[state], tmp_path / damage)
        inflict(FILES[file](attacked.ours), attacked.outside)
        found[damage] = plainly(attacked.outcome(right), tmp_path / damage)
    before, now = golden(f"{file}, {state}", found)
    assert before == now


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_link_or_a_file_in_place_of_a_folder(made, right, tmp_path, folder):
    found = {}
    for damage, inflict in FOLDER_DAMAGES.items():
        attacked = Attacked(*made["unsent"], tmp_path / damage)
        path = attacked.ours / folder
        if path.is_dir():
            path.rename(attacked.ours.parent / "away")
        inflict(path, attacked.outside)
        found[damage] = plainly(attacked.outcome(right), tmp_path / damage)
    before, now = golden(f"folder {folder or 'watersmeet'}", found)
    assert before == now


@pytest.mark.parametrize("mutant", DAMAGE_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_without_a_check_some_attack_comes_to_something_else(made, right, tmp_path, mutant):
    state, file, damage = DAMAGE_MUTANTS[mutant]
    outcomes = []
    for name, applied in (("checked", nullcontext()), ("unchecked", mutant.applied())):
        attacked = Attacked(*made[state], tmp_path / name)
        DAMAGES[damage](FILES[file](attacked.ours), attacked.outside)
        with applied:
            try:
                outcomes.append(plainly(attacked.outcome(right), tmp_path / name))
            except Exception as error:
                outcomes.append(type(error).__name__)
    assert outcomes[0].startswith(("[", "the same results"))
    assert outcomes[0] != outcomes[1]


FOREIGN = (
    ".nfs0001",
    "000000000009.json~",
    "999999999999.json.bak",
    "x.json.swp",
    ".000000000009.json.swo",
    "notes",
    "9",
)


@pytest.mark.parametrize("state", STATES)
def test_files_of_others_are_neither_read_nor_removed(made, right, tmp_path, state):
    attacked = Attacked(*made[state], tmp_path / "at")
    planted = [attacked.ours / folder / name for folder in FOLDERS[:5] for name in FOREIGN]
    for path in planted:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"somebody else's")
    assert attacked.outcome(right) == "the same results"
    assert all(path.read_bytes() == b"somebody else's" for path in planted)


def test_links_among_what_is_swept_lead_nowhere(made, right, tmp_path):
    """Names of ours that no manifest has: the links go, and what they lead to stays."""
    attacked = Attacked(*made["unsent"], tmp_path / "at")
    links = {
        "segments/9-0-0-abc-0.seg": "file",
        "segments/.scratch-abc": "folder",
        "acks/000000000000": "file",
        "tasks/1-0123456789abcdef0123456789abcdef": "folder",
        ".tmp-abc": "folder",
    }
    for name, target in links.items():
        (attacked.ours / name).parent.mkdir(exist_ok=True)
        (attacked.ours / name).symlink_to(attacked.outside / target)
    (attacked.ours / "segments" / "8-0-0-abc-0.seg").mkdir()
    assert attacked.outcome(right) == "the same results"
    assert not [name for name in links if (attacked.ours / name).is_symlink()]


@pytest.mark.parametrize("file", FILES)
def test_flipped_bits(made, right, tmp_path, file):
    """A bit of a file that results depend on is never flipped unnoticed."""
    rng = random.Random(f"{file} {FLIPS}")
    for number in range(FLIPS):
        attacked = Attacked(*made["unsent"], tmp_path / str(number))
        path = FILES[file](attacked.ours)
        if path.stat().st_size == 0:
            return
        flip(path, rng)
        outcome = attacked.outcome(right)
        if file in ("last manifest", "segment", "results"):
            assert outcome.startswith(("[CHECKPOINT_DAMAGED]", "[CORRUPT_SEGMENT]"))
        else:
            assert outcome == "the same results"


def test_every_region_of_a_manifest_is_checked(made, tmp_path):
    """600 flipped bits, spread evenly: all are refused by the one error, before anything is written."""
    attacked = Attacked(*made["unsent"], tmp_path / "at")
    path = FILES["last manifest"](attacked.ours)
    whole = path.read_bytes()
    attacked.run.open()
    before = looks(attacked.ours)
    for number in range(600):
        content = bytearray(whole)
        content[number * len(whole) // 600] ^= 1 << (number % 8)
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as refused:
            attacked.run.open()
        assert refused.value.error_class == "CHECKPOINT_DAMAGED"
        assert path.name in refused.value.message
    path.write_bytes(whole)
    after = looks(attacked.ours)
    assert {name: content for name, (content, _) in before.items()} == {name: c for name, (c, _) in after.items()}


def test_another_query_does_not_pass_whatever_is_done_to_query_json(made, tmp_path):
    for damage, inflict in DAMAGES.items():
        attacked = Attacked(*made["acknowledged"], tmp_path / damage)
        inflict(attacked.ours / "query.json", attacked.outside)
        with pytest.raises(CheckpointError):
            attacked.run.open(query("20 seconds"))
