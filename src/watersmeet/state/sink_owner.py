"""Who writes into the folder of a file sink: one checkpoint, for as long as the log of the folder lives.

The log counts epochs of that checkpoint. A second query would find its own first epochs in there and leave them out:
so the first query to start leaves a mark in the log's folder, made exclusively, which readers do not look at, and
whoever finds the mark of another checkpoint is refused before it writes anything.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from watersmeet.errors import SinkError

MARK = ".watersmeet"


@dataclass(frozen=True, slots=True)
class Owner:
    """A checkpoint, by its uid; where it was and what its query was called when it took the folder."""

    checkpoint: str
    location: str
    query: str

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    def require(self, path: str, mark: str, found: bytes) -> None:
        """Refuse the folder at `path` if the mark that was found in it is that of another checkpoint."""
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
