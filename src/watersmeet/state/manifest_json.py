"""The manifest as JSON, format 2.

    features    features beyond the plain format; a reader refuses an unknown one, by name. `checked`: the last key is a
                checksum of all bytes before it (`state/sealed_json.py`)
    query       a hash of the marks of the query (`state/query_file.py`)
    plan        {trees, orders}, and `towards`, the same, if another plan is built beside it, or runs beside it
                (`parallel`); `since`, the plan before, if stores lack rows
    placement   {slots, keys: {key: [[slot, so many groups], ...]}}
    stores      [[streams, key, layout], ...], and a track during a migration
    segments    {name, bytes, crc}; all names in one text, with spaces between them
    held        by slot: [[store, so many extents], ...]
    extents     {segment, run, bucket, rows, expires}, in the order of `held`
    groups      {edges: [[low, high, low, high, ...], ...], of: [[place in edges, so many extents], ...]}, in the same
                order: the sets of groups that extents are cut to
    closed      {extent, generation, since}: of the extents that are not active
    pieces      which extents a merge by range has made or cut
    estimates   which extents have rows that were not counted yet
    offsets     [query, hash, text] of the last batch; may be missing
    migration   the progress of the current migration; missing if there is none
    asked       the option from which the plan follows; may be missing
    rehearsed   how many entries of the rehearsal script are done; missing if none
    counters, gauges, outbox, events, and the times of the streams

Stores, segments and extents are named by their places in the lists above. Each name in braces has its own list, a
column: a query has tens of thousands of extents, and every epoch writes them.

A later version may add keys: readers ignore unknown keys, unless `features` forbids it. Known keys are checked before
use (`state/manifest_shape.py`). Format 1 is read by `state/format_1.py`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

import orjson

from watersmeet.errors import CheckpointError
from watersmeet.plan.layout import StoreName
from watersmeet.plan.placement import Placement, from_lists, to_lists
from watersmeet.state.damage import Damage
from watersmeet.state.groups import Groups
from watersmeet.state.json_shapes import shown
from watersmeet.state.manifest import (
    ACTIVE,
    SEVERAL,
    ExtentRef,
    Manifest,
    MigrationState,
    Outbox,
    PlanText,
    ResultFile,
    SegmentRef,
    SlotState,
)
from watersmeet.state.manifest_shape import HEAD, require_shape_1, require_shape_2
from watersmeet.state.measures import Counts
from watersmeet.state.sealed_json import sealed, unsealed
from watersmeet.state.spark_log import Offsets

FORMAT_1 = 1
FORMAT_VERSION = 2
CHECKED = "checked"
SEVERAL_GENERATIONS = "extents of several generations"
MIGRATION = "a migration under way"
PARALLEL = "two plans on parallel tracks"
COMPLETION = "a plan whose state is completed"
FEATURES = frozenset({CHECKED, SEVERAL_GENERATIONS, MIGRATION, PARALLEL, COMPLETION})
"""The features that this version can read."""
NO_AGE = (ACTIVE, None)
EXTENT_COLUMNS = ("segment", "run", "bucket", "rows", "expires")
_groups = attrgetter("groups")


def to_json(manifest: Manifest, query: str | None = None) -> bytes:
    """The manifest as JSON; `query` is the hash of the marks of the query."""
    stores: dict[StoreName, int] = {}
    held = [
        [[stores.setdefault(name, len(stores)), len(mine)] for name, mine in slot.items()] for slot in manifest.extents
    ]
    extents = list(manifest.all_extents())
    place = dict(zip(manifest.segments, range(len(manifest.segments)), strict=True))
    refs = manifest.segments.values()
    closed = [number for number, extent in enumerate(extents) if extent.generation != ACTIVE]
    generations = [extents[number].generation for number in closed]
    box, sets = manifest.outbox, dict[Groups, int]()
    value = {
        "format": FORMAT_VERSION,
        "features": [
            CHECKED,
            *([SEVERAL_GENERATIONS] if any(extents[n].generation == SEVERAL for n in closed) else []),
            *([] if manifest.migration is None else [MIGRATION]),
            *([] if manifest.plan.parallel_since is None else [PARALLEL]),
            *([] if manifest.plan.since is None else [COMPLETION]),
        ],
        **({} if query is None else {"query": query}),
        "epoch": manifest.epoch,
        "batch": manifest.batch,
        "offsets": None if (at := manifest.offsets) is None else [at.query, at.hash, at.text],
        "plan": _plan_value(manifest.plan),
        "placement": {
            "slots": manifest.placement.slots,
            "keys": {key: to_lists(owners) for key, owners in manifest.placement.owners.items()},
        },
        "watermark_us": manifest.watermark_us,
        "times_max_us": manifest.times_max_us,
        "last_seen_ms": manifest.last_seen_ms,
        "closed_us": manifest.closed_us,
        "counters": manifest.counters.by_name(),
        "gauges": {stage: gauges.by_name() for stage, gauges in manifest.gauges.items()},
        "outbox": {
            "shows": box.shows,
            "place": box.place,
            "files": [[f.name, f.bytes, f.modified_ms, f.crc] for f in box.files],
        },
        "events": manifest.events,
        **({"rehearsed": manifest.rehearsed} if manifest.rehearsed else {}),
        **({} if manifest.asked is None else {"asked": manifest.asked}),
        **({} if (going := manifest.migration) is None else {"migration": asdict(going)}),
        "stores": [[*name] if name.track else [*name[:3]] for name in stores],
        "segments": {
            "name": " ".join(manifest.segments),
            "bytes": [ref.bytes for ref in refs],
            "crc": [ref.crc for ref in refs],
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
            "generation": generations,
            "since": [extents[number].since_us for number in closed],
        },
    }
    return sealed(_dumped(value))


def _dumped(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # products of counts may grow beyond 64 bits, which orjson does not write
        return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes) -> Manifest:
    """The manifest that `to_json` wrote; raises as `read_value`."""
    return from_value(read_value(data))


def read_value(data: bytes) -> dict[str, Any]:
    """A manifest as a JSON value, of this format or of format 1, after a check of its checksum and shape.

    Raises Damage if the check fails. Another format or an unknown feature is refused by name."""
    value, is_sealed = unsealed(data)
    if value.get("format") == FORMAT_1 and "features" not in value:
        require_shape_1(value)
        return value
    _require_known(value)
    if CHECKED in value["features"] and not is_sealed:
        raise Damage("its checksum is missing")
    require_shape_2(value)
    return value


def segment_names(value: dict[str, Any]) -> set[str]:
    """All segments of a manifest of this format."""
    return set(value["segments"]["name"].split())


def plan_of(value: dict[str, Any]) -> PlanText:
    """The plan of a manifest that `read_value` has read."""
    return _plan_text(value["plan"])


def _plan_text(value: dict[str, Any]) -> PlanText:
    towards, since = (None if name not in value else _plan_text(value[name]) for name in ("towards", "since"))
    return PlanText(value["trees"], value["orders"], towards, since, value.get("parallel"))


def _plan_value(plan: PlanText) -> dict[str, Any]:
    value: dict[str, Any] = {"trees": plan.trees, "orders": dict(plan.orders)}
    others = {"towards": plan.towards, "since": plan.since}
    value |= {name: _plan_value(other) for name, other in others.items() if other is not None}
    return value if plan.parallel_since is None else {**value, "parallel": plan.parallel_since}


def from_value(value: dict[str, Any]) -> Manifest:
    """The manifest that `read_value` has read; format 1 is refused."""
    _require_known(value)
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
        counters=Counts.named(value["counters"]),
        gauges={stage: Counts.named(gauges) for stage, gauges in value["gauges"].items()},
        closed_us=value["closed_us"],
        outbox=Outbox(box["shows"], box["place"], tuple(ResultFile(*entry) for entry in box["files"])),
        events=tuple(value["events"]),
        rehearsed=value.get("rehearsed", 0),
        migration=None if (going := value.get("migration")) is None else MigrationState(**going),
        asked=value.get("asked"),
        offsets=offsets_of(value),
    )


def offsets_of(value: dict[str, Any]) -> Offsets | None:
    """The end offsets of Spark's last batch, if the manifest has them."""
    found = value.get("offsets")
    return None if found is None else Offsets(*found)


def _require_known(value: dict[str, Any]) -> None:
    """Refuse a format, or a feature, that this version does not know."""
    if "format" not in value:
        raise Damage("it lacks format")
    if value.get("format") != FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint has format {shown(str(value['format']))}, this watersmeet reads format {FORMAT_VERSION}",
            hint="open it with the version that wrote it, or start with a new checkpointLocation",
        )
    HEAD(value, "")
    if unknown := sorted(set(value["features"]) - FEATURES):
        named = ", ".join(shown(repr(each)) for each in unknown)
        raise CheckpointError(
            f"the checkpoint uses {named}, which this watersmeet does not know",
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
