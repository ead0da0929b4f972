"""The manifest: the complete state after an epoch.

It contains the plan of its state, and names stores by their content (`StoreName`), so that a reader needs only the
query besides. A segment is a file; an *extent* is one run of it, cut to some partition groups, that belongs to one
slot. Clean-up and a change of the number of slots only rewrite extents. Manifest e-1 holds everything that epoch e
needs: the watermark that decides lateness, the placement of groups, and the extents. Manifest e also names the
*outbox*: the result files of the epoch, which are durable before the manifest is.

Extents of one partition group have *generations* (DESIGN 2): combinations of rows of one generation have been
emitted, all others are owed. Arriving rows probe `ACTIVE` rows; all other generations are closed.

Its format is in `state/manifest_json.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from watersmeet.plan.layout import StoreName
from watersmeet.plan.placement import Move, Placement, even_placement
from watersmeet.state.groups import Groups
from watersmeet.state.measures import Counts, total
from watersmeet.state.spark_log import Offsets

BEFORE_FIRST_EPOCH = -1
ACTIVE = 0
SETTLED = 1
"""The generation of groups that were cleaned up and stay on disk; those closed by epoch e are numbered e + 2."""
SEVERAL = -1
"""The generation of an extent whose rows have a generation column (`state/generation_column.py`)."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment file by name, with the checksum that its bytes must have."""

    name: str
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class ExtentRef:
    """Run number `index` of a segment, cut to some groups: rows of other groups in the run do not count."""

    segment: str
    index: int
    store: int
    """The number of the store among the slot's stores in a stage, for tasks and reports. A manifest has extents by
    store name."""
    bucket: int
    rows: int
    expires_us: int | None
    groups: Groups
    generation: int = ACTIVE
    since_us: int | None = None
    """For a closed generation in a windowed query: no owed result is earlier."""
    is_piece: bool = False
    """Whether a merge by range has made or cut it, and slots have not changed since (`engine/layers.py`)."""
    is_estimate: bool = False
    """Whether `rows` is an estimate: the extent was cut by a change of slots, and no slot has opened it since."""

    @property
    def is_active(self) -> bool:
        return self.generation == ACTIVE


_values = attrgetter(*(f.name for f in fields(ExtentRef)))
_GROUPS = [f.name for f in fields(ExtentRef)].index("groups")


def extent_values(extent: ExtentRef) -> list[Any]:
    """An extent as JSON values, its groups as a flat list of edges."""
    values = list(_values(extent))
    values[_GROUPS] = extent.groups.edges
    return values


def extent_of(values: Sequence[Any]) -> ExtentRef:
    """The extent that `extent_values` wrote. Format 1 wrote one range of groups, as its two ends."""
    edges, end = values[_GROUPS], _GROUPS + 1
    if isinstance(edges, int):
        edges, end = values[_GROUPS : _GROUPS + 2], _GROUPS + 2
    return ExtentRef(*[*values[:_GROUPS], Groups.of_edges(edges), *values[end:]])


SlotState: TypeAlias = Mapping[StoreName, tuple[ExtentRef, ...]]
"""The extents of a slot, by store."""


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan as text: its trees, assigned to the slots in turn, and the probe orders of nodes that have given ones."""

    trees: str
    orders: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    towards: PlanText | None = None
    """The plan whose state is built beside it."""
    since: PlanText | None = None
    """The plan before it, while some of its stores lack rows (`plan/completion.py`)."""
    parallel_since: int | None = None
    """The epoch since which it and the plan `towards` run on parallel tracks; None if they do not."""

    @property
    def is_in_transition(self) -> bool:
        return self.towards is not None or self.since is not None


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A result file that a task has written, by its name in the folder of the outbox."""

    name: str
    bytes: int
    modified_ms: int
    crc: int | None = None
    """The CRC-32 of all its bytes; None if an earlier version has written it."""


@dataclass(frozen=True, slots=True)
class Outbox:
    """The results of an epoch, as files that are kept until the sink has them."""

    shows: bool
    """Whether the epoch may have results: if not, a sink that replaces its rows must not be called."""
    place: Literal["sink", "checkpoint"] = "checkpoint"
    """The owner of the files' folder; files in the sink's own folder become its part files."""
    files: tuple[ResultFile, ...] = ()


NOTHING_SHOWN = Outbox(shows=False)


