"""Relocation policies: which partition groups change slots, and who spills so that others need not (R2-R4, D3).

| name          | moves groups                                                      | forces spills          |
|---------------|-------------------------------------------------------------------|------------------------|
| `lazy-disk`   | from the slot with most memory in use to the one with least:      | no                     |
|               | (M_max - M_least)/2, the most productive groups                   |                        |
| `active-disk` | the same                                                          | if memory is balanced, |
|               |                                                                   | productivity is not    |
| `thresholds`  | as `lazy-disk`, if the fullest slot is overloaded, the emptiest   | no                     |
|               | one is not, and their difference is large (D3; 002, 20.3)         |                        |
| `balance`     | of all slots at once, so that CPU time and memory are even, and   | no                     |
|               | few bytes move                                                    |                        |
| `auto`        | as `balance`, by CPU time where all slots are on one host; only   | no                     |
|               | if a slot is busy and saves more than the moves cost              |                        |

A policy is a pure function of `ClusterFigures`. It suggests; the coordinator decides and the manifest records. The
trigger of all but `thresholds` is that of R2: the least over the most is below `threshold`.

Deviations: at the end of an epoch nothing is in flight, so the eight steps of the papers' protocol are one change of
the manifest. `balance` is ours.

Known limitation: where slots run different shapes, a group is taken to cost the same on all slots, and what receivers
must make is not priced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from watersmeet.adaptation.evening import evened, taken
from watersmeet.adaptation.figures import Floats, Ints
from watersmeet.adaptation.group_loads import GroupLoads
from watersmeet.errors import OptionError, unknown_name
from watersmeet.plan.placement import Move
from watersmeet.units import format_bytes

MOVED_NS_PER_BYTE = 8.0
"""CPU time to read, write and check a byte that moves."""
EPOCHS_TO_PAY = 20
"""A move by `auto` pays for itself within so many epochs with rows."""
BUSY_NS_MIN = 200_000_000
"""CPU time per epoch of the busiest slot, below which `auto` moves nothing: Spark's own share is larger."""
DEALT_BYTES_MIN = 8 << 20
"""Closed bytes for which it pays to deal a clean-up out: moves cost more than they save where there are fewer."""
IN_USE = 0.7
"""The share of the memory budget from which `active-disk` forces spills: before that, memory is not short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationSettings:
    """How groups are relocated, and when."""

    policy: str = "auto"
    threshold: float = 0.8
    """theta_r: relocate if the least over the most is lower."""
    interval_s: float = 45.0
    """tau_m: the least time between two relocations, and between two moves of one group."""
    ratio: float = 2.0
    """lambda: force spills if the productivity of the most productive slot is so many times that of the least."""
    limit_bytes: int = 100 << 20
    """The most bytes that `active-disk` forces out of memory, in the life of a run."""
    budget_bytes: int | None = None
    """The memory budget of a slot."""
    fraction: float = 0.3
    """The share of its state that a slot is forced to spill."""
    bounds: tuple[float, float, float] = (0.8, 0.6, 0.2)
    """T_max, T_min, T_diff: `thresholds` moves groups if the fullest slot uses at least the first share of its memory
    budget, the emptiest one at most the second, and they differ by at least the third."""
    dealt_bytes_min: int = DEALT_BYTES_MIN
    """The closed bytes of a slot from which the work of a clean-up is dealt out."""

    def __post_init__(self) -> None:
        policy_named(self.policy)
        if not 0 < self.threshold <= 1:
            raise OptionError(
                f"a relocation threshold of {self.threshold} is not in (0, 1]",
                hint="0.8 relocates when the least loaded slot has less than 80 % of the most loaded one",
                error_class="INVALID_RELOCATION",
            )
        most, least, difference = self.bounds
        if not (0 < least <= most and difference > 0):
            raise OptionError(
                f"relocation bounds of {most}, {least}, {difference} are not shares, the first no less than the second",
                hint="0.8, 0.6, 0.2 relocates from a slot that uses 80 % of its budget to one that uses up to 60 %",
                error_class="INVALID_RELOCATION",
            )
        if self.ratio < 1:
            raise OptionError(
                f"an active-disk ratio of {self.ratio} is less than 1",
                hint="such as 2",
                error_class="INVALID_RELOCATION",
            )


@dataclass(frozen=True, slots=True, eq=False)
class ClusterFigures:
    """What a policy sees: the loads of all groups, and which of them may move."""

    loads: GroupLoads
    may_move: np.typing.NDArray[np.bool_]
    hosts: int = 1
    forced_bytes: int = 0
    """Forced out of memory so far."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Moves, and bytes that slots are to spill, with the reason."""

    moves: tuple[Move, ...] = ()
    forced: Mapping[int, int] = field(default_factory=dict)
    reason: str = ""


