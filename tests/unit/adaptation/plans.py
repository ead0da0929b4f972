"""Plans and manifests for tests of adaptations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.epoch.after import initial_manifest
from watersmeet.plan.layout import StoreName
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ExtentRef, Manifest, SegmentRef, SlotState

PARTITIONS = 8
CLOSED = 7
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def chain(text: str = "(((a b) c) d)", *, fused: bool = False) -> JoinPlan:
    """a, b, c and d in a chain over three keys, a stage each; or a, b and c on one key, in one stage."""
    names = "abc" if fused else "abcd"
    where = ["a.x = b.x", "b.x = c.x"] if fused else ["a.x = b.x", "b.y = c.y", "c.z = d.z"]
    query = build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in names],
        where=where,
        within="100 microseconds",
        windows={},
        select=[f"{name}.x" for name in names],
    )
    return plan_join(query, (parse_tree(text, list(names)),), PARTITIONS)


def manifest_with(
    plan: JoinPlan,
    extents: Mapping[tuple[int, int], Sequence[ExtentRef]],
    *,
    slots: int = 1,
    watermark_us: int | None = None,
    bytes_each: int = 100,
) -> Manifest:
    """A manifest that has some extents, by stage and slot, whose stores are numbered as in the stage."""
    states = tuple(_state(plan, extents, slot) for slot in range(slots))
    names = {extent.segment for found in extents.values() for extent in found}
    segments = {name: SegmentRef(name, bytes_each, 0) for name in names}
    empty = initial_manifest(plan, slots)
    return replace(empty, epoch=0, watermark_us=watermark_us, extents=states, segments=segments)


def _state(plan: JoinPlan, extents: Mapping[tuple[int, int], Sequence[ExtentRef]], slot: int) -> SlotState:
    found: dict[StoreName, tuple[ExtentRef, ...]] = {}
    for stage in range(plan.stage_count):
        layouts = plan.layouts(stage, slot)
        for one in extents.get((stage, slot), ()):
            name = layouts[one.store].name
            found[name] = (*found.get(name, ()), one)
    return found


def extent(generation: int, low: int = 0, high: int = 8, *, segment: str = "s", since: int | None = None) -> ExtentRef:
    return ExtentRef(segment, 0, 0, 0, 10, None, Groups.between(low, high), generation, since)
