"""Requests to a running query from other processes: empty files in `requests/` of the checkpoint, by name.

    approve-0f3a...   32 random hex digits, so that no two requests have the same name

The driver takes them at the end of every epoch: it reads the names, removes the files, and never opens one. Names that
it does not know, and anything that is not a plain file, stay where they are. The folder is closed to other users.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from pathlib import Path

from watersmeet.errors import OptionError
from watersmeet.state.plain_files import open_new, plain_status, require_real_folder
from watersmeet.state.storage import names, writing

APPROVE = "approve"
_NAME = re.compile(rf"(?P<verb>{APPROVE})-[0-9a-f]{{32}}")


def put_request(location: Path, verb: str) -> None:
    """Leave a request for the query that runs on a checkpoint location."""
    folder = location / "watersmeet"
    if not folder.is_dir():
        raise OptionError(f"there is no checkpoint in {location}", hint="name the checkpointLocation of the query")
    path = folder / "requests" / f"{verb}-{uuid.uuid4().hex}"
    with writing(path):
        require_real_folder(path.parent)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        open_new(path).close()


def take_requests(folder: Path) -> list[str]:
    """The requests in a folder, which are removed. None if it cannot be read: requests are wishes, not state."""
    found = []
    with suppress(OSError):
        require_real_folder(folder)
        for name in names(folder):
            if (known := _NAME.fullmatch(name)) is not None:
                with suppress(OSError):
                    plain_status(folder / name)
                    (folder / name).unlink()
                    found.append(known["verb"])
    return found
