"""Ways in which the two parts of a checkpoint, state and Spark's log, come not to belong together any more."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

STATE, LOG = "watersmeet", "spark"


def copied(checkpoint: Path, target: Path) -> Path:
    """A backup of both parts, as far as they are there."""
    target.mkdir(parents=True)
    for part in (STATE, LOG):
        if (checkpoint / part).exists():
            shutil.copytree(checkpoint / part, target / part)
    return target


def put_back(checkpoint: Path, backup: Path, *parts: str) -> None:
    """Parts as they were in the backup."""
    for part in parts or (STATE, LOG):
        shutil.rmtree(checkpoint / part, ignore_errors=True)
        if (backup / part).exists():
            shutil.copytree(backup / part, checkpoint / part)


def last_in(folder: Path) -> int:
    return max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def lose_last(*folders: Path) -> None:
    """The last file of each, and Hadoop's checksum of it."""
    for folder in folders:
        number = last_in(folder)
        (folder / str(number)).unlink()
        (folder / f".{number}.crc").unlink(missing_ok=True)


def rename_query(log: Path) -> None:
    (log / "metadata").write_text(json.dumps({"id": "00000000-0000-0000-0000-000000000000"}))
    (log / ".metadata.crc").unlink(missing_ok=True)


TEARS: dict[str, Callable[[Path, Path], None]] = {
    "no-manifests": lambda here, older: shutil.rmtree(here / STATE / "manifests"),
    "no-state": lambda here, older: shutil.rmtree(here / STATE),
    "older-state": lambda here, older: put_back(here, older, STATE),
    "older-log": lambda here, older: put_back(here, older, LOG),
    "no-offsets": lambda here, older: lose_last(here / LOG / "offsets"),
    "no-end": lambda here, older: lose_last(here / LOG / "offsets", here / LOG / "commits"),
    "no-log": lambda here, older: shutil.rmtree(here / LOG),
    "another-log": lambda here, older: rename_query(here / LOG),
}
"""By name: what happens to a checkpoint, of which there is a copy from a batch before."""
