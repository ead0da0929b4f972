"""The manifest as JSON, format 2.

    features    what the state uses beyond the plain format; a reader refuses one it does not know, by name
    plan        {trees, orders}
    placement   {slots, keys: {key: [[slot, so many groups], ...]}}
    stores      [[streams, key, layout], ...]
    groups      [[low, high, low, high, ...], ...]: the sets of groups that extents have
    segments    [[name, bytes, crc], ...]
    extents     by slot: [[store, [extent, ...]], ...]; an extent is [segment, run, bucket, rows, expires, groups, marks]
                and, if it is closed, [generation, since] more; store, segment and groups are places in the tables above
    counters, gauges, outbox, events, and the times of the streams

A later version may add keys: readers leave alone what they do not know, unless `features` says that they must not.
Format 1 is read by `state/format_1.py`.
"""

from __future__ import annotations

import json
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.plan.layout import StoreName
from watersmeet.plan.placement import Placement, from_lists, to_lists
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ACTIVE, ExtentRef, Manifest, Outbox, PlanText, ResultFile, SegmentRef, SlotState

FORMAT_VERSION = 2
FEATURES: frozenset[str] = frozenset()
"""What this version can read beyond the plain format."""
PIECE, ESTIMATE = 1, 2
"""Marks of extents."""


class _Table:
    """Values, each with its place."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}

    def place(self, value: Any) -> int:
        return self.places.setdefault(value, len(self.places))


def to_json(manifest: Manifest) -> bytes:
    segments = {name: place for place, name in enumerate(manifest.segments)}
    stores, groups = _Table(), _Table()

    def written(extent: ExtentRef) -> list[Any]:
        marks = PIECE * extent.is_piece + ESTIMATE * extent.is_estimate
        place = groups.place(extent.groups)
        told = [segments[extent.segment], extent.index, extent.bucket, extent.rows, extent.expires_us, place, marks]
        return told if extent.generation == ACTIVE else [*told, extent.generation, extent.since_us]

    extents = [
        [[stores.place(name), [written(extent) for extent in mine]] for name, mine in slot.items()]
        for slot in manifest.extents
    ]
    box = manifest.outbox
    value = {
        "format": FORMAT_VERSION,
        "features": [],
        "epoch": manifest.epoch,
        "batch": manifest.batch,
        "plan": {"trees": manifest.plan.trees, "orders": manifest.plan.orders},
        "placement": {
            "slots": manifest.placement.slots,
            "keys": {key: to_lists(owners) for key, owners in manifest.placement.owners.items()},
        },
        "watermark_us": manifest.watermark_us,
        "times_max_us": manifest.times_max_us,
        "last_seen_ms": manifest.last_seen_ms,
        "closed_us": manifest.closed_us,
        "counters": manifest.counters,
        "gauges": manifest.gauges,
        "outbox": {
            "shows": box.shows,
            "place": box.place,
            "files": [[f.name, f.bytes, f.modified_ms] for f in box.files],
        },
        "events": manifest.events,
        "stores": list(stores.places),
        "groups": [held.edges for held in groups.places],
        "segments": [[ref.name, ref.bytes, ref.crc] for ref in manifest.segments.values()],
        "extents": extents,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes) -> Manifest:
    """The manifest that `to_json` wrote; another format or an unknown feature is refused by name."""
    value: dict[str, Any] = json.loads(data)
    require_known(value)
    segments = [SegmentRef(*entry) for entry in value["segments"]]
    box = value["outbox"]
    return Manifest(
        epoch=value["epoch"],
        batch=value["batch"],
        plan=PlanText(value["plan"]["trees"], value["plan"]["orders"]),
        placement=Placement(
            value["placement"]["slots"],
            {key: from_lists(pairs) for key, pairs in value["placement"]["keys"].items()},
        ),
        watermark_us=value["watermark_us"],
        times_max_us=tuple(value["times_max_us"]),
        last_seen_ms=tuple(value["last_seen_ms"]),
        segments={ref.name: ref for ref in segments},
        extents=_extents(value, segments),
        counters=value["counters"],
        gauges=value["gauges"],
        closed_us=value["closed_us"],
        outbox=Outbox(box["shows"], box["place"], tuple(ResultFile(*entry) for entry in box["files"])),
        events=tuple(value["events"]),
    )


def require_known(value: dict[str, Any]) -> None:
    """Refuse a format, or a feature, that this version does not know."""
    if value.get("format") != FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint has format {value.get('format')}, this watersmeet reads format {FORMAT_VERSION}",
            hint="open it with the version that wrote it, or start with a new checkpointLocation",
        )
    if unknown := sorted(set(value["features"]) - FEATURES):
        raise CheckpointError(
            f"the checkpoint uses {', '.join(map(repr, unknown))}, which this watersmeet does not know",
            hint="open it with the version that wrote it, or a later one",
        )


def _extents(value: dict[str, Any], segments: list[SegmentRef]) -> tuple[SlotState, ...]:
    stores = [StoreName(*entry) for entry in value["stores"]]
    groups = [Groups.of_edges(edges) for edges in value["groups"]]

    def read(entry: list[Any]) -> ExtentRef:
        segment, index, bucket, rows, expires, place, marks, *closed = entry
        generation, since = closed or (ACTIVE, None)
        return ExtentRef(
            segments[segment].name,
            index,
            0,
            bucket,
            rows,
            expires,
            groups[place],
            generation,
            since,
            is_piece=bool(marks & PIECE),
            is_estimate=bool(marks & ESTIMATE),
        )

    return tuple(
        {stores[store]: tuple(read(entry) for entry in entries) for store, entries in slot} for slot in value["extents"]
    )
