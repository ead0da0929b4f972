"""The manifest as JSON, format 2.

    features    what the state uses beyond the plain format; a reader refuses one it does not know, by name
    plan        {trees, orders}
    placement   {slots, keys: {key: [[slot, so many groups], ...]}}
    stores      [[streams, key, layout], ...]
    segments    {name, bytes, crc}; all names in one text, with spaces between them
    held        by slot: [[store, so many extents], ...]
    extents     {segment, run, bucket, rows, expires}, in the order of `held`
    groups      {edges: [[low, high, low, high, ...], ...], of: [[place in edges, so many extents], ...]}, in the same
                order: the sets of groups that extents are cut to
    closed      {extent, generation, since}: of the extents that are not active
    pieces      which extents a merge by range has made or cut
    estimates   which extents have rows that were not counted yet
    counters, gauges, outbox, events, and the times of the streams

Stores, segments and extents are named by their places in the lists above. Where names stand in braces, each has a list
of its own, a column: a query has tens of thousands of extents, and every epoch writes them.

A later version may add keys: readers leave alone what they do not know, unless `features` says that they must not.
Format 1 is read by `state/format_1.py`.
"""

from __future__ import annotations

import json
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.plan.layout import StoreName
from watersmeet.plan.placement import Placement, from_lists, to_lists
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ACTIVE, ExtentRef, Manifest, Outbox, PlanText, ResultFile, SegmentRef, SlotState

FORMAT_VERSION = 2
FEATURES: frozenset[str] = frozenset()
"""What this version can read beyond the plain format."""
NO_AGE = (ACTIVE, None)
EXTENT_COLUMNS = ("segment", "run", "bucket", "rows", "expires")
_groups = attrgetter("groups")


def to_json(manifest: Manifest) -> bytes:
    stores: dict[StoreName, int] = {}
    held = [
        [[stores.setdefault(name, len(stores)), len(mine)] for name, mine in slot.items()] for slot in manifest.extents
    ]
    extents = [extent for slot in manifest.extents for mine in slot.values() for extent in mine]
    segments = list(manifest.segments.values())
    place = dict(zip(manifest.segments, range(len(segments)), strict=True))
    closed = [number for number, extent in enumerate(extents) if extent.generation != ACTIVE]
    box, sets = manifest.outbox, dict[Groups, int]()
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
        "stores": list(stores),
        "segments": {
            "name": " ".join(manifest.segments),
            "bytes": [ref.bytes for ref in segments],
            "crc": [ref.crc for ref in segments],
        },
        "held": held,
        "extents": {
            "segment": [place[extent.segment] for extent in extents],
            "run": [extent.index for extent in extents],
            "bucket": [extent.bucket for extent in extents],
            "rows": [extent.rows for extent in extents],
            "expires": [extent.expires_us for extent in extents],
        },
        "groups": {
            "of": [[sets.setdefault(cut, len(sets)), len(list(same))] for cut, same in groupby(extents, _groups)],
            "edges": [cut.edges for cut in sets],
        },
        "pieces": [number for number, extent in enumerate(extents) if extent.is_piece],
        "estimates": [number for number, extent in enumerate(extents) if extent.is_estimate],
        "closed": {
            "extent": closed,
            "generation": [extents[number].generation for number in closed],
            "since": [extents[number].since_us for number in closed],
        },
    }
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes) -> Manifest:
    """The manifest that `to_json` wrote; another format or an unknown feature is refused by name."""
    return from_value(json.loads(data))


def plan_of(value: dict[str, Any]) -> PlanText:
    """The plan of a manifest that was read as JSON."""
    require_known(value)
    return PlanText(value["plan"]["trees"], value["plan"]["orders"])


def from_value(value: dict[str, Any]) -> Manifest:
    """The manifest, read as JSON; refused as by `from_json`."""
    plan = plan_of(value)
    columns = value["segments"]
    segments = list(map(SegmentRef, columns["name"].split(), columns["bytes"], columns["crc"]))
    box = value["outbox"]
    return Manifest(
        epoch=value["epoch"],
        batch=value["batch"],
        plan=plan,
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
    columns, closed = value["extents"], value["closed"]
    ages = {extent: age for extent, *age in zip(closed["extent"], closed["generation"], closed["since"], strict=True)}
    sets = [Groups.of_edges(edges) for edges in value["groups"]["edges"]]
    groups = (sets[place] for place, count in value["groups"]["of"] for _ in range(count))
    pieces, estimates = set(value["pieces"]), set(value["estimates"])
    rows = zip(*(columns[name] for name in EXTENT_COLUMNS), groups, strict=True)

    def read(number: int, row: tuple[Any, ...]) -> ExtentRef:
        segment, run, bucket, count, expires, cut = row
        generation, since = ages.get(number, NO_AGE)
        marks = number in pieces, number in estimates
        return ExtentRef(segments[segment].name, run, 0, bucket, count, expires, cut, generation, since, *marks)

    extents = (read(number, row) for number, row in enumerate(rows))
    return tuple({stores[store]: tuple(islice(extents, count)) for store, count in slot} for slot in value["held"])
