"""Making the loads of slots equal by moving few bytes: the balancer (ours; its trigger is that of R2)."""

from __future__ import annotations

import heapq

import numpy as np

from watersmeet.adaptation.figures import Floats, Ints

TOLERANCE = 1.05
"""Loads within this ratio of the mean are left alone."""
ROUNDED = 1 + 1e-9
"""Sums of loads are not exact."""


def evened(slot: Ints, load: Floats, size: Floats, slots: int, tolerance: float = TOLERANCE) -> Ints:
    """The new slot of every unit, given its slot, its load and its bytes.

    Again and again, the slot with the most load gives units to the one with the least, until one of them has the mean:
    those with the most load per byte. If none fits, it gives its smallest one, if that is at most half of what lies
    between them. A slot whose units are all too large to help keeps them.
    """
    found = slot.copy()
    loads = np.bincount(slot, weights=load, minlength=slots).astype(np.float64)
    mean = loads.mean() if slots else 0.0
    stuck = np.zeros(slots, dtype=np.bool_)
    per_byte = load / np.maximum(1.0, size)
    for _ in range(4 * slots):
        most = int(np.argmax(np.where(stuck, -np.inf, loads)))
        least = int(np.argmin(loads))
        if stuck[most] or loads[most] <= tolerance * mean or most == least:
            break
        amount = min(loads[most] - mean, mean - loads[least])
        mine = np.flatnonzero((found == most) & (load > 0) & (load <= (loads[most] - loads[least]) / 2))
        order = mine[np.lexsort((mine, -per_byte[mine]))]
        going = order[taken(load[order], amount * ROUNDED)]
        if not len(going):
            going = order[np.argsort(load[order], kind="stable")[:1]]
        if not len(going):
            stuck[most] = True
            continue
        found[going] = least
        moved = float(load[going].sum())
        loads[most] -= moved
        loads[least] += moved
    return found


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
