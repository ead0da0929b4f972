"""`query.json`: the marks that identify the query of a checkpoint, one by one, so that differences can be named.

    {"format": 2, "fingerprint": {name: mark, ...}, "texts": {...},
     "next": {"fingerprint": ..., "texts": ...}, "crc": ...}

Every manifest has the hash of these marks. So no other query is accepted if this file is missing, damaged or exchanged;
and if the hash says that the query is the same, the file is written again. *Texts* are the query as the user wrote it:
a run that changes the query reads them, because what the old query owes is emitted by the old query. *Next* is the
query of a change: it is written first, then the manifest, whose hash says which of the two is in force.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.query.as_sql import canonical_as_sql
from watersmeet.state.damage import reading
from watersmeet.state.json_shapes import any_value, list_of, mapping_of, record, shown, text, whole
from watersmeet.state.manifest_json import FORMAT_1, FORMAT_VERSION
from watersmeet.state.plain_files import read_plain
from watersmeet.state.sealed_json import sealed, unsealed
from watersmeet.state.storage import write_durably

Marks = Mapping[str, str]
Texts = Mapping[str, Any]
_NEXT = record({"fingerprint": mapping_of(text)}, optional={"texts": any_value})
_SHAPE = record(
    {"format": any_value, "fingerprint": mapping_of(text)},
    optional={"probeOrders": mapping_of(list_of(list_of(whole()))), "texts": any_value, "next": _NEXT},
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
    texts: Texts | None = None
    """The query as it was written; None if an earlier version has written the file."""


@dataclass(frozen=True, slots=True)
class Written:
    """A query as it is kept: its marks, and its texts."""

    marks: Marks
    texts: Texts | None = None

    def to_value(self) -> dict[str, Any]:
        found: dict[str, Any] = {"fingerprint": dict(self.marks)}
        return found if self.texts is None else {**found, "texts": dict(self.texts)}


def read_marks(path: Path, in_force: str | None = None) -> Kept | None:
    """The contents of the file; None if it does not exist. A damaged file or another format is refused by name. If the
    query was about to change, the hash `in_force` says which one is meant."""
    with reading(path):
        try:
            data = read_plain(path)
        except FileNotFoundError:
            return None
        value, _ = unsealed(data)
        if "format" in value:
            _require_format(value["format"])
        _SHAPE(value, "")
        orders, later = value.get("probeOrders", {}), value.get("next")
        if later is not None and in_force == hash_of(later["fingerprint"]):
            value = {**value, **later}
        return Kept(value["format"], value["fingerprint"], orders, value.get("texts"))


def write_marks(path: Path, query: Written, following: Written | None = None) -> None:
    """Write a query, and perhaps the one that follows, unless the file has them; refused if the path is not a plain
    file."""
    value = {"format": FORMAT_VERSION, **query.to_value()}
    if following is not None:
        value["next"] = following.to_value()
    content = sealed(json.dumps(value).encode())
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
