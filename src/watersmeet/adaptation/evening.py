"""Making the loads of slots equal by moving few bytes: the balancer (ours; its trigger is that of R2).

Loads may be of several kinds, such as CPU time and memory. A slot is as loaded as its most loaded kind, in means of
that kind: a sum of kinds would let much of one make up for little of another.
"""

from __future__ import annotations

import heapq

import numpy as np

from watersmeet.adaptation.figures import Floats, Ints

TOLERANCE = 1.05
"""Loads within this ratio of the mean are left alone."""
ROUNDED = 1 + 1e-9
"""Sums of loads are not exact."""


def evened(slot: Ints, load: Floats, size: Floats, slots: int, tolerance: float = TOLERANCE) -> Ints:
    """The new slot of every unit, given its slot, its load (an array, or one row per kind) and its bytes.

    Again and again, the most loaded slot gives units to the slot with least of that kind, up to half of what lies
    between them and no further than the mean: units that even out most per byte, all kinds together. If none fits, it
    gives its smallest one. A slot whose units are all too large to help keeps them.
    """
    found = slot.copy()
    kinds = np.atleast_2d(load).astype(np.float64)
    means = kinds.sum(axis=1, keepdims=True) / max(1, slots)
    kinds = np.divide(kinds, means, out=np.zeros_like(kinds), where=means > 0)
    loads = np.array([np.bincount(slot, weights=kind, minlength=slots) for kind in kinds])
    order = np.argsort(slot, kind="stable")
    held = np.split(order, np.searchsorted(slot[order], np.arange(1, slots)))
    squares, per_byte = (kinds * kinds).sum(axis=0), 1 / np.maximum(1.0, size)
    level = loads.copy()
    for _ in range(4 * slots):
        kind, most = divmod(int(level.argmax()), slots)
        if level[kind, most] <= tolerance:
            break
        least, mine = int(loads[kind].argmin()), held[most]
        gap, units = loads[:, most] - loads[:, least], kinds[:, mine]
        # By how much the squares of both slots' loads shrink, halved: positive if the two come closer.
        gain = gap @ units - squares[mine]
        amount = ROUNDED * min(gap[kind] / 2, loads[kind, most] - 1)
        going = _going(units, gain, gain * per_byte[mine], gap, kind, amount)
        if not len(going):
            level[kind, most] = -np.inf  # stuck
            continue
        stays = np.ones(len(mine), dtype=np.bool_)
        stays[going] = False
        held[most], held[least] = mine[stays], np.concatenate((held[least], mine[going]))
        found[mine[going]] = least
        moved = units[:, going].sum(axis=1)
        loads[:, most] -= moved
        loads[:, least] += moved
        level[:, most], level[:, least] = loads[:, most], loads[:, least]
    return found


def _going(units: Floats, gain: Floats, worth: Floats, gap: Floats, kind: int, amount: float) -> Ints:
    """The places of units, of one slot, that go to another for the sake of one kind of load."""
    useful = np.flatnonzero((gain > 0) & (units[kind] > 0))
    order = useful[np.argsort(-worth[useful], kind="stable")]
    going = order[taken(units[kind, order], amount)]
    if len(going):
        moved = units[:, going].sum(axis=1)
        if moved @ (gap - moved) > 0:
            return going
    one: Ints = order[np.argsort(units[kind, order], kind="stable")[:1]]
    return one


def reassigned(slot: Ints, load: Floats, size: Floats, slots: int) -> Ints:
    """The slot of every unit on another number of slots: units of slots that are gone go to those with the least load,
    the largest first; then loads are made even."""
    found = slot.copy()
    gone = np.flatnonzero(slot >= slots)
    rest = np.bincount(slot[slot < slots], weights=load[slot < slots], minlength=slots)
    heap = [(held, number) for number, held in enumerate(rest.tolist())]
    heapq.heapify(heap)
    for unit in gone[np.lexsort((gone, -load[gone]))].tolist():
        held, number = heap[0]
        heapq.heapreplace(heap, (held + float(load[unit]), number))
        found[unit] = number
    return evened(found, load, size, slots)


def taken(values: Floats, amount: float) -> Ints:
    """The places of values that are taken one after the other while they fit into an amount; others are passed over."""
    chosen = []
    left = amount
    for place, value in enumerate(values.tolist()):
        if value <= left:
            chosen.append(place)
            left -= value
    return np.array(chosen, dtype=np.int64)
