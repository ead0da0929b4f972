"""Which plan a join runs, and when it is chosen.

| option plan                                      | chosen                                                           |
|--------------------------------------------------|------------------------------------------------------------------|
| a tree                                           | at once; each input probes the others in the order of the text   |
| auto, mjoin, bjtree, mjoin-init, bjtree-init,    | at once if every stream has a rate hint; otherwise by a sample   |
| exhaustive                                       | of the first micro-batch if that is large (`learned.py`), or     |
|                                                  | else by the first look of the optimiser (`reoptimizing.py`)      |
| any of these, on a checkpoint that has a plan    | at once: the checkpoint's; another tree than at the last start   |
|                                                  | starts a migration                                               |

Until then a query runs by the *fallback* plan: one node over all streams, hop by hop where there are several keys. It
keeps leaf stores only, so nothing is stored that might explode, and every plan can be reached from it by building
stores of the few rows that have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.adaptation.migration import AUTO as AUTO_STRATEGY
from watersmeet.adaptation.migration import require_fit, strategy_named
from watersmeet.adaptation.rehearsal import parse_script
from watersmeet.adaptation.wishes import Wishes
from watersmeet.epoch.after import plan_from_text
from watersmeet.epoch.events import Event
from watersmeet.epoch.protocol import Migrate
from watersmeet.errors import OptionError, unknown_name
from watersmeet.observe.costs_text import ASKED_FOR, RUNS_NOW, TITLE, Other, costs_text
from watersmeet.observe.diff_text import NO_OTHER_PLAN, diff_text
from watersmeet.observe.estimates_text import IN_CODE, Saying, rates_wanted
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.optimizer.cost import DEFAULT_PRICES, CostModel, Prices
from watersmeet.optimizer.dominating import Budget
from watersmeet.optimizer.hints import completed
from watersmeet.optimizer.measured_prices import calibrated
from watersmeet.optimizer.shapes import states_of
from watersmeet.optimizer.strategies import AUTO, STRATEGIES, Choice, optimise
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.probe_orders import NO_ORDERS, ProbeOrders
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import Join, mjoin, nodes_of, parse_tree
from watersmeet.planning.learned import Sample, learned
from watersmeet.query.logical import JoinQuery
from watersmeet.state.manifest import Manifest, PlanText

SPARK_PRICES = replace(DEFAULT_PRICES, exchange_s=2.0e-6, stage_s=0.082)
"""The prices of the engine in process, and those that Spark adds: per row sent on, a shuffle and the transfer to Python
and back; per stage of a micro-batch, its tasks. CPU seconds of a slot, between two fits of
`python -m benchmarks.spark_prices`."""
SMALL_BATCH = "the first micro-batch is small: the fallback plan runs until the data is known"
NOTHING_SEEN = Assumptions({})
OPTION_HAS_CHANGED = "option plan has changed"
EXPLAIN_MODES = ("simple", "extended", "cost", "diff")

FALLBACK = "(the fallback plan, until the data is known;\n rate hints for all streams choose a plan now)"


def explain_mode(given: str | bool | None) -> str:
    """`simple`, `extended` or `cost`, as in Spark, or `diff`."""
    mode = "extended" if given is True else str(given or "simple").strip().lower()
    if mode not in EXPLAIN_MODES:
        raise unknown_name("explain mode", "modes", mode, EXPLAIN_MODES, "UNKNOWN_MODE")
    return mode


@dataclass(frozen=True, slots=True)
class Planner:
    """The query, its options and hints, and the budget of a slot."""

    query: JoinQuery
    asked: str
    known: Assumptions
    slots: int
    partitions: int
    budget: Budget
    exploration_s: float = 0.0
    mode: OutputMode | None = None
    prices: Prices = SPARK_PRICES

    @property
    def is_choice(self) -> bool:
        """Whether the optimiser chooses the tree."""
        return self.asked.lower() in STRATEGIES

    @property
    def waits_for_rows(self) -> bool:
        """Whether the plan is chosen when rows have arrived."""
        return self.is_choice and len(self.query.streams) > 2 and not self._rates_are_known

    def is_fallback(self, plan: JoinPlan) -> bool:
        """Whether this is the fallback plan. A plan that was chosen has probe orders."""
        return self.waits_for_rows and plan.trees == (mjoin(len(self._names)),) and not plan.orders

    def asks_for(self, tree: Join) -> bool:
        """Whether a tree is of the kind that the option asks for."""
        return self.asked.lower() != "bjtree" or all(len(node.inputs) == 2 for node in nodes_of(tree))

    @property
    def _rates_are_known(self) -> bool:
        return all(stream.name in self.known.rates for stream in self.query.streams)

    def first_plan(self) -> JoinPlan:
        """The plan; the fallback plan if the choice waits for rows."""
        if self.is_choice and self._rates_are_known:
            return self.plan_chosen(self.choice(self.known))
        return self._plan(self._trees())

    def plan_for(self, sample: Sample | None) -> tuple[JoinPlan, Event]:
        """The plan chosen by a sample of the first micro-batch (None: it is small), and the event that explains it."""
        if sample is None:
            plan = self.first_plan()
            return plan, Event(0, "plan", None, SMALL_BATCH, {"plan": plan_text(plan), "fallback": plan_text(plan)})
        choice = self.choice(completed(self.known, learned(self.query, sample)))
        plan, winner = self.plan_chosen(choice), choice.winner
        costs = {"cpuSecondsPerSecond": winner.cpu_s, "stateBytes": round(winner.memory_bytes)}
        return plan, Event(0, "plan", None, choice.reason, {"plan": plan_text(plan), **costs})

    def remembered_plan(self, known: PlanText) -> JoinPlan:
        """The plan of a checkpoint."""
        self._trees()  # refuses an invalid option
        try:
            return plan_from_text(self.query, known, self.partitions, self.mode)
        except OptionError:  # the plan has other streams: the checkpoint reports the differences
            return self.first_plan()

    def plan_of_change(self, known: PlanText) -> JoinPlan:
        """The plan of a query that is changed: the tree that is asked for, or else the tree of the checkpoint."""
        if not self.is_choice:
            return self.first_plan()
        return self.remembered_plan(PlanText(known.trees))

    def plan_named(self, text: str) -> JoinPlan:
        """The plan of a tree, or of several trees assigned to the slots in turn."""
        return self._plan(tuple(parse_tree(part, self._names) for part in text.split("|")))

    def wishes(self, last: Manifest | None, rehearse: str = "") -> Wishes:
        """The plan wishes of this run, given the last manifest of the checkpoint: another tree than at the last start
        is a wish to migrate."""
        plan = self.first_plan()
        asked, script = (
            self.asked.lower() if self.is_choice else plan_text(plan),
            parse_script(rehearse, self.plan_named, self.slots),
        )
        if last is None or self.is_choice or asked in (last.asked, last.plan.trees):
            return Wishes(asked, None, script)
        require_fit(self.remembered_plan(last.plan), plan, AUTO_STRATEGY, last.slots)
        return Wishes(asked, Migrate(plan, strategy_named(AUTO_STRATEGY), OPTION_HAS_CHANGED, asked), script)

    def choice(self, known: Assumptions) -> Choice:
        """The plan to run, its candidates, and the reason; rates must be known."""
        return self._choice(self.model(known))

    def plan_chosen(self, choice: Choice) -> JoinPlan:
        """The plan of a choice."""
        return self._plan((choice.winner.tree,), choice.winner.probe_orders)

    def _choice(self, model: CostModel) -> Choice:
        strategy = self.asked if self.is_choice else AUTO
        return optimise(model, self.budget, strategy, exploration_seconds=self.exploration_s)

    def costs_text(
        self, seen: Assumptions = NOTHING_SEEN, *, running: Join | None = None, say: Saying | None = IN_CODE
    ) -> str:
        """The candidates side by side, by hints and by the figures of a running query; or the list of missing rates.
        Without `say`, the assumptions are left out."""
        known = completed(self.known, seen)
        if missing := [stream.name for stream in self.query.streams if stream.name not in known.rates]:
            return "\n".join([TITLE, rates_wanted(missing, say or IN_CODE)])
        model = self.model(known)
        calibration = calibrated(model, states_of(running), known.costs) if running is not None else None
        if calibration is not None:
            model = replace(model, prices=calibration.prices)
        other = Other(running, RUNS_NOW) if running is not None else None
        if other is None and not self.is_choice:
            other = Other(self._trees()[0], ASKED_FOR)
        before = None if running is None else self.model(self.known if self._rates_are_known else known)
        return costs_text(
            self.query,
            known,
            model,
            self.budget,
            self._choice(model),
            other=other,
            calibration=calibration,
            before=before,
            say=say,
        )

    def diff_text(
        self,
        running: JoinPlan | None = None,
        better: tuple[JoinPlan, str] | None = None,
        migrated: Mapping[str, Any] | None = None,
    ) -> str:
        """The stores of the running plan and of a better one, or else of the plan before the last migration, which is
        given by its event."""
        if running is not None and better is not None:
            return diff_text(running, *better)
        if running is not None and migrated is not None:
            orders = migrated.get("previousOrders", {})
            before = plan_from_text(self.query, PlanText(migrated["previousPlan"], orders), self.partitions, self.mode)
            return diff_text(before, running, str(migrated["reason"]))
        return NO_OTHER_PLAN

    def model(self, known: Assumptions) -> CostModel:
        """The cost model of the query by these statistics."""
        return CostModel(
            graph_of(self.query, known),
            self.prices,
            slots=self.slots,
            batches_per_s=known.batches_per_s,
        )

    def _plan(self, trees: tuple[Join, ...], orders: ProbeOrders = NO_ORDERS) -> JoinPlan:
        return plan_join(self.query, trees, self.partitions, self.mode, orders)

    def _trees(self) -> tuple[Join, ...]:
        """The trees of the option, or the fallback until one is chosen. Several, with | between them, are assigned
        to the slots in turn."""
        if self.is_choice:
            return (mjoin(len(self._names)),)
        if "(" not in self.asked:
            raise OptionError(
                f"option plan '{self.asked}' is neither a join tree nor a way to find one",
                hint=f"write nested parentheses, such as (a b c) or ((a b) c), or one of {', '.join(STRATEGIES)}",
                error_class="INVALID_PLAN",
            )
        return tuple(parse_tree(part, self._names) for part in self.asked.split("|"))

    @property
    def _names(self) -> list[str]:
        return [stream.name for stream in self.query.streams]
