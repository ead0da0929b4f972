"""The manifest: what the state is after an epoch, as a small versioned JSON value.

A segment is a file; an *extent* is one run of it, cut to some partition groups, that belongs to one slot.
Clean-up and a change of the number of slots only rewrite extents. Manifest e-1 holds everything epoch e needs: the
watermark that decides lateness, the assignment of groups to slots, and the extents; and manifest e says which
orders the epoch carried out beside joining, so that it can be computed again.

While a query is young it may still get another plan (`adaptation/trial.py`). Until then the manifest also names the
rows of all its micro-batches so far; and an epoch that ran on a state made anew of them names that state.

Extents of one partition group have *generations* (DESIGN 2): combinations of rows of one generation have been
emitted, all others are owed. `ACTIVE` rows are probed by what arrives; all other generations are closed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.plan.partitioning import even_assignment
from watersmeet.state.groups import Groups

FORMAT_VERSION = 1
BEFORE_FIRST_EPOCH = -1
ACTIVE = 0
SETTLED = 1
"""The generation of groups that were cleaned up and stay on disk; those closed by epoch e are numbered e + 2."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment file by name, with the checksum that its bytes must have."""

    name: str
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class ExtentRef:
    """Run number `index` of a segment, cut to some groups: these may have rows in it, and no other rows count."""

    segment: str
    index: int
    store: int
    bucket: int
    rows: int
    expires_us: int | None
    groups: Groups
    generation: int = ACTIVE
    since_us: int | None = None
    """Of a closed generation in a windowed query: nothing that it owes is earlier."""
    is_piece: bool = False
    """Whether a merge by range has made or cut it, and it was not dealt out anew since (`engine/layers.py`)."""
    is_estimate: bool = False
    """Whether `rows` is an estimate: the extent was cut by a change of slots, and no slot has opened it since."""

    @property
    def is_active(self) -> bool:
        return self.generation == ACTIVE


