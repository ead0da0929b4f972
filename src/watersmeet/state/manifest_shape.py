"""The shape of a valid manifest, in both formats: types, ranges, plain names, and places that exist.

Reading is rare, so everything is checked. Whether the stores are those of the plan is checked later, by
`epoch/after.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from watersmeet.plan.partitioning import PARTITIONS_MAX
from watersmeet.state.damage import Damage
from watersmeet.state.file_names import LEARNED, RESULTS, SEGMENT
from watersmeet.state.json_shapes import (
    Shape,
    any_value,
    list_of,
    mapping_of,
    matching,
    maybe,
    number,
    one_of,
    record,
    row,
    shown,
    text,
    truth,
    whole,
)

EPOCH_MAX = 10**12 - 1
COUNT = whole(0, (1 << 64) - 1)
TIME = whole(-(1 << 64), 1 << 64)
CRC = whole(0, (1 << 32) - 1)
GROUP = whole(0, PARTITIONS_MAX)
GENERATION = whole(-1, (1 << 64) - 1)
"""A number, or `SEVERAL`."""
SEGMENT_NAME = matching(SEGMENT, "the name of a segment")
RESULT_FILE = row(matching(RESULTS, "the name of a file of results"), COUNT, COUNT, maybe(CRC), at_least=3)

_COMMON: dict[str, Shape] = {
    "epoch": whole(-1, EPOCH_MAX),
    "batch": maybe(COUNT),
    "watermark_us": maybe(TIME),
    "times_max_us": list_of(maybe(TIME)),
    "last_seen_ms": list_of(TIME),
}
HEAD = record({"format": any_value, "features": list_of(text)})
_PLAN: dict[str, Shape] = {"trees": text, "orders": mapping_of(list_of(list_of(COUNT)))}
_MIGRATION = record(
    {"strategy": text, "reason": text, "fed": GROUP, "asked": maybe(text)}, optional={"until_us": maybe(TIME)}
)
FORMAT_2 = record(
    _COMMON
    | {
        "plan": record(
            _PLAN, optional={"towards": record(_PLAN), "since": record(_PLAN), "parallel": whole(-1, EPOCH_MAX)}
        ),
        "placement": record(
            {"slots": whole(1, PARTITIONS_MAX), "keys": mapping_of(list_of(row(COUNT, whole(1, PARTITIONS_MAX))))}
        ),
        "closed_us": maybe(TIME),
        "counters": mapping_of(number),
        "gauges": mapping_of(mapping_of(number)),
        "outbox": record({"shows": truth, "place": one_of("sink", "checkpoint"), "files": list_of(RESULT_FILE)}),
        "events": list_of(mapping_of(any_value)),
        "stores": list_of(row(text, text, text, text, at_least=3)),
        "segments": record({"name": text, "bytes": list_of(COUNT), "crc": list_of(CRC)}),
        "held": list_of(list_of(row(COUNT, COUNT))),
        "extents": record(
            {
                "segment": list_of(COUNT),
                "run": list_of(COUNT),
                "bucket": list_of(TIME),
                "rows": list_of(COUNT),
                "expires": list_of(maybe(TIME)),
            }
        ),
        "groups": record({"edges": list_of(list_of(GROUP)), "of": list_of(row(COUNT, COUNT))}),
        "pieces": list_of(COUNT),
        "estimates": list_of(COUNT),
        "closed": record({"extent": list_of(COUNT), "generation": list_of(GENERATION), "since": list_of(maybe(TIME))}),
    },
    optional={
        "query": text,
        "offsets": maybe(row(text, text, text)),
        "rehearsed": COUNT,
        "asked": text,
        "migration": _MIGRATION,
    },
)
EXTENT_1 = row(
    SEGMENT_NAME, COUNT, COUNT, TIME, COUNT, maybe(TIME), GROUP, GROUP, COUNT, maybe(TIME), truth, at_least=8
)
FORMAT_1 = record(
    _COMMON
    | {
        "assignment": list_of(whole(0, PARTITIONS_MAX)),
        "extents": list_of(list_of(list_of(EXTENT_1))),
        "totals": mapping_of(number),
        "segments": list_of(row(SEGMENT_NAME, COUNT, CRC)),
    },
    optional={"closed_us": maybe(TIME), "join": maybe(matching(LEARNED, "the name of a file"))},
)


def require_shape_1(value: Any) -> None:
    """Raises Damage unless it is a manifest of format 1."""
    FORMAT_1(value, "")
    by_stage, owners = value["extents"], value["assignment"]
    slots = len(by_stage[0]) if by_stage else 0
    _require(slots > 0 and all(len(stage) == slots for stage in by_stage), "extents are not of every slot and stage")
    _require(0 < len(owners) <= PARTITIONS_MAX and max(owners) < slots, "assignment names slots that do not exist")
    known = {name for name, *_ in value["segments"]}
    named = {extent[0] for stage in by_stage for slot in stage for extent in slot}
    _require(named <= known, f"extents name segments that do not exist: {', '.join(sorted(named - known))}")


def require_shape_2(value: Any) -> None:
    """Raises Damage unless it is a manifest of format 2."""
    FORMAT_2(value, "")
    _require_segments(value["segments"])
    _require_placement(value["placement"], value["stores"])
    extents = value["extents"]
    size = len(extents["segment"])
    _require_lengths("extents", extents, size)
    _require_lengths("closed", value["closed"], len(value["closed"]["extent"]))
    _require_places("extents.segment", extents["segment"], len(value["segments"]["bytes"]))
    for name, places in (("pieces", value["pieces"]), ("estimates", value["estimates"])):
        _require_places(name, places, size)
    _require_places("closed.extent", value["closed"]["extent"], size)
    _require_held(value["held"], value["placement"]["slots"], len(value["stores"]), size)
    _require_groups(value["groups"], size)


def _require_segments(columns: Mapping[str, Any]) -> None:
    names = columns["name"].split(" ") if columns["name"] else []
    for place, name in enumerate(names):
        SEGMENT_NAME(name, f"segments.name[{place}]")
    _require(len(set(names)) == len(names), "segments.name has a name twice")
    for column in ("bytes", "crc"):
        _require(len(columns[column]) == len(names), f"segments.{column} has another length than segments.name")


def _require_placement(placement: Mapping[str, Any], stores: Sequence[Sequence[str]]) -> None:
    sizes = set()
    for key, pairs in placement["keys"].items():
        _require_places(f"placement.keys.{shown(key)}", (slot for slot, _ in pairs), placement["slots"])
        sizes.add(sum(count for _, count in pairs))
    _require(len(sizes) <= 1 and all(0 < size <= PARTITIONS_MAX for size in sizes), "placement has too many groups")
    _require(len({tuple(name) for name in stores}) == len(stores), "stores has a store twice")
    unplaced = [key for _, key, *_ in stores if key not in placement["keys"]]
    _require(not unplaced, f"stores names keys that placement does not have: {shown(', '.join(unplaced))}")


def _require_held(held: Sequence[Sequence[Sequence[int]]], slots: int, stores: int, extents: int) -> None:
    _require(len(held) == slots, f"held is of {len(held)} slots, placement of {slots}")
    _require_places("held", (store for slot in held for store, _ in slot), stores)
    for slot in held:
        _require(len({store for store, _ in slot}) == len(slot), "held names a store twice for one slot")
    _require(sum(count for slot in held for _, count in slot) == extents, "held has another number of extents")


def _require_groups(groups: Mapping[str, Any], extents: int) -> None:
    edges = groups["edges"]
    for place, ends in enumerate(edges):
        rises = all(low < high for low, high in pairwise(ends))
        _require(len(ends) % 2 == 0 and rises, f"groups.edges[{place}] is not a list of ranges")
    _require_places("groups.of", (place for place, _ in groups["of"]), len(edges))
    _require(sum(count for _, count in groups["of"]) == extents, "groups.of has another number of extents")


def _require_lengths(name: str, columns: Mapping[str, Sequence[Any]], length: int) -> None:
    for column, values in columns.items():
        if isinstance(values, list):
            _require(len(values) == length, f"{name}.{column} has another length than the columns beside it")


def _require_places(name: str, places: Iterable[int], size: int) -> None:
    _require(max(places, default=-1) < size, f"{name} names something that does not exist")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Damage(what)
