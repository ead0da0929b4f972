"""The memory tier of a run: a folder on a tmpfs that does not outlive the driver.

Every run of a query has its own folder, `<memoryLocation>/watersmeet-<checkpoint>-<run>`. Nobody can guess the name,
because both parts are random, and the folder is private (`state/private_folder.py`). Its files are removed when the
query ends. A one-line shell process waits for the end of its standard input, which only the driver holds open. It then
removes the folder, and the files too if the driver was killed. The holder of the checkpoint's lock knows that all other
runs on that checkpoint are dead, and removes their folders: on the driver's host at the start, on executors' hosts in
the first task. Only folders of this user are removed, and in them only files with watersmeet's names.

Known limitation: on a host that runs executors only, the folder of a killed query stays until the query is restarted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from watersmeet.errors import OptionError, WatersmeetError
from watersmeet.state.host_cap import LOCK, RAN
from watersmeet.state.host_sweep import MARKER
from watersmeet.state.private_folder import PARTIAL, PrivateFolder, make_private
from watersmeet.state.tiers import SUFFIX
from watersmeet.units import format_bytes

DEFAULT_LOCATION = "/dev/shm"
PREFIX = "watersmeet-"
OURS = (f"*{SUFFIX}", f"*{PARTIAL}", f"{MARKER}*", f"{RAN}*", LOCK)
"""Names of files of a run, as patterns."""
SHARE_OF_FREE = 2
"""Without a budget, all slots together may use the free memory at the start, divided by this."""


def run_folder(location: str, query_id: str, run_id: str) -> Path | None:
    """The folder of a run; None when the default location does not exist (not every system has a tmpfs there)."""
    root = _root(location)
    return None if root is None else root.absolute() / f"{PREFIX}{query_id}-{run_id}"


def budget_per_slot(location: str, slots: int, given_bytes: int | None) -> int | None:
    """The memory budget of a slot: as given, or its share of the memory free now; None when there is no tmpfs."""
    if given_bytes is not None:
        return given_bytes
    root = _root(location)
    return None if root is None else shutil.disk_usage(root).free // SHARE_OF_FREE // slots


def require_room(folder: Path | None, slots: int, budget_bytes: int | None) -> None:
    """Refuse a budget that the tmpfs cannot hold."""
    if folder is None or budget_bytes is None:
        return
    root = folder.parent
    free = shutil.disk_usage(root).free
    if budget_bytes * slots > free:
        raise OptionError(
            f"memoryBudget {format_bytes(budget_bytes)} x {slots} slots do not fit into {root}: "
            f"{format_bytes(free)} are free",
            hint="lower memoryBudget or slots, or name a larger tmpfs with memoryLocation",
        )


def _root(location: str) -> Path | None:
    root = Path(location)
    if not root.is_dir():
        if location == DEFAULT_LOCATION:
            return None
        raise OptionError(f"memoryLocation {location} is not a folder", hint="name a mounted tmpfs, such as /dev/shm")
    if not os.access(root, os.W_OK):
        raise OptionError(
            f"memoryLocation {location} is not writable", hint="name another tmpfs, or make it writable for your user"
        )
    return root


def claim(folder: Path) -> IO[bytes]:
    """Make the folder, remove folders of dead runs, and start the process that removes this one when the driver ends.

    Close the returned file to let that process remove the folder.
    """
    remove_other_runs(folder)
    try:
        make_private(folder)
    except OSError as error:
        raise OptionError(
            f"cannot make a folder in memoryLocation {folder.parent}: {error.strerror}",
            hint="make room there, or name another tmpfs with memoryLocation",
        ) from error
    # The process works inside the folder, so it removes these files even if the folder's name has a new owner by then.
    # It removes twice, with a pause, because tasks of a killed driver may write for a moment longer.
    ours = " -o ".join(f"-name '{pattern}'" for pattern in OURS)
    empty = f"find . ! -name . -prune -type f \\( {ours} \\) -exec rm -f {{}} +"
    work = f'cat <&3 >/dev/null; {empty}; sleep 3; {empty}; cd /; rmdir "$0"'
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", f"exec 3<&0; ({work}) >/dev/null 2>&1 &", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=folder,
    )
    watcher.wait()
    assert watcher.stdin is not None
    return watcher.stdin


def remove_other_runs(folder: Path) -> None:
    """Remove folders of earlier runs of the same query."""
    of_query = folder.name.rpartition("-")[0] + "-"
    with suppress(OSError):
        for name in os.listdir(folder.parent):
            if name.startswith(of_query) and name != folder.name:
                remove_run(folder.parent / name)


def remove_run(folder: Path) -> None:
    """Remove the folder of a run; anything that is not our private folder stays."""
    empty_run(folder)
    with suppress(OSError, WatersmeetError):
        PrivateFolder(folder)
        os.rmdir(folder)  # fails if other files are in it


def empty_run(folder: Path) -> None:
    """Remove the files of a run."""
    with suppress(OSError, WatersmeetError):
        opened = PrivateFolder(folder)
        for name in opened.names():
            if any(fnmatchcase(name, pattern) for pattern in OURS):
                opened.remove(name)
