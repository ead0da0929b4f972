"""The optimiser of a running query: it notes every epoch, looks when something calls for it, and wishes migrations.

| trigger       | a look happens                                                                                     |
|---------------|----------------------------------------------------------------------------------------------------|
| interval      | after an eighth of the window (or as often as the option `reoptimize` says)                        |
| validity range| with `auto`, if statistics have left the range of the last search; else after four windows         |
| batch times   | when the CPU time of micro-batches has risen three times in a row, by half in all                  |
| spilling      | when two micro-batches in a row have spilled                                                       |

A trigger only makes the optimiser look (F1; dissertation 26.1); `adaptation/reoptimizer.py` decides. Searches take at
most `PLANNING_SHARE` of the CPU time of the epochs, key sketches about `SKETCHING_SHARE`. Statistics are of the last
half window; where the data is thrashing, of the last four windows.

A new query runs by the fallback plan (`planner.py`). The first look happens as soon as `ROWS_MIN` rows have arrived
after the first micro-batch, which covers an unknown time; it leaves the fallback, without asking anybody, while there
is little state to move. If the optimiser is off, it still does that, once, and sketches no keys after it.

A decision is not durable. After a crash it is made again, from statistics that the checkpoint keeps.

*Known limitation.* A key class has one selectivity for all its pairs of streams. Plans whose slots run different trees
are left alone, and so are plans with weights, which it does not price, and joins of two streams, with nothing to
choose.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from watersmeet.adaptation.memories import Memories
from watersmeet.adaptation.migration import AUTO, strategy_named
from watersmeet.adaptation.moving import Moving
from watersmeet.adaptation.reoptimizer import Decision, History, decide, migrated, noted
from watersmeet.epoch.events import Event
from watersmeet.epoch.goals import Migrate
from watersmeet.epoch.key_sketch import KeyClasses, sketched_classes
from watersmeet.epoch.kinds import Build, Epoch, Switch, chunk_of
from watersmeet.epoch.task import SlotReport
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.weights import weighted_streams
from watersmeet.planning.looking import Seen, has_left_range, look_at
from watersmeet.planning.planner import Planner
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import BUILD_NS, CPU_TIMES, SKETCH_NS, SPILLED_BYTES

ROWS_MIN = 1000
LOOKS = 8
"""Looks a window."""
SEARCHED = 4
"""Windows after which plans are searched again, though nothing has changed by much."""
SEEN_MIN = 0.3
"""Windows that recent statistics must cover before the first look."""
PLANNING_SHARE, PLANNING_FREE_S = 0.01, 0.1
SKETCHING_SHARE, SKETCHING_FREE_NS = 0.008, 250_000
"""Of the CPU time of epochs; and what an epoch may spend on sketches in any case, over all slots."""
RISING, RISEN = 3, 1.5


class Reoptimizer:
    """The optimiser of one run. It is told of epochs one by one, and asked between them."""

    def __init__(
        self,
        planner: Planner,
        memories: Memories | None = None,
        *,
        interval_s: float | None = None,
        asks: bool = False,
        yields: bool = False,
        once: bool = False,
        sketching_share: float = SKETCHING_SHARE,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`memories` are the moving values that the run keeps; None: new ones. `interval_s` is the time between looks,
        None: as in the table; `asks`: migrations wait for approval; `yields`: a plan that the user migrates to is left
        alone; `once`: so is every plan but the fallback; `sketching_share` is the part of the CPU time that key
        sketches may take."""
        self.planner, self.asks, self._interval_s, self._clock = planner, asks, interval_s, clock
        self._yields, self._once, self._is_at_rest = yields, once, False
        self._sketching_share = sketching_share
        self.classes = sketched_classes(planner.query)
        self._memories = Memories(planner.query) if memories is None else memories
        self.recent, self.long, self.totals = self._memories.recent, self._memories.long, self._memories.totals
        self.window_s = self._memories.window_s
        self.history = History(self.window_s, is_fallback=planner.waits_for_rows)
        self._steadily_better = ""
        self._is_chosen = False
        """Whether a look has kept the fallback plan, or a migration has left it."""
        self.decision: Decision | None = None
        """The decision of the last look."""
        self._wanted: Migrate | None = None
        self._seen: Seen | None = None
        self._is_approved = False
        self._unreported: list[tuple[str, str, Mapping[str, Any]]] = []
        self._reported = ("", "")
        self._looked_s: float | None = None
        self._searched: tuple[float, Assumptions] | None = None
        self._planning_s = self._epochs_cpu_s = self._built_s = 0.0
        self._looks_s: deque[float] = deque(maxlen=3)
        """The last looks count by the shortest of them: a garbage collection in one is not its own cost."""
        self._batches_s: deque[float] = deque(maxlen=RISING + 1)
        self._spilled: deque[bool] = deque(maxlen=2)
        self._began: tuple[float, float, Decision] | None = None
        self._since: tuple[Moving, float, Decision] | None = None

    @property
    def sketched(self) -> tuple[KeyClasses, ...]:
        """The key classes to sketch in the next epoch: none if sketches have taken more than their share."""
        if self._is_at_rest:
            return ()
        spent = sum(self.recent.of(measure) for measure in CPU_TIMES)
        allowed = max(self._sketching_share * spent, SKETCHING_FREE_NS * self.recent.epochs)
        return self.classes if self.recent.of(SKETCH_NS) <= allowed else ()

    @property
    def _at_s(self) -> float | None:
        return self._memories.at_s

    @property
    def is_fallback(self) -> bool:
        return self.history.is_fallback

    @property
    def pending(self) -> Decision | None:
        """The decision that waits for approval. To leave the fallback, which nobody has chosen, needs none."""
        is_asking = self.asks and not self._is_approved and not self.is_fallback
        return self.decision if self._wanted is not None and is_asking else None

    def approve(self) -> bool:
        """Approve the pending migration; False if there is none."""
        is_pending = self.pending is not None
        self._is_approved = self._is_approved or is_pending
        return is_pending

    @property
    def proposal(self) -> Mapping[str, Any] | None:
        """The migration that waits for approval."""
        return None if self.pending is None else self.summary()

    def other_plan(self) -> tuple[JoinPlan, str] | None:
        """The plan that the last look has found better, with the reason of the decision; None if there is none."""
        if self._seen is None or self.decision is None or self._seen.look.best.plan == self._seen.look.running.plan:
            return None
        return self._seen.plan, self.decision.reason

    def summary(self) -> dict[str, Any]:
        """The last decision and the measured load, for progress."""
        found: dict[str, Any] = {"cpuPerSecond": round(self.recent.cpu_s, 6)}
        if self.decision is not None:
            found |= {"reason": self.decision.reason, **self.decision.to_dict()}
        return {**found, "fallback": self.is_fallback, "pending": self.pending is not None}

    def wish(self) -> Migrate | None:
        return None if self.pending is not None else self._wanted

    def events(self, epoch: int) -> list[Event]:
        return [Event(epoch, kind, None, reason, details) for kind, reason, details in self._unreported]

    def predicted(self, reason: str) -> dict[str, Any]:
        decision = self.decision
        if decision is None or decision.verdict != "migrate" or decision.reason != reason:
            return {}
        told = decision.to_dict()
        return {name: told[name] for name in ("predictedGain", "predictedMigrationSeconds", "horizonSeconds")}

    def note(self, epoch: Epoch, plan: JoinPlan, after: Manifest, reports: Sequence[SlotReport]) -> None:
        """Note a committed epoch; after one with rows, perhaps look."""
        self._unreported = []
        added = self._memories.note(epoch, after, reports)
        self._note_migration(epoch, after, reports)
        self._settle(is_chosen=self._is_chosen or not self.planner.is_fallback(plan))
        if added is None or self._is_at_rest:
            return
        if self._since is not None:
            self._since[0].add(*added)
        self._note_load(reports)
        self._note_outcome(after.slots)
        can_choose = after.migration is None and len(plan.trees) == 1 and not weighted_streams(plan.trees[0])
        if can_choose and len(plan.names) > 2 and self._is_due():
            self._look(plan)

    def _settle(self, *, is_chosen: bool) -> None:
        """Note whether the running plan was chosen."""
        self._is_chosen = is_chosen
        self.history = replace(self.history, is_fallback=not is_chosen)
        self._is_at_rest = self._is_at_rest or (self._once and is_chosen)

    def _note_load(self, reports: Sequence[SlotReport]) -> None:
        cpu_s = sum(report.counts.of(measure) for report in reports for measure in CPU_TIMES) / 1e9
        self._epochs_cpu_s += cpu_s
        self._batches_s.append(cpu_s)
        self._spilled.append(any(report.counts.of(SPILLED_BYTES) for report in reports))

    def _is_due(self) -> bool:
        assert self._at_s is not None
        if self.totals.rows < ROWS_MIN or self.recent.seconds <= 0:
            return False
        if self.is_fallback:
            return True
        if self.recent.seconds < SEEN_MIN * self.window_s:
            return False
        if self._planning_s > PLANNING_FREE_S + PLANNING_SHARE * self._epochs_cpu_s:
            return False
        if self._is_rising() or (len(self._spilled) == 2 and all(self._spilled)):
            return True
        interval_s = self._interval_s or self.window_s / LOOKS
        if self._looked_s is not None and self._at_s - self._looked_s < interval_s:
            return False
        self._looked_s = self._at_s
        return self._interval_s is not None or self._is_out_of_range()

    def _is_rising(self) -> bool:
        """Whether micro-batches have taken longer and longer. A single jump is not a trend."""
        spent = list(self._batches_s)
        rises = all(one < other for one, other in pairwise(spent))
        return len(spent) > RISING and rises and spent[-1] > RISEN * spent[0]

    def _is_out_of_range(self) -> bool:
        """Whether a search may find something else than the last one, or has found something to be confirmed."""
        assert self._at_s is not None
        if self._searched is None or self.history.better or self._steadily_better:
            return True
        searched_s, by = self._searched
        return self._at_s - searched_s >= SEARCHED * self.window_s or has_left_range(
            self.planner.query, by, self.recent.assumptions(self.planner.query, self.classes)
        )

    def _look(self, plan: JoinPlan) -> None:
        """Look, decide, and keep the decision."""
        assert self._at_s is not None
        began = self._clock()
        by = self.recent.assumptions(self.planner.query, self.classes)
        seen = self._seen_by(by, plan)
        decision, history = decide(seen.look, self.history), noted(self.history, seen.look)
        if history.is_thrashing(self._at_s):
            seen, decision = self._steady_look(plan, history)
        else:
            self._steadily_better = ""
        self.history, self._searched, self._looked_s = history, (self._at_s, by), self._at_s
        self._looks_s.append(self._clock() - began)
        self._planning_s += min(self._looks_s)
        self._keep(decision, seen)

    def _steady_look(self, plan: JoinPlan, history: History) -> tuple[Seen, Decision]:
        """The same by the statistics of a long time."""
        assert self._at_s is not None
        by = self.long.assumptions(self.planner.query, self.classes)
        seen = self._seen_by(by, plan)
        confirmed = self._steadily_better
        self._steadily_better = seen.look.best.plan if seen.look.is_better else ""
        return seen, decide(seen.look, _with_better(history, confirmed))

    def _seen_by(self, by: Assumptions, plan: JoinPlan) -> Seen:
        assert self._at_s is not None
        exploration_s = self.planner.exploration_s if self.is_fallback else 0.0
        filled = min(1.0, self.totals.seconds / self.window_s)
        return look_at(self.planner, plan, by, self._at_s, filled=filled, exploration_s=exploration_s)

    def _keep(self, decision: Decision, seen: Seen) -> None:
        """A decision to migrate is a wish until it is carried out, or until a later look finds otherwise."""
        self.decision, self._seen = decision, seen
        if decision.verdict == "migrate":
            if self._wanted is None or self._wanted.plan != seen.plan:
                self._is_approved = False
                self._wanted = Migrate(seen.plan, strategy_named(AUTO), decision.reason)
        else:
            self._wanted = None
            self._settle(is_chosen=True)
        told = (decision.verdict, decision.look.best.plan if decision.look.is_better else "")
        if told != self._reported:
            self._reported = told
            is_asking = {"approval": "pending"} if self.pending is not None else {}
            self._unreported.append(("reoptimize", decision.reason, {**decision.to_dict(), **is_asking}))

    def _note_migration(self, epoch: Epoch, after: Manifest, reports: Sequence[SlotReport]) -> None:
        """Note the steps of migrations, of ours and of others'."""
        if isinstance(epoch, Build) or chunk_of(epoch) is not None:
            self._built_s += sum(report.counts.of(BUILD_NS) for report in reports) / 1e9 / after.slots
        if not isinstance(epoch, Build | Switch) or self._at_s is None:
            return
        wanted, self._wanted, self._is_approved = self._wanted, None, False
        decision = self.decision
        is_ours = wanted is not None and decision is not None and epoch.reason == wanted.reason
        is_users = not is_ours and self._began is None
        self._is_at_rest, self._seen = self._is_at_rest or (self._yields and is_users), None
        if is_ours and decision is not None:
            self._began = self._at_s, self.recent.cpu_s / after.slots, decision
        if isinstance(epoch, Switch) and epoch.move == "begin":
            return
        began_s = self._at_s if self._began is None else self._began[0]
        self.history = migrated(self.history, began_s, self._at_s + self._built_s)
        if self._began is not None and not (isinstance(epoch, Switch) and epoch.move == "give up"):
            self._since = Moving(), self._began[1], self._began[2]
        self._began, self._reported = None, ("", "")
        self._settle(is_chosen=True)

    def _note_outcome(self, slots: int) -> None:
        """A window after a migration, tell what it has cost and gained."""
        if self._since is None or self._since[0].seconds < self.window_s:
            return
        moving, before_s, decision = self._since
        after_s = moving.cpu_s / slots
        told = {
            "plan": decision.look.best.plan,
            "previousPlan": decision.look.running.plan,
            "predictedGain": decision.to_dict()["predictedGain"],
            "measuredGain": round(before_s - after_s, 6),
            "measuredCpuBefore": round(before_s, 6),
            "measuredCpu": round(after_s, 6),
            "predictedMigrationSeconds": decision.to_dict()["predictedMigrationSeconds"],
            "measuredMigrationSeconds": round(self._built_s, 6),
        }
        self._unreported.append(("migrationOutcome", "a window has passed since the migration", told))
        self._since, self._built_s = None, 0.0

    def to_value(self) -> dict[str, Any]:
        """The statistics as JSON, for a checkpoint."""
        return {**self._memories.to_value(), "is_chosen": self._is_chosen}

    def restore(self, value: Mapping[str, Any]) -> None:
        """Continue from the statistics of an earlier run."""
        self._memories.restore(value)
        if "is_chosen" in value:  # not if the optimiser was off
            self._settle(is_chosen=bool(value["is_chosen"]))


def _with_better(history: History, plan: str) -> History:
    return replace(history, better=plan)
