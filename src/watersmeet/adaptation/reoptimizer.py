"""Whether to change the plan of a running query: a decision with its reason, as a function (M7, F1; dissertation 16.4).

At a *look*, the optimiser prices the running plan and the best one by current statistics. `decide` weighs them:

| rule                                                                    | otherwise                           |
|-------------------------------------------------------------------------|-------------------------------------|
| the best plan saves `GAIN_MIN` of the CPU, or fits into memory, which   | keep                                |
| the running one does not                                                |                                     |
| what it saves until the next change pays `MARGIN` times the migration   | keep                                |
| the last migration ended `DWELL` times its length ago                   | wait                                |
| earlier looks have found the same plan: all looks for `CONFIRMED` of a  | wait: a jump alone does not migrate |
| window; for a whole one, if the best plan before that one was not the   |                                     |
| best for `STEADY` windows                                               |                                     |

Nobody has chosen the *fallback* plan of a new query, so the first look decides whether it is left, and the last two
rules do not apply. A plan of another kind than the option `plan` asks for is left in any case.

*Until the next change*: the shortest time for which a plan that was the best has recently been displaced and came back,
but at least a window; if that has not happened, the time since the first look. A plan that comes back within a window
shows that the data changes faster than the state (*thrashing*): then the statistics of a long time decide, which are
those of no single phase.

The papers switch whenever the optimiser prefers another plan, every 10 s (16.4), and warn of thrashing (26.1.1). Times
are seconds of event time, so the same data leads to the same decisions. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from watersmeet.epoch.events import Event
from watersmeet.epoch.goals import Migrate
from watersmeet.epoch.key_sketch import KeyClasses
from watersmeet.epoch.kinds import Epoch
from watersmeet.epoch.task import SlotReport
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest

GAIN_MIN = 0.2
MARGIN = 1.5
DWELL = 2.0
CONFIRMED = 1 / 16
"""Of a window: the least time between the look that finds a better plan and the one that confirms it."""
STEADY = 2
RECENT_WINDOWS = 8
"""For how many windows a plan that came back is remembered."""

BY_FALLBACK = "the query runs by the fallback plan"
Verdict: TypeAlias = Literal["keep", "wait", "migrate"]


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan as text, with its predicted CPU seconds a second, and whether its state fits into memory."""

    plan: str
    cpu_s: float
    fits: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """The running plan and the best one by the statistics of a moment, and the CPU seconds that lie between them."""

    at_s: float
    running: Priced
    best: Priced
    migration_cpu_s: float = 0.0
    is_asked_for: bool = False
    """Whether the best plan is of the kind that the option `plan` asks for, and the running one is not."""

    @property
    def gain_cpu_s(self) -> float:
        """CPU seconds that the best plan saves each second."""
        return self.running.cpu_s - self.best.cpu_s

    @property
    def is_better(self) -> bool:
        """Whether the best plan is better by enough."""
        if self.best.plan == self.running.plan:
            return False
        is_relief = self.best.fits and not self.running.fits
        return is_relief or self.is_asked_for or self.gain_cpu_s >= GAIN_MIN * self.running.cpu_s