@dataclass(frozen=True, slots=True)
class Order:
    """What a slot does in a stage beside joining: before it, close groups; after it, clean up a range of groups."""

    stage: int
    slot: int
    spill: tuple[int, ...] = ()
    clean: tuple[int, int] | None = None
    keep: bool = False
    """Whether groups that were cleaned up are active again; otherwise they are closed, and owe nothing."""


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """One of the first micro-batches of a query: the file of its rows, and what was known after it."""

    file: SegmentRef
    rows: int
    watermark_us: int | None
    last_seen_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state after one epoch."""

    epoch: int
    batch: int | None
    watermark_us: int | None
    times_max_us: tuple[int | None, ...]
    last_seen_ms: tuple[int, ...]
    assignment: tuple[int, ...]
    segments: Mapping[str, SegmentRef]
    extents: tuple[tuple[tuple[ExtentRef, ...], ...], ...]
    """By stage and slot."""
    totals: Mapping[str, int] = field(default_factory=dict)
    closed_us: int | None = None
    """Windows of an aggregation that end by then have been closed: their groups are shown, or can no longer change."""
    closing: bool = False
    """Whether the epoch took in no rows, and closed windows."""
    cleaning: bool = False
    """Whether the epoch took in no rows, and carried out orders."""
    ran: tuple[Order, ...] = ()
    """The orders that the epoch carried out."""
    first: tuple[FirstBatch, ...] = ()
    """All micro-batches so far, as long as the plan may change by what they show."""
    join: str | None = None
    """The file that says what the state is for, if it is no longer that of the first epoch."""
    base: str | None = None
    """The file of the manifest that the epoch ran on, if that is not the one before."""

    @property
    def slots(self) -> int:
        return len(self.extents[0])

    @property
    def trial_files(self) -> set[str]:
        """Files that are named beside the segments (`trial_files.py`)."""
        files = {batch.file.name for batch in self.first}
        return files | {name for name in (self.join, self.base) if name is not None}

    def to_json(self) -> bytes:
        value = {f.name: getattr(self, f.name) for f in fields(self)}
        value["segments"] = [[s.name, s.bytes, s.crc] for s in self.segments.values()]
        value["extents"] = [[[extent_values(e) for e in slot] for slot in stage] for stage in self.extents]
        value["ran"] = [asdict(order) for order in self.ran]
        value["first"] = [asdict(batch) for batch in self.first]
        return json.dumps({"format": FORMAT_VERSION, **value}).encode()


_values = attrgetter(*(f.name for f in fields(ExtentRef)))
_GROUPS = [f.name for f in fields(ExtentRef)].index("groups")


def extent_values(extent: ExtentRef) -> list[Any]:
    """An extent as JSON values, its groups as a flat list of edges."""
    values = list(_values(extent))
    values[_GROUPS] = extent.groups.edges
    return values


def extent_of(values: Sequence[Any]) -> ExtentRef:
    """The extent that `extent_values` wrote, or an earlier version, of one range of groups: its two ends."""
    edges, end = values[_GROUPS], _GROUPS + 1
    if isinstance(edges, int):
        edges, end = values[_GROUPS : _GROUPS + 2], _GROUPS + 2
    return ExtentRef(*[*values[:_GROUPS], Groups.of_edges(edges), *values[end:]])


def before_first_epoch(streams: int, stages: int, partitions: int, slots: int) -> Manifest:
    """The state of a query that has not seen a row."""
    return Manifest(
        epoch=BEFORE_FIRST_EPOCH,
        batch=None,
        watermark_us=None,
        times_max_us=(None,) * streams,
        last_seen_ms=(0,) * streams,
        assignment=even_assignment(partitions, slots),
        segments={},
        extents=(((),) * slots,) * stages,
    )


def from_json(data: bytes) -> Manifest:
    """The manifest that `to_json` wrote; a format of the future is refused by its number."""
    value: dict[str, Any] = json.loads(data)
    version = value.pop("format", None)
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint has format {version}, this watersmeet reads format {FORMAT_VERSION}",
            hint="open it with the version that wrote it, or start with a new checkpointLocation",
        )
    segments = {name: SegmentRef(name, size, crc) for name, size, crc in value.pop("segments")}
    stages = value.pop("extents")
    extents = tuple(tuple(tuple(extent_of(entry) for entry in slot) for slot in stage) for stage in stages)
    for name in ("times_max_us", "last_seen_ms", "assignment"):
        value[name] = tuple(value[name])
    value["ran"] = tuple(_order(entry) for entry in value.get("ran", ()))
    value["first"] = tuple(_first_batch(entry) for entry in value.get("first", ()))
    return Manifest(segments=segments, extents=extents, **value)


def _order(entry: dict[str, Any]) -> Order:
    clean = entry["clean"]
    return Order(**{**entry, "spill": tuple(entry["spill"]), "clean": None if clean is None else tuple(clean)})


def _first_batch(entry: dict[str, Any]) -> FirstBatch:
    return FirstBatch(**{**entry, "file": SegmentRef(**entry["file"]), "last_seen_ms": tuple(entry["last_seen_ms"])})


def reassign(manifest: Manifest, slots: int, assignment: Sequence[int] | None = None) -> Manifest:
    """The same state dealt out over another number of slots, evenly or as the assignment says; no file is touched."""
    if assignment is None:
        if manifest.slots == slots:
            return manifest
        assignment = even_assignment(len(manifest.assignment), slots)
    if manifest.slots == slots and manifest.assignment == tuple(assignment):
        return manifest
    owned = [Groups.of(assignment, slot) for slot in range(slots)]
    extents = tuple(tuple(_dealt(stage, groups) for groups in owned) for stage in manifest.extents)
    return replace(manifest, assignment=tuple(assignment), extents=extents)


def _dealt(stage: Sequence[Sequence[ExtentRef]], groups: Groups) -> tuple[ExtentRef, ...]:
    """What of a stage's extents lies in the groups."""
    return tuple(part for slot in stage for extent in slot for part in _cut(extent, groups))


def _cut(extent: ExtentRef, groups: Groups) -> tuple[ExtentRef, ...]:
    """What of an extent lies in the groups, with about so many of its rows."""
    found = extent.groups & groups
    if not found:
        return ()
    if found == extent.groups:
        return (extent,)
    rows = -(-extent.rows * len(found) // len(extent.groups))
    return (replace(extent, groups=found, rows=rows, is_piece=False, is_estimate=True),)
