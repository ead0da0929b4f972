"""One run of the engine under one policy: what it had in memory and had produced, epoch by epoch, and its clean-up.

Every run ends with two assertions against the workload's own counts: results at run time and in clean-up together are
as many as the whole join has, and so is a checksum of them.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.figures.streams import PARTITIONS, Workload
from watersmeet.adaptation.figures import Floats, GroupFigures
from watersmeet.adaptation.spill_policies import Policy, policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.epoch.events import Event
from watersmeet.plan.tree import parse_tree
from watersmeet.runtime.inprocess import InProcessQuery

BATCH_S = 50
"""Virtual seconds of a micro-batch; a slot spills at most once in one."""
WEIGHTED = "penalty-"
"""A name such as `penalty-0.1`: global output with penalty, but P_inter counts a tenth."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a workload is run; without a policy everything stays in memory."""

    policy: str | None
    slot_budget_bytes: int = 0
    slots: int = 2
    fraction: float = 0.3
    upkeep: str = "reset"

    def spill(self, instead: Policy | None = None) -> SpillSettings | None:
        if self.policy is None:
            return None
        policy = instead or policy_of(self.policy)
        return SpillSettings(
            policy=policy, budget_bytes=self.slot_budget_bytes, fraction=self.fraction, upkeep=self.upkeep
        )


def policy_of(name: str) -> Policy:
    """A policy of the product, or one whose penalty has another weight."""
    if not name.startswith(WEIGHTED):
        return policy_named(name)
    weight = float(name.removeprefix(WEIGHTED))

    def weighted(figures: GroupFigures) -> Floats:
        return figures.output / (figures.size + weight * figures.inter)

    return weighted


@dataclass(slots=True)
class Trace:
    """What was seen of a run."""

    setting: Setting
    minutes: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    """Cumulative, at run time."""
    active_bytes: list[list[int]] = field(default_factory=list)
    """By epoch and slot."""
    spills: int = 0
    """Times that a slot spilled."""
    spilled_bytes: Counter[int] = field(default_factory=Counter)
    """By stage."""
    spilled_groups: Counter[int] = field(default_factory=Counter)
    clean_up_results: int = 0
    clean_up_epochs: int = 0
    run_cpu_s: float = 0.0
    clean_up_cpu_s: float = 0.0

    @property
    def run_results(self) -> int:
        return self.results[-1]

    def summary(self) -> dict[str, Any]:
        held = [sum(slots) for slots in self.active_bytes]
        return {
            **asdict(self.setting),
            "run_results": self.run_results,
            "clean_up_results": self.clean_up_results,
            "spills": self.spills,
            "spilled_bytes_by_stage": dict(sorted(self.spilled_bytes.items())),
            "spilled_groups_by_stage": dict(sorted(self.spilled_groups.items())),
            "active_bytes_max": max(held),
            "run_cpu_s": round(self.run_cpu_s, 2),
            "clean_up_cpu_s": round(self.clean_up_cpu_s, 2),
        }


def run(workload: Workload, setting: Setting, *, batch_s: int = BATCH_S, policy: Policy | None = None) -> Trace:
    """The whole workload under one setting; fails if a result is missing or too many.

    A policy stands in for the one that the setting names.
    """
    trace = Trace(setting)
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-figures-", dir="/dev/shm") as memory,
        tempfile.TemporaryDirectory(prefix="watersmeet-figures-", dir="/dev/shm") as folder,
    ):
        engine = _engine(workload, setting, setting.spill(policy), Path(folder), Path(memory))
        checksum = seen = 0
        began = time.process_time()
        for batch in workload.batches(batch_s):
            results = engine.run(batch)
            seen += batch["a"].num_rows
            checksum += _checksum(results)
            _note(trace, engine, workload.minutes(seen), results.num_rows)
        trace.run_cpu_s = time.process_time() - began
        began = time.process_time()
        for results in engine.clean_up():
            trace.clean_up_results += results.num_rows
            trace.clean_up_epochs += 1
            checksum += _checksum(results)
        trace.clean_up_cpu_s = time.process_time() - began
    total = trace.run_results + trace.clean_up_results
    assert total == workload.results, f"{workload.name}, {setting}: {total} results of {workload.results}"
    assert checksum == workload.checksum, f"{workload.name}, {setting}: as many results, but not the same"
    return trace


def _engine(
    workload: Workload, setting: Setting, spill: SpillSettings | None, folder: Path, memory: Path
) -> InProcessQuery:
    engine = InProcessQuery(
        workload.query,
        folder,
        slots=setting.slots,
        partitions=PARTITIONS,
        memory=memory,
        memory_budget_bytes=None if setting.policy is None else setting.slot_budget_bytes,
        trees=[parse_tree(workload.plan, [stream.name for stream in workload.query.streams])],
        spill=spill,
    )
    assert len(engine.plan.stages) == workload.plan.count("("), "one stage per join"
    return engine


def _note(trace: Trace, engine: InProcessQuery, minutes: float, results: int) -> None:
    trace.minutes.append(minutes)
    trace.results.append(results + (trace.results[-1] if trace.results else 0))
    trace.active_bytes.append([active_bytes(engine, slot) for slot in range(trace.setting.slots)])
    spills: list[Event] = [event for event in engine.events if event.kind == "spill"]
    trace.spills += len({event.slot for event in spills})
    for event in spills:
        trace.spilled_bytes[event.details["stage"]] += event.details["bytes"]
        trace.spilled_groups[event.details["stage"]] += event.details["groups"]


def active_bytes(engine: InProcessQuery, slot: int) -> int:
    """The files of a slot's active state: what the budget limits."""
    manifest = engine.manifest
    used = {extent.segment for extents in manifest.extents[slot].values() for extent in extents if extent.is_active}
    return sum(manifest.segments[name].bytes for name in used)


def _checksum(results: pa.Table) -> int:
    return int(pc.sum(results["cn"]).as_py() or 0)
