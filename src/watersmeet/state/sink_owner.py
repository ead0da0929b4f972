"""The owner of a file sink's folder: one checkpoint, for as long as the log of the folder exists.

The log counts epochs of that checkpoint. A second query would find its own first epochs in the log and skip them. So
the first query creates a mark in the log's folder, exclusively; readers ignore it. A query that finds the mark of
another checkpoint is refused before it writes anything.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from watersmeet.errors import SinkError

MARK = ".watersmeet"


@dataclass(frozen=True, slots=True)
class Owner:
    """A checkpoint, by its uid, with its location and query name when it took the folder."""

    checkpoint: str
    location: str
    query: str

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    def require(self, path: str, mark: str, found: bytes) -> None:
        """Refuse the folder at `path` if the mark found in it is of another checkpoint."""
        try:
            other = Owner(**json.loads(found))
        except (ValueError, TypeError):
            raise SinkError(
                f"{mark}, which says whose output {path} is, cannot be read",
                hint="remove it if the folder is the output of this query, or choose another path",
            ) from None
        if other.checkpoint != self.checkpoint:
            raise SinkError(
                f"{path} holds the output of another query ('{other.query}', checkpoint {other.location})",
                hint="choose an empty path, or continue that query with its checkpointLocation; if it never wrote "
                f"anything and is gone for good, remove {mark}",
            )