@dataclass(frozen=True, slots=True)
class Absence:
    """A plan was displaced as the best one, and came back after some seconds."""

    ended_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class History:
    """What earlier looks have found, and the last migration."""

    window_s: float
    is_fallback: bool = False
    """Whether the query runs by the fallback plan, and no look has decided yet whether to leave it."""
    first_s: float | None = None
    favourite: Priced | None = None
    """The best plan; another one takes its place if it is better by `GAIN_MIN`."""
    favourite_s: float = 0.0
    """Since when."""
    is_steady: bool = False
    """Whether the favourite before it was that for `STEADY` windows: data that has changed seldom is trusted sooner."""
    displaced_s: tuple[tuple[str, float], ...] = ()
    """Former favourites, and when they were displaced."""
    absences: tuple[Absence, ...] = ()
    better: str = ""
    """The plan that the last looks have found better than the running one, by enough;"""
    better_s: float = 0.0
    """and the time of the first of these looks."""
    migrated_s: float | None = None
    migration_s: float = 0.0
    """When the last migration ended, and how long it took."""

    @property
    def confirmed_s(self) -> float:
        """For how long a plan must have been better before the query migrates to it."""
        return self.window_s * (CONFIRMED if self.is_steady else 1)

    def is_thrashing(self, at_s: float) -> bool:
        """Whether a plan has recently come back within a window."""
        return any(each.seconds < self.window_s for each in self._recent(at_s))

    def horizon_s(self, at_s: float) -> float:
        """How long a plan can be expected to stay the best."""
        known = [each.seconds for each in self._recent(at_s)]
        lasted = at_s - (at_s if self.first_s is None else self.first_s)
        return max(self.window_s, min(known, default=lasted))

    def _recent(self, at_s: float) -> list[Absence]:
        since_s = at_s - RECENT_WINDOWS * self.window_s
        return [each for each in self.absences if each.ended_s >= since_s]


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do after a look, and why."""

    verdict: Verdict
    reason: str
    look: Look
    horizon_s: float
    is_first: bool = False
    """Whether it decides about the fallback plan."""

    def to_dict(self) -> dict[str, Any]:
        """As details of an event."""
        look = self.look
        return {
            "verdict": self.verdict,
            "plan": look.running.plan,
            "bestPlan": look.best.plan,
            "predictedCpu": _short(look.running.cpu_s),
            "predictedBestCpu": _short(look.best.cpu_s),
            "predictedGain": _short(look.gain_cpu_s),
            "predictedMigrationSeconds": _short(look.migration_cpu_s),
            "horizonSeconds": _short(self.horizon_s),
            **({"fallback": look.running.plan} if self.is_first else {}),
        }


def decide(look: Look, history: History) -> Decision:
    """The decision after a look, given what was noted before it."""
    horizon_s = history.horizon_s(look.at_s)

    def found(verdict: Verdict, reason: str) -> Decision:
        about = f"{BY_FALLBACK}; {reason}" if history.is_fallback else reason
        return Decision(verdict, about, look, horizon_s, history.is_fallback)

    if look.best.plan == look.running.plan:
        return found("keep", "the running plan is the best")
    gain = look.gain_cpu_s / look.running.cpu_s if look.running.cpu_s else 0.0
    if look.is_asked_for:
        return found("migrate", f"{look.best.plan} is of the kind that option plan asks for")
    saves = f"{look.best.plan} saves {gain:.0%} of the CPU"
    if not look.is_better:
        return found("keep", f"{saves}, less than {GAIN_MIN:.0%}")
    is_relief = look.best.fits and not look.running.fits
    if is_relief:
        saves = f"{look.best.plan} fits into memory"
    saved_s, paid_s = look.gain_cpu_s * horizon_s, MARGIN * look.migration_cpu_s
    if saved_s <= paid_s and not is_relief:
        within = f"{horizon_s:.3g} s, until the next change"
        return found("keep", f"{saves}, but in {within}, {saved_s:.2g} s and not {paid_s:.2g} s")
    if (wait := _waits(look, history)) and not history.is_fallback:
        return found("wait", f"{saves}, but {wait}")
    return found("migrate", f"{saves}, {saved_s:.2g} s in {horizon_s:.3g} s; the migration takes {_text(look)} s")


def _waits(look: Look, history: History) -> str:
    """Why a plan that is better by enough must wait; nothing if it need not."""
    if history.migrated_s is not None and look.at_s - history.migrated_s < DWELL * history.migration_s:
        return "the last migration has only just ended"
    if history.better != look.best.plan or look.at_s - history.better_s < history.confirmed_s:
        return "not for long enough yet"
    return ""


def noted(history: History, look: Look) -> History:
    """The history with a look by recent statistics."""
    first_s = look.at_s if history.first_s is None else history.first_s
    better = look.best.plan if look.is_better else ""
    since_s = history.better_s if better == history.better else look.at_s
    return _with_favourite(replace(history, first_s=first_s, better=better, better_s=since_s), look)


def migrated(history: History, began_s: float, ended_s: float) -> History:
    """The history after a migration."""
    return replace(history, migrated_s=ended_s, migration_s=max(0.0, ended_s - began_s), better="")


def _with_favourite(history: History, look: Look) -> History:
    """The favourite changes when another plan is better than it by enough. The favourite is the running plan or has
    been found better than that, so the running plan's cost is an upper bound of its own."""
    old = history.favourite
    if old is None:
        return replace(history, favourite=look.best if look.is_better else look.running, favourite_s=look.at_s)
    new = look.best if look.is_better else look.running if look.best.plan != old.plan else old
    if new.plan == old.plan:
        return replace(history, favourite=new)
    displaced = dict(history.displaced_s)
    away_since = displaced.pop(new.plan, None)
    displaced[old.plan] = look.at_s
    absences = history.absences
    if away_since is not None:
        absences = (*absences, Absence(look.at_s, look.at_s - away_since))[-RECENT_WINDOWS:]
    is_steady = look.at_s - history.favourite_s >= STEADY * history.window_s
    return replace(
        history,
        favourite=new,
        favourite_s=look.at_s,
        is_steady=is_steady,
        displaced_s=tuple(displaced.items()),
        absences=absences,
    )


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _text(look: Look) -> str:
    return f"{look.migration_cpu_s:.2g}"


class Reoptimizing(Protocol):
    """The optimiser as the coordinator sees it (`planning/reoptimizing.py`)."""

    @property
    def sketched(self) -> tuple[KeyClasses, ...]:
        """The key classes to sketch in the next epoch."""

    @property
    def is_fallback(self) -> bool:
        """Whether the query runs by the fallback plan, and no look has decided yet whether to leave it."""

    def note(self, epoch: Epoch, plan: JoinPlan, after: Manifest, reports: Sequence[SlotReport]) -> None:
        """Note a committed epoch, after which the query runs by `plan`, and perhaps look."""

    def wish(self) -> Migrate | None:
        """The migration that was decided, and approved if it must be."""

    def approve(self) -> bool:
        """Approve the pending migration; False if there is none."""

    @property
    def proposal(self) -> Mapping[str, Any] | None:
        """The migration that waits for approval."""

    def other_plan(self) -> tuple[JoinPlan, str] | None:
        """The plan that the last look has found better, with the reason of the decision; None if there is none."""

    def summary(self) -> dict[str, Any]:
        """The last decision, for progress."""

    def to_value(self) -> dict[str, Any]:
        """The statistics as JSON, for a checkpoint."""

    def restore(self, value: Mapping[str, Any]) -> None:
        """Continue from the statistics of an earlier run."""

    def events(self, epoch: int) -> list[Event]:
        """Decisions that no epoch has recorded yet, as events of this one."""

    def predicted(self, reason: str) -> dict[str, Any]:
        """Predicted cost and gain of the migration that was decided for this reason."""
