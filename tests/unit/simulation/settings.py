"""One small setting for both simulations: a three-way join on one key, over 64 groups."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.relocation_policies import RelocationSettings
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.optimizer.assumptions import Assumptions, graph_of
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.simulation.clock import ClockPrices, VirtualClock
from watersmeet.simulation.counter_model import Cluster, CounterModel
from watersmeet.simulation.drawn_rows import DrawnRows, KeyPool
from watersmeet.simulation.load import Load
from watersmeet.simulation.real_engine import SimulatedEngine, Spans
from watersmeet.simulation.watching import Moment, simulated

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
NAMES = "abc"
PARTITIONS, KEYS = 64, 20
RATE, INTERVAL_S = 20.0, 5.0
HOT_LEFT = np.repeat([10.0, 1.0], PARTITIONS // 2) / (5.5 * PARTITIONS)


def steady_left(_: float) -> np.ndarray:
    """The left half of all groups gets ten times as much."""
    return HOT_LEFT


def alternating(at_s: float) -> np.ndarray:
    """The half that gets ten times as much changes every two minutes."""
    return HOT_LEFT if int(at_s // 120) % 2 == 0 else HOT_LEFT[::-1]


@dataclass(frozen=True)
class Setting:
    policy: str = "off"
    slots: int = 4
    budget_bytes: int | None = None
    tree: str = "(a b c)"
    window: str | None = None
    spread: Callable[[float], np.ndarray] = alternating
    rate: float = RATE
    interval_s: float = 45.0

    @property
    def query(self):
        streams = [Stream(name, SCHEMA, "ts" if self.window else None, 0) for name in NAMES]
        where = ["a.k = b.k", "b.k = c.k"]
        select = [f"{name}.n AS {name}n" for name in NAMES]
        return build_query(streams, where=where, within=self.window, windows={}, select=select)

    @property
    def trees(self):
        return (parse_tree(self.tree, list(NAMES)),)

    @property
    def plan(self):
        return plan_join(self.query, self.trees, PARTITIONS)

    @property
    def load(self) -> Load:
        even = np.full(PARTITIONS, 1 / PARTITIONS)
        key = self.plan.stages[0].key_text
        return Load([self.rate] * 3, {key: self.spread}, matched={key: even})

    def parts(self) -> dict:
        budget, how = self.budget_bytes, {"interval_s": self.interval_s, "budget_bytes": self.budget_bytes}
        spill = None if budget is None else SpillSettings(policy=policy_named("global-output"), budget_bytes=budget)
        relocator = None if self.policy == "off" else Relocator(RelocationSettings(policy=self.policy, **how))
        return {"slots": self.slots, "hosts": self.slots, "spill": spill, "relocator": relocator}

    def model(self) -> CounterModel:
        known = Assumptions(rates=dict.fromkeys(NAMES, self.rate), keys={0: 1 / (PARTITIONS * KEYS)})
        cluster = Cluster(budget_bytes=self.budget_bytes, **self.parts())
        return CounterModel(self.plan, graph_of(self.query, known), self.load, cluster, seed=1)

    def engine(self, folder: Path, seed: int = 1) -> SimulatedEngine:
        rows = DrawnRows(NAMES, self.load, self.plan.stages[0].key_text, KeyPool(PARTITIONS, [KEYS] * PARTITIONS), seed)
        return SimulatedEngine(
            self.query,
            folder / "checkpoint",
            rows,
            ClockPrices(),
            partitions=PARTITIONS,
            trees=self.trees,
            memory=folder / "memory",
            memory_budget_bytes=self.budget_bytes,
            host_of=lambda task: task.slot,
            **self.parts(),
        )

    def of_model(self, seconds: float) -> list[Moment]:
        return simulated(self.model(), VirtualClock(INTERVAL_S), seconds, ClockPrices())

    def of_engine(self, folder: Path, seconds: float, seed: int = 1) -> list[Moment]:
        return simulated(Spans(self.engine(folder, seed)), VirtualClock(INTERVAL_S), seconds, ClockPrices())
