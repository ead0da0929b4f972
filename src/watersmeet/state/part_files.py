"""Names of part files in a sink's folder: they contain the owner, so that leftover files can be recognised.

    part-00003-<checkpoint>-<epoch>-<run><attempt>-c000.snappy.parquet
               12           8       8    12 digits, hexadecimal

A file with the name of a checkpoint was made for it, and for an epoch of it, by an attempt in one run of its driver.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path

_DIGITS = 12
_NAME = re.compile(r"part-\d{5,}-([0-9a-f]{12})-([0-9a-f]{8,})-([0-9a-f]{8})[0-9a-f]{12}-c000\..+")


@dataclass(frozen=True, slots=True)
class Maker:
    """Who makes part files: a checkpoint, by its uid, and a run of its driver."""

    checkpoint: str = "0" * _DIGITS
    run: str = "0" * 8

    def part_name(self, epoch: int, number: int, suffix: str) -> str:
        """A name that no other attempt uses."""
        attempt = uuid.uuid4().hex[:12]
        return f"part-{number:05d}-{self._short}-{epoch:08x}-{self.run[:8]}{attempt}-c000.{suffix}"

    def has_made(self, name: str) -> bool:
        """Whether the file was made for the checkpoint, in any run."""
        found = _NAME.fullmatch(name)
        return found is not None and found[1] == self._short

    def has_tried(self, name: str, epoch: int) -> bool:
        """Whether the file was made by an attempt at an epoch in this run."""
        found = _NAME.fullmatch(name)
        return found is not None and found.groups() == (self._short, f"{epoch:08x}", self.run[:8])

    @property
    def staging(self) -> str:
        """The prefix of folder names in which files of the checkpoint are written before they become part files."""
        return f".watersmeet-{self._short}-"

    @property
    def _short(self) -> str:
        return self.checkpoint[:_DIGITS]


ANYBODY = Maker()
"""The maker where the owner of files does not matter."""


def remove_attempts(folder: Path, maker: Maker, epoch: int) -> None:
    """Remove all files of attempts at a failed epoch in this run; no manifest will name them."""
    for path in folder.glob("part-*"):
        if maker.has_tried(path.name, epoch):
            path.unlink(missing_ok=True)