NOTHING = Suggestion()
RelocationPolicy: TypeAlias = Callable[[ClusterFigures, RelocationSettings], Suggestion]


def lazy_disk(figures: ClusterFigures, settings: RelocationSettings) -> Suggestion:
    """Pair-wise relocation by memory (R2; 001, 4), of productive groups (R3; 001, 5.1)."""
    loads = figures.loads
    memory = loads.bytes_by_slot
    most, least = int(np.argmax(memory)), int(np.argmin(memory))
    if memory[least] >= settings.threshold * memory[most]:
        return NOTHING
    moves = moves_of_share(figures, most, least, (memory[most] - memory[least]) / 2)
    uses = f"slot {most} uses {format_bytes(int(memory[most]))}, slot {least} {format_bytes(int(memory[least]))}"
    return Suggestion(moves, {}, f"{uses}: below {settings.threshold:.0%}") if moves else NOTHING


def active_disk(figures: ClusterFigures, settings: RelocationSettings) -> Suggestion:
    """As `lazy_disk`; if memory is balanced and short, the least productive slot is forced to spill (R4; 001, 5.3)."""
    if (suggested := lazy_disk(figures, settings)) is not NOTHING:
        return suggested
    loads = figures.loads
    memory, groups = loads.bytes_by_slot, loads.by_slot((loads.bytes > 0).astype(np.float64))
    is_short = settings.budget_bytes is not None and memory.max() >= IN_USE * settings.budget_bytes
    if not is_short or not groups.all():
        return NOTHING
    rates = loads.by_slot(loads.output) / groups
    most, least = int(np.argmax(rates)), int(np.argmin(rates))
    left = settings.limit_bytes - figures.forced_bytes
    amount = int(min(left, settings.fraction * memory[least]))
    if rates[most] <= settings.ratio * rates[least] or amount <= 0:
        return NOTHING
    reason = f"groups of slot {most} are {_ratio(rates[most], rates[least])} as productive as those of slot {least}"
    return Suggestion((), {least: amount}, reason)


def thresholds(figures: ClusterFigures, settings: RelocationSettings) -> Suggestion:
    """Pair-wise relocation from a slot that is overloaded to one that is not (D3; 002, 20.3).

    If no slot is overloaded, nothing is to be gained. If all are, moves do not help: less state does, by a migration or
    a spill, which others decide. The load is the share of the memory budget in use; without a budget there is none.
    """
    memory, budget = figures.loads.bytes_by_slot, settings.budget_bytes
    most, least = int(np.argmax(memory)), int(np.argmin(memory))
    if not budget:
        return NOTHING
    high, low = memory[most] / budget, memory[least] / budget
    load_max, load_min, difference = settings.bounds
    if high < load_max or low > load_min or high - low < difference:
        return NOTHING
    moves = moves_of_share(figures, most, least, (memory[most] - memory[least]) / 2)
    reason = f"slot {most} uses {high:.0%} of its memory, slot {least} {low:.0%}"
    return Suggestion(moves, {}, reason) if moves else NOTHING


def balance(figures: ClusterFigures, settings: RelocationSettings) -> Suggestion:
    """All moves of an epoch at once, so that every key's CPU time and the memory are even."""
    return _suggestion(figures.loads, *_balanced(figures, settings, by_memory=True))


