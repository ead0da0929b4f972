"""Files that extents of several slots name: each slot's share of the bytes, and the one slot that keeps the file.

Slots share files after partition groups have changed slots. Bytes are divided in proportion to rows, among the slots
that probe the file if there are any. So the bytes of all slots add up to those of the files. One slot keeps the file:
the one that has written it, if that still uses it, or else the first. It has the file in its memory; to the others the
file is *foreign*. They read it where it is, and write their rows anew soon (`engine/merging.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from watersmeet.state.file_names import slot_of
from watersmeet.state.manifest import ExtentRef, SegmentRef

Shares = Mapping[str, float]
"""Shares by segment name; a segment that is missing here belongs to the slot alone."""
NO_SHARES: Shares = {}


def byte_shares(stage: Sequence[Sequence[ExtentRef]]) -> list[Shares]:
    """Per slot of a stage, its shares of files that several slots name, given the extents of every slot."""
    shares: list[dict[str, float]] = [{} for _ in stage]
    first: dict[str, int] = {}
    shared = {e.segment for slot, held in enumerate(stage) for e in held if first.setdefault(e.segment, slot) != slot}
    if not shared:
        return list(shares)
    rows: dict[str, Counter[int]] = defaultdict(Counter)
    active: dict[str, Counter[int]] = defaultdict(Counter)
    for slot, extents in enumerate(stage):
        for extent in extents:
            if extent.segment in shared:
                rows[extent.segment][slot] += max(1, extent.rows)
                if extent.is_active:
                    active[extent.segment][slot] += max(1, extent.rows)
    for name, by_slot in rows.items():
        for slot, mine in by_slot.items():
            among = active[name] if slot in active[name] else by_slot
            shares[slot][name] = among.get(slot, mine) / among.total()
    return list(shares)


def foreign_files(stage: Sequence[Sequence[ExtentRef]]) -> list[frozenset[str]]:
    """Per slot of a stage, the files that another slot keeps, given the extents of every slot."""
    users: dict[str, list[int]] = defaultdict(list)
    for slot, held in enumerate(stage):
        for name in {extent.segment for extent in held}:
            users[name].append(slot)
    foreign: list[set[str]] = [set() for _ in stage]
    for name, slots in users.items():
        if len(slots) > 1:
            keeper = slot_of(name) if slot_of(name) in slots else slots[0]
            for slot in slots:
                if slot != keeper:
                    foreign[slot].add(name)
    return [frozenset(names) for names in foreign]


def bytes_of(names: Iterable[str], segments: Mapping[str, SegmentRef], shares: Shares) -> int:
    """A slot's share of the bytes of some files."""
    return sum(own_bytes(segments[name], shares) for name in names)


def own_bytes(segment: SegmentRef, shares: Shares) -> int:
    share = shares.get(segment.name)
    return segment.bytes if share is None else int(segment.bytes * share)