@dataclass(frozen=True, slots=True)
class MigrationState:
    """The progress of a migration: stored rows of groups below `fed` are in the state that is built."""

    strategy: str
    reason: str
    fed: int = 0
    asked: str | None = None
    until_us: int | None = None
    """The watermark at which all rows have expired that were stored when it began."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state after one epoch."""

    epoch: int
    batch: int | None
    """Spark's last micro-batch in the state."""
    plan: PlanText
    placement: Placement
    watermark_us: int | None
    times_max_us: tuple[int | None, ...]
    last_seen_ms: tuple[int, ...]
    segments: Mapping[str, SegmentRef]
    extents: tuple[SlotState, ...]
    """By slot."""
    counters: Counts = field(default_factory=Counts)
    """Counts that add up over the life of the query."""
    gauges: Mapping[str, Counts] = field(default_factory=dict)
    """Present values, by stage."""
    closed_us: int | None = None
    """Windows of an aggregation that end by then are closed: their groups were emitted, or can no longer change."""
    outbox: Outbox = NOTHING_SHOWN
    events: tuple[Mapping[str, Any], ...] = ()
    """The adaptations of the epoch, as in the event log."""
    migration: MigrationState | None = None
    """The current migration."""
    asked: str | None = None
    """The option `plan` from which the plan follows, by a choice or by migrations; None: the plan itself."""
    rehearsed: int = 0
    """How many entries of the rehearsal script have been carried out (`adaptation/rehearsal.py`)."""
    offsets: Offsets | None = None
    """The end offsets of `batch` in Spark's log; None in a manifest of a version that did not keep them."""

    @property
    def slots(self) -> int:
        return self.placement.slots

    @property
    def totals(self) -> Counts:
        """Counters, and the gauges of all stages together."""
        return total([self.counters, *self.gauges.values()])

    def of(self, slot: int, stores: Iterable[StoreName]) -> tuple[ExtentRef, ...]:
        """The extents of a slot in some stores, which are numbered in the given order."""
        held = self.extents[slot]
        return tuple(
            extent if extent.store == number else replace(extent, store=number)
            for number, name in enumerate(stores)
            for extent in held.get(name, ())
        )

    def all_extents(self) -> Iterator[ExtentRef]:
        return (extent for slot in self.extents for extents in slot.values() for extent in extents)


def before_first_epoch(plan: PlanText, streams: int, keys: Iterable[str], partitions: int, slots: int) -> Manifest:
    """The state of a query that has not seen a row."""
    return Manifest(
        epoch=BEFORE_FIRST_EPOCH,
        batch=None,
        plan=plan,
        placement=even_placement(keys, partitions, slots),
        watermark_us=None,
        times_max_us=(None,) * streams,
        last_seen_ms=(0,) * streams,
        segments={},
        extents=({},) * slots,
    )


def placed(manifest: Manifest, placement: Placement) -> Manifest:
    """The same state, distributed by another placement; no file is touched."""
    if manifest.placement == placement:
        return manifest
    everything: dict[StoreName, list[ExtentRef]] = {}
    for slot in manifest.extents:
        for name, extents in slot.items():
            everything.setdefault(name, []).extend(extents)
    dealt = tuple(_dealt(everything, placement, slot) for slot in range(placement.slots))
    return replace(manifest, placement=placement, extents=dealt)


def moved(manifest: Manifest, moves: Sequence[Move]) -> Manifest:
    """The same state after some moves of groups between slots; no file is touched. ValueError if they do not fit."""
    if not moves:
        return manifest
    states = [dict(slot) for slot in manifest.extents]
    for move in moves:
        going = Groups.of_numbers(move.groups)
        sender, receiver = states[move.sender], states[move.receiver]
        for name in [name for name in sender if name.key == move.key]:
            held = sender.pop(name)
            if leaving := tuple(part for extent in held for part in _cut(extent, extent.groups & going)):
                receiver[name] = (*receiver.get(name, ()), *leaving)
            if staying := tuple(part for extent in held for part in _cut(extent, extent.groups - going)):
                sender[name] = staying
    return replace(manifest, placement=manifest.placement.after(moves), extents=tuple(states))


def _dealt(everything: Mapping[StoreName, Sequence[ExtentRef]], placement: Placement, slot: int) -> SlotState:
    """The parts of all extents in the groups of a slot."""
    owned = {key: Groups.of(owners, slot) for key, owners in placement.owners.items()}
    found = {}
    for name, extents in everything.items():
        if mine := tuple(part for extent in extents for part in _cut(extent, owned[name.key])):
            found[name] = mine
    return found


def within(extents: Iterable[ExtentRef], low: int, high: int) -> tuple[ExtentRef, ...]:
    """The parts of some extents in the groups [low, high)."""
    return tuple(part for extent in extents for part in _cut(extent, extent.groups.within(low, high)))


def _cut(extent: ExtentRef, groups: Groups) -> tuple[ExtentRef, ...]:
    """The part of an extent in the groups, with its rows estimated."""
    found = extent.groups & groups
    if not found:
        return ()
    if found == extent.groups:
        return (extent,)
    rows = -(-extent.rows * len(found) // len(extent.groups))
    return (replace(extent, groups=found, rows=rows, is_piece=False, is_estimate=True),)
