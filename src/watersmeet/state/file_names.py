"""The names of files in a checkpoint.

A name that is read from a file must match one of these before it is used as a path. Files with other names are not
ours: they are neither read nor removed.
"""

from __future__ import annotations

import re

TEMPORARY = ".tmp-"
SCRATCH = ".scratch-"
OF_FORMAT_1 = "trial"
"""A folder whose files only manifests of format 1 name."""
COMMITTED = re.compile(r"[0-9]{12}\.json")
ACKNOWLEDGED = re.compile(r"[0-9]{12}")
SEGMENT = re.compile(r"[0-9]+-[0-9]+-[0-9]+-[0-9a-z]+-[0-9]+\.seg")
RESULTS = re.compile(r"part-[0-9]{5,}-[0-9a-f-]{36,60}-c000\.[a-z0-9]+\.parquet")
ATTEMPTS = ".attempts"
TASKS = re.compile(rf"[0-9]+-[0-9a-f]{{32}}|[0-9a-f]{{32}}{re.escape(ATTEMPTS)}")
"""The task file of a job, and the folder in which a driver's attempts announce segments (`state/attempts.py`)."""
LEARNED = re.compile(r"[0-9a-z][0-9a-z_-]*\.json")
"""A file in the folder of format 1."""
FILES = {"segments": SEGMENT, "outbox": RESULTS, "manifests": COMMITTED, "acks": ACKNOWLEDGED, "tasks": TASKS}
"""By folder of the checkpoint."""
_LEFT_OVER = re.compile(rf"({re.escape(TEMPORARY)}|{re.escape(SCRATCH)})[0-9a-z_.-]+|{OF_FORMAT_1}")


def is_left_over(name: str) -> bool:
    """Whether the file is a leftover of an attempt or of format 1."""
    return _LEFT_OVER.fullmatch(name) is not None


def is_folder_of_ours(name: str) -> bool:
    """Whether this is the name of a folder that may be removed with its contents."""
    return name.startswith(SCRATCH) or name == OF_FORMAT_1 or name.endswith(ATTEMPTS)


def committed_name(epoch: int) -> str:
    return f"{epoch:012d}.json"


def acknowledged_name(epoch: int) -> str:
    return f"{epoch:012d}"


def slot_of(segment: str) -> int:
    """The slot that has written a segment."""
    return int(segment.split("-", 3)[2])
