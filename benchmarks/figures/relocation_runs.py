"""One run of the real engine on a virtual clock, with relocation: results, memory and moves over time; its clean-up.

Every run ends with two assertions against a count of the whole join by NumPy: results at run time and in clean-up
together are as many, and so is a checksum of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.figures.streams import SCHEMA
from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.relocation_policies import RelocationSettings
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.plan.placement import Placement
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.simulation.clock import ClockPrices, VirtualClock, epoch_s
from watersmeet.simulation.drawn_rows import DrawnRows, KeyPool
from watersmeet.simulation.load import Load, Spread
from watersmeet.simulation.real_engine import SimulatedEngine, Spans
from watersmeet.simulation.watching import Moment, events_of, relocations, simulated

NAMES = "abc"
PARTITIONS = 300
RATE = 10.0
"""Rows a second of every stream."""
BATCH_S = 20.0
BYTES = 130.0
"""A byte of ours stands for so many of the paper's, whose 200 MB are 1.5 MB here: it takes as long to move or write."""
SLOWNESS = 100.0
"""How many times slower a CPU of 2006 is taken to be, running per tuple what here runs per batch."""
DEALT_BYTES_MIN = round((8 << 20) / BYTES)
_NOW = ClockPrices()
PRICES = ClockPrices(
    stored_s=SLOWNESS * _NOW.stored_s,
    looked_up_s=SLOWNESS * _NOW.looked_up_s,
    met_s=SLOWNESS * _NOW.met_s,
    result_s=SLOWNESS * _NOW.result_s,
    disk_byte_s=BYTES / 40e6,
    sent_row_s=SLOWNESS * _NOW.sent_row_s,
    moved_byte_s=BYTES / 125e6,
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is run, but for the policy: how groups are dealt out, what arrives, and how productive groups are."""

    name: str
    minutes: int
    shares: tuple[float, ...]
    """Of the groups, by slot."""
    keys: tuple[int, ...]
    """Values per group, by slot."""
    alternates: bool = False
    """Whether groups of the first slot and all others get ten times as many rows as the rest, in turn: five minutes,
    then ten, and so on."""
    budget_bytes: int | None = None
    """Of a slot."""

    @property
    def owners(self) -> tuple[int, ...]:
        edges = np.round(np.cumsum(self.shares) * PARTITIONS).astype(int)
        return tuple(np.searchsorted(edges, np.arange(PARTITIONS), side="right").tolist())

    @property
    def spread(self) -> Spread:
        first = np.array(self.owners) == 0

        def shares(at_s: float) -> npt.NDArray[np.float64]:
            turn = 0 if at_s < 300 else 1 + int((at_s - 300) // 600)
            heavy = first if turn % 2 == 0 else ~first
            weights = np.where(heavy, 10.0, 1.0) if self.alternates else np.ones(PARTITIONS)
            found: npt.NDArray[np.float64] = weights / weights.sum()
            return found

        return shares


@dataclass(frozen=True, slots=True)
class Way:
    """How it is adapted; without a policy, no group changes slots."""

    policy: str | None = None
    threshold: float = 0.8
    in_memory: bool = False
    """Whether memory is unlimited."""
    fraction: float = 0.3
    """What a slot spills at a time. What active-disk forces out is always 30 %."""

    @property
    def label(self) -> str:
        if self.in_memory and self.policy is None:
            return "all in memory"
        spills = "" if self.fraction == 0.3 else f", {self.fraction:.0%} a spill"
        return f"{self.policy or 'no relocation'}{spills}"


@dataclass(slots=True)
class Trace:
    """What was seen of a run."""

    minutes: list[float] = field(default_factory=list)
    results: list[float] = field(default_factory=list)
    """Cumulative, at run time."""
    active_bytes: list[list[float]] = field(default_factory=list)
    """By epoch and slot."""
    relocations: int = 0
    moved_bytes: float = 0.0
    spills: int = 0
    forced: int = 0
    """Spills that active-disk has forced."""
    clean_up_results: int = 0
    clean_up_s: float = 0.0
    """The critical path: the slowest slot of every epoch, and the network."""
    epochs_s: float = 0.0
    whole: int = 0

    def area(self, until_min: float) -> float:
        """Results so far, as a mean over time: what came early counts for longer."""
        grid = np.linspace(0, until_min, 1000)
        return float(np.interp(grid, [0.0, *self.minutes], [0.0, *self.results]).mean())

    def summary(self) -> dict[str, Any]:
        unevenness = [max(held) / (sum(held) / len(held)) for held in self.active_bytes]
        return {
            "run_results": int(self.results[-1]),
            "clean_up_results": self.clean_up_results,
            "whole_join": self.whole,
            "relocations": self.relocations,
            "moved_bytes": int(self.moved_bytes),
            "spills": self.spills,
            "forced_spills": self.forced,
            "active_bytes_max": int(max(max(held) for held in self.active_bytes)),
            "unevenness_mean": round(float(np.mean(unevenness)), 3),
            "clean_up_critical_path_s": round(self.clean_up_s, 1),
            "epochs_s": round(self.epochs_s, 1),
        }


class Recorded:
    """Rows as they are drawn, kept to count the whole join."""

    def __init__(self, rows: DrawnRows) -> None:
        self._rows, self._seen = rows, {name: [] for name in rows.names}

    def __call__(self, since_s: float, until_s: float) -> Mapping[str, pa.Table]:
        found = {name: _as_stream(table) for name, table in self._rows(since_s, until_s).items()}
        for name, table in found.items():
            self._seen[name].append(table)
        return found

    def whole_join(self) -> tuple[int, int]:
        """Its results, and the sum of the numbers of their rows of c."""
        keys = {name: pa.concat_tables(tables)["x"].to_numpy() for name, tables in self._seen.items()}
        size = 1 + max(int(values.max()) for values in keys.values())
        per_c = np.prod([np.bincount(keys[name], minlength=size)[keys["c"]] for name in "ab"], axis=0)
        return int(per_c.sum()), int((per_c * np.arange(len(per_c))).sum())


def _as_stream(table: pa.Table) -> pa.Table:
    return pa.table([table["k"], np.zeros(table.num_rows, dtype=np.int64), table["n"]], schema=SCHEMA)


def query() -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA) for name in NAMES],
        where=["a.x = b.x", "b.x = c.x"],
        within=None,
        windows={},
        select=[f"{name}.n AS {name}n" for name in NAMES],
    )


def run(experiment: Experiment, way: Way, seed: int) -> Trace:
    """The whole experiment; fails if a result is missing or too many."""
    sums = [0, 0]
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-figures-", dir="/dev/shm") as memory,
        tempfile.TemporaryDirectory(prefix="watersmeet-figures-", dir="/dev/shm") as folder,
    ):
        engine, rows = _engine(experiment, way, seed, Path(folder), Path(memory))

        def take(found: pa.Table) -> None:
            sums[0] += found.num_rows
            sums[1] += int(pc.sum(found["cn"]).as_py() or 0)

        moments = simulated(Spans(engine, take), VirtualClock(BATCH_S), 60.0 * experiment.minutes, PRICES)
        trace = _traced(moments)
        engine.take_done()
        before = sums[0]
        for found in engine.clean_up():
            take(found)
        trace.clean_up_results = sums[0] - before
        trace.clean_up_s = sum(epoch_s(PRICES, done.work, engine.stages) for done in engine.take_done())
    trace.whole, checksum = rows.whole_join()
    assert sums[0] == trace.whole, f"{experiment.name}, {way}: {sums[0]} results of {trace.whole}"
    assert sums[1] == checksum, f"{experiment.name}, {way}: as many results, but not the same"
    assert way.policy is not None or trace.relocations == 0, "the intended policy ran"
    return trace


def _engine(
    experiment: Experiment, way: Way, seed: int, folder: Path, memory: Path
) -> tuple[SimulatedEngine, Recorded]:
    slots, asked = len(experiment.shares), query()
    budget = None if way.in_memory else experiment.budget_bytes
    owners = experiment.owners
    keys = [experiment.keys[slot] for slot in owners]
    key = "a.x"
    spill = None
    if budget is not None:
        spill = SpillSettings(policy=policy_named("global-output"), budget_bytes=budget, fraction=way.fraction)
    relocator = None if way.policy is None else Relocator(_settings(way, slots, budget))
    load = Load([RATE] * len(NAMES), {key: experiment.spread})
    rows = Recorded(DrawnRows(NAMES, load, key, KeyPool(PARTITIONS, keys), seed))

    def placement(keys_of_plan: Any) -> Placement:
        return Placement(slots, dict.fromkeys(keys_of_plan, owners))

    engine = SimulatedEngine(
        asked,
        folder,
        rows,
        PRICES,
        slots=slots,
        hosts=slots,
        host_of=lambda task: task.slot,
        partitions=PARTITIONS,
        memory=memory / "host",
        memory_budget_bytes=budget,
        trees=[parse_tree("(a b c)", list(NAMES))],
        placement=placement,
        spill=spill,
        relocator=relocator,
    )
    assert len(engine.plan.stages) == 1, "one stage"
    return engine, rows


def _settings(way: Way, slots: int, budget: int | None) -> RelocationSettings:
    assert way.policy is not None
    limit = 100 << 20 if budget is None else round(budget * slots * 100 / 180)
    return RelocationSettings(
        policy=way.policy,
        threshold=way.threshold,
        budget_bytes=budget,
        limit_bytes=limit,
        dealt_bytes_min=DEALT_BYTES_MIN,
    )


def _traced(moments: Sequence[Moment]) -> Trace:
    trace = Trace(relocations=relocations(moments))
    results = 0.0
    for moment in moments:
        results += moment.done.results
        trace.minutes.append(moment.at_s / 60)
        trace.results.append(results)
        trace.active_bytes.append(moment.done.active_bytes.tolist())
        trace.epochs_s += moment.epoch_s
    trace.moved_bytes = sum(event.details["bytes"] for _, event in events_of(moments, "relocate"))
    spills = events_of(moments, "spill")
    trace.spills = len(spills)
    trace.forced = sum("as productive" in event.reason for _, event in spills)
    return trace