def auto(figures: ClusterFigures, settings: RelocationSettings) -> Suggestion:
    """As `balance`; on one host, where memory is common, by CPU time alone; and only if it pays."""
    loads = figures.loads
    new, reasons = _balanced(figures, settings, by_memory=figures.hosts > 1)
    if not reasons:
        return NOTHING
    before = loads.by_slot(loads.cpu_ns).max()
    gain = before - np.bincount(new, weights=loads.cpu_ns, minlength=loads.slots).max()
    cost = MOVED_NS_PER_BYTE * loads.bytes[new != loads.slot].sum()
    pays = before >= BUSY_NS_MIN and EPOCHS_TO_PAY * gain > cost
    return _suggestion(loads, new, reasons) if pays else NOTHING


POLICIES: dict[str, RelocationPolicy] = {
    "lazy-disk": lazy_disk,
    "active-disk": active_disk,
    "thresholds": thresholds,
    "balance": balance,
    "auto": auto,
}


def policy_named(name: str) -> RelocationPolicy:
    """The policy of an option's value, in any case; an unknown one is refused with the nearest."""
    found = POLICIES.get(name.strip().lower())
    if found is not None:
        return found
    raise unknown_name("relocation policy", "policies", name, ("off", *POLICIES), "UNKNOWN_RELOCATION_POLICY")


def moves_of_share(figures: ClusterFigures, sender: int, receiver: int, amount: float) -> tuple[Move, ...]:
    """Moves of about `amount` bytes from one slot to another: of its groups that may move, the most productive per
    byte."""
    loads = figures.loads
    mine = np.flatnonzero((loads.slot == sender) & figures.may_move & (loads.bytes > 0))
    worth = loads.output[mine] / loads.bytes[mine]
    order = mine[np.lexsort((loads.group[mine], loads.key[mine], -worth))]
    going = order[taken(loads.bytes[order], amount)]
    new = loads.slot.copy()
    new[going] = receiver
    return moves_to(loads, new)


def moves_to(loads: GroupLoads, new: Ints) -> tuple[Move, ...]:
    """The moves by which groups come to their new slots."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for i in np.flatnonzero(new != loads.slot).tolist():
        place = loads.keys[loads.key[i]], int(loads.slot[i]), int(new[i])
        found.setdefault(place, []).append(int(loads.group[i]))
    return tuple(Move(*place, tuple(sorted(groups))) for place, groups in sorted(found.items()))


def _balanced(figures: ClusterFigures, settings: RelocationSettings, *, by_memory: bool) -> tuple[Ints, Sequence[str]]:
    """The new slot of every group, and why; no reasons if all stay."""
    loads = figures.loads
    new, reasons = loads.slot.copy(), []
    for number, key in enumerate(loads.keys):
        here = np.flatnonzero(loads.key == number)
        kinds = [loads.cpu_ns[here], loads.bytes[here]] if by_memory else [loads.cpu_ns[here]]
        load = np.array([share_of(kind) for kind in kinds])
        by_slot = _by_slot(loads.slot[here], load, loads.slots)
        if (by_slot.min(axis=1) >= settings.threshold * by_slot.max(axis=1)).all():
            continue
        found = evened(loads.slot[here], load, loads.bytes[here], loads.slots)
        found = np.where(figures.may_move[here], found, loads.slot[here])
        if (found != loads.slot[here]).any():
            new[here] = found
            before, after = (loads.slots * each.max() for each in (by_slot, _by_slot(found, load, loads.slots)))
            reasons.append(f"{key}: the most loaded slot from {before:.2f} to {after:.2f}")
    return new, reasons


def _suggestion(loads: GroupLoads, new: Ints, reasons: Sequence[str]) -> Suggestion:
    return Suggestion(moves_to(loads, new), {}, "of the mean load, " + "; ".join(reasons)) if reasons else NOTHING


def _by_slot(slot: Ints, load: Floats, slots: int) -> Floats:
    """By kind of load and slot."""
    return np.array([np.bincount(slot, weights=kind, minlength=slots) for kind in load])


def share_of(values: Floats) -> Floats:
    """Values as parts of their sum."""
    total = values.sum()
    return values / total if total > 0 else values


def _ratio(high: float, low: float) -> str:
    return f"{high / low:.1f} times" if low > 0 else "infinitely"
