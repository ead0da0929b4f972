"""The manifest: what the state is after an epoch, as a small versioned JSON value.

A segment is a file; an *extent* is one run of it, cut to a range of partition groups, that belongs to one slot.
Clean-up and a change of the number of slots only rewrite extents. Manifest e-1 holds everything epoch e needs: the
watermark that decides lateness, the assignment of groups to slots, and the extents; and manifest e says which
orders the epoch carried out beside joining, so that it can be computed again.

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
from watersmeet.plan.partitioning import even_assignment, group_ranges

FORMAT_VERSION = 1
LEFT_OUT = ("first", "join", "base")
"""Names of format 1 that are no longer written; `checkpoint.py` reads two of them."""
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
    """Run number `index` of a segment, cut to the groups [group_low, group_high)."""

    segment: str
    index: int
    store: int
    bucket: int
    rows: int
    expires_us: int | None
    group_low: int
    group_high: int
    generation: int = ACTIVE
    since_us: int | None = None
    """Of a closed generation in a windowed query: nothing that it owes is earlier."""

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

    @property
    def slots(self) -> int:
        return len(self.extents[0])

    def to_json(self) -> bytes:
        value = {f.name: getattr(self, f.name) for f in fields(self)}
        value["segments"] = [[s.name, s.bytes, s.crc] for s in self.segments.values()]
        value["extents"] = [[[_values(e) for e in slot] for slot in stage] for stage in self.extents]
        value["ran"] = [asdict(order) for order in self.ran]
        return json.dumps({"format": FORMAT_VERSION, **value}).encode()


_values = attrgetter(*(f.name for f in fields(ExtentRef)))


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
    extents = tuple(tuple(tuple(ExtentRef(*entry) for entry in slot) for slot in stage) for stage in stages)
    for name in ("times_max_us", "last_seen_ms", "assignment"):
        value[name] = tuple(value[name])
    value["ran"] = tuple(_order(entry) for entry in value.get("ran", ()))
    for name in LEFT_OUT:
        value.pop(name, None)
    return Manifest(segments=segments, extents=extents, **value)


def _order(entry: dict[str, Any]) -> Order:
    clean = entry["clean"]
    return Order(**{**entry, "spill": tuple(entry["spill"]), "clean": None if clean is None else tuple(clean)})


def reassign(manifest: Manifest, slots: int) -> Manifest:
    """The same state dealt out evenly over another number of slots; no file is touched."""
    if manifest.slots == slots:
        return manifest
    assignment = even_assignment(len(manifest.assignment), slots)
    owned = [group_ranges(assignment, slot) for slot in range(slots)]
    extents = tuple(tuple(_dealt(stage, ranges) for ranges in owned) for stage in manifest.extents)
    return replace(manifest, assignment=assignment, extents=extents)


def _dealt(stage: Sequence[Sequence[ExtentRef]], ranges: Sequence[tuple[int, int]]) -> tuple[ExtentRef, ...]:
    """What of a stage's extents lies in the ranges of groups."""
    everything = [extent for slot in stage for extent in slot]
    return tuple(part for extent in everything for low, high in ranges for part in _cut(extent, low, high))


def _cut(extent: ExtentRef, low: int, high: int) -> tuple[ExtentRef, ...]:
    low, high = max(low, extent.group_low), min(high, extent.group_high)
    return (replace(extent, group_low=low, group_high=high),) if low < high else ()
