"""The memory tier of a run: a folder on a tmpfs, and the certainty that it does not outlive the driver.

Every run of a query has a folder of its own, `<memoryLocation>/watersmeet-<uid>/<checkpoint>/<run>`. It is removed
when the query ends; if the driver is killed, a one-line shell process that waits for the end of its standard input,
which only the driver holds open, removes it. Whoever holds the checkpoint's lock also knows that folders of other runs
on that checkpoint are dead, and removes them: on the driver's host at the start, on executors' hosts in the first task.

Known limitation: on a host that runs executors only, the folder of a killed query stays until the query is restarted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import IO

from watersmeet.errors import OptionError

DEFAULT_LOCATION = "/dev/shm"
SHARE_OF_FREE = 2
"""Without a budget, all slots together may use this fraction (one in ...) of what is free at the start."""


def run_folder(location: str, query_id: str, run_id: str) -> Path | None:
    """The folder of a run; None when the default location does not exist (not every system has a tmpfs there)."""
    root = Path(location)
    if not root.is_dir():
        if location == DEFAULT_LOCATION:
            return None
        raise OptionError(f"memoryLocation {location} is not a folder", hint="name a mounted tmpfs, such as /dev/shm")
    if not os.access(root, os.W_OK):
        raise OptionError(f"memoryLocation {location} is not writable")
    return root / f"watersmeet-{os.getuid()}" / query_id / run_id


def budget_within(folder: Path | None, slots: int, budget_bytes: int | None) -> int | None:
    """The budget per slot that the tmpfs can hold; a given budget that cannot fit is refused."""
    if folder is None:
        return budget_bytes
    root = next(parent for parent in folder.parents if parent.exists())
    free = shutil.disk_usage(root).free
    if budget_bytes is None:
        return free // SHARE_OF_FREE // slots
    if budget_bytes * slots > free:
        raise OptionError(
            f"memoryBudget {budget_bytes} bytes x {slots} slots do not fit into {root}: {free} bytes are free",
            hint="lower memoryBudget or slots, or name a larger tmpfs with memoryLocation",
        )
    return budget_bytes


def claim(folder: Path) -> IO[bytes]:
    """Make the folder, remove those of dead runs, and start the process that removes it when we are gone.

    Close what is returned to let that process do its work.
    """
    remove_other_runs(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Twice, with a pause: tasks of a killed driver may write for a moment longer.
    work = 'cat <&3 >/dev/null; rm -rf "$0"; sleep 3; rm -rf "$0"; rmdir "$(dirname "$0")"'
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", f"exec 3<&0; ({work}) >/dev/null 2>&1 &", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    watcher.wait()
    assert watcher.stdin is not None
    return watcher.stdin


def remove_other_runs(folder: Path) -> None:
    """Remove folders of earlier runs of the same query."""
    if folder.parent.is_dir():
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
