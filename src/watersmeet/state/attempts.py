"""The segments that task attempts of an epoch wrote, so that those no accepted report names are removed with the epoch.

Attempts fail, are repeated, or race each other, and a killed attempt reports nothing. So a segment is written under a
first name in a folder of this driver, its announcement, and gets its name among the segments when it is durable:

    <checkpoint>/watersmeet/tasks/<driver>.attempts/<name of a segment>    the same file

| who         | what it does                                                                                    |
|-------------|-------------------------------------------------------------------------------------------------|
| an attempt  | writes the announcement, gives it its second name, and checks that the announcement still       |
|             | exists; if it does not, the job is over and nobody needs the segment: the attempt removes it    |
|             | and fails                                                                                       |
| the driver  | when a job is over, removes every announcement, and then every announced segment that no        |
|             | accepted report names                                                                           |

So a late segment is removed by the attempt or by the driver, whoever acts second; a late announcement is handled with
the next epoch. The cost depends on the segments written in the epoch: no other segments, and none of another driver,
are looked at. Rows that an attempt sets aside (`engine/work.py`) are in the same folder, and are removed when the job
is over. A driver that takes over sweeps the folders of earlier drivers; their attempts can no longer write.

Known limitation: a segment announced after the last epoch of a driver, or by an attempt that is killed between its last
two steps, stays until the next start of the query.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from watersmeet.errors import CheckpointError, FencedError
from watersmeet.state.storage import Written, remove, write_durably, writing


def begin(folder: Path) -> None:
    """Make the folder: attempts may announce from now on."""
    if not os.path.isdir(folder):
        with writing(folder):
            folder.mkdir(parents=True)


def write_announced(folder: Path, segment: Path, write: Callable[[BinaryIO], Written]) -> Written:
    """Write a segment durably. Raises FencedError, and leaves no segment, if the job is over or another driver has
    taken over."""
    announcement = folder / segment.name
    try:
        if _can_share(folder, segment.parent):
            written = write_durably(segment, write, first_name=announcement)
        else:
            with writing(announcement):
                announcement.touch()
            written = write_durably(segment, write)
    except CheckpointError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _over(segment.name) from None
        raise
    if not os.path.exists(announcement):
        remove(segment)
        raise _over(segment.name)
    assert written is not None
    return written


def _can_share(one: Path, other: Path) -> bool:
    """Whether a file may have a name in both folders: not if they are on different file systems."""
    try:
        return os.stat(one).st_dev == os.stat(other).st_dev
    except FileNotFoundError:
        return True


def end(folder: Path, segments: Path, accepted: Collection[str]) -> int:
    """End a job: remove all segments that were announced and not accepted, and return their number.

    If the system refuses, they stay until the next start of the query: the outcome of the job matters more.
    """
    in_vain = 0
    with suppress(OSError):  # for example if another driver has taken over and swept the folder
        for entry in os.scandir(folder):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
                continue
            os.unlink(entry.path)
            if entry.name not in accepted:
                in_vain += 1
                remove(segments / entry.name)
    return in_vain


def _over(name: str) -> FencedError:
    return FencedError(
        f"segment {name} comes too late: its epoch has ended without it",
        hint="nothing is lost: another attempt at the same task has done the work, or the epoch will be run again",
    )
