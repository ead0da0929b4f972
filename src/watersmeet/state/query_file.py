"""`query.json`: the marks that identify the query of a checkpoint, one by one, so that differences can be named.

    {"format": 2, "fingerprint": {name: mark, ...}, "crc": ...}

Every manifest has the hash of these marks. So no other query is accepted if this file is missing, damaged or exchanged;
and if the hash says that the query is the same, the file is written again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from watersmeet.errors import CheckpointError
from watersmeet.query.as_sql import canonical_as_sql
from watersmeet.state.damage import reading
from watersmeet.state.json_shapes import anything, list_of, mapping_of, record, shown, text, whole
from watersmeet.state.manifest_json import FORMAT_1, FORMAT_VERSION
from watersmeet.state.plain_files import read_plain
from watersmeet.state.sealed_json import sealed, unsealed
from watersmeet.state.storage import write_durably

Marks = Mapping[str, str]
_SHAPE = record(
    {"format": anything, "fingerprint": mapping_of(text)},
    optional={"probeOrders": mapping_of(list_of(list_of(whole())))},
)


def hash_of(marks: Marks) -> str:
    return hashlib.sha256(json.dumps(sorted(marks.items())).encode()).hexdigest()[:32]


def difference(name: str, kept: str, asked: str) -> str:
    """A mark of the checkpoint and that of the query, for people."""
    if name == "residual predicates":
        kept, asked = canonical_as_sql(kept), canonical_as_sql(asked)
    return f"{name}: checkpoint has '{kept}', query has '{asked}'"


@dataclass(frozen=True, slots=True)
class Kept:
    """The contents of the file."""

    format: int
    marks: dict[str, str]
    orders: dict[str, list[list[int]]]
    """Probe orders, in format 1."""


def read_marks(path: Path) -> Kept | None:
    """The contents of the file; None if it does not exist. A damaged file or another format is refused by name."""
    with reading(path):
        try:
            data = read_plain(path)
        except FileNotFoundError:
            return None
        value, _ = unsealed(data)
        if "format" in value:
            _require_format(value["format"])
        _SHAPE(value, "")
        return Kept(value["format"], value["fingerprint"], value.get("probeOrders", {}))


def write_marks(path: Path, marks: Marks) -> None:
    """Write these marks, unless the file has them; refused if the path is not a plain file."""
    content = sealed(json.dumps({"format": FORMAT_VERSION, "fingerprint": dict(marks)}).encode())
    with reading(path):
        try:
            if read_plain(path) == content:
                return
        except FileNotFoundError:
            pass
    write_durably(path, lambda file: file.write(content), replace=True)


def _require_format(found: object) -> None:
    if found not in (FORMAT_1, FORMAT_VERSION):
        raise CheckpointError(
            f"the checkpoint has format {shown(str(found))}, this watersmeet reads format {FORMAT_VERSION}",
            hint="open it with the version that wrote it, or start with a new checkpointLocation",
        )
