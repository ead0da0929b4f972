"""Statistics of a running join: rates, selectivities, stores and measured costs.

Counts come from the reports of the slots and, over the life of a checkpoint, from the totals of its manifest. (Figures
of partition groups are in `adaptation/ledger.py`.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from watersmeet.epoch.pairs import pair_name
from watersmeet.epoch.task import SlotReport
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import streams_of
from watersmeet.query.as_sql import to_sql
from watersmeet.query.logical import JoinQuery
from watersmeet.state.measures import (
    CPU_TIMES,
    EXPIRE_NS,
    EXPIRED,
    FETCHED_BYTES,
    INSERT_NS,
    INSERTED,
    MATCHED,
    MATCHES,
    MEMORY_BYTES,
    PAIRS,
    PASSED,
    PROBE_NS,
    ROWS,
    STATE_ROWS,
    STORE_BYTES,
    TESTED,
    Counts,
    Measure,
    key_class_name,
    residual_name,
)

Times = tuple[int | None, int | None]
"""A stream's latest event time before and after an epoch."""


class Sums(Protocol):
    """Sums of counters: over the life of a checkpoint, or of recent epochs."""

    def of(self, measure: Measure, subject: str = "", /) -> float: ...


def selectivities(query: JoinQuery, plan: JoinPlan, totals: Sums) -> dict[str, float]:
    """The share of pairs, or of tested rows, that each predicate lets pass."""
    pairs: defaultdict[str, float] = defaultdict(float)
    matches: defaultdict[str, float] = defaultdict(float)
    for name, (key, left, right) in meetings(plan).items():
        if text := _equality_text(query, key, left, right):
            pairs[text] += totals.of(PAIRS, name)
            matches[text] += totals.of(MATCHES, name)
    found = {text: matches[text] / pairs[text] for text in pairs if pairs[text]}
    for number, residual in enumerate(query.residuals):
        if tested := totals.of(TESTED, residual_name(number)):
            found[to_sql(residual)] = totals.of(PASSED, residual_name(number)) / tested
    for number in range(len(query.classes)):
        if tested := totals.of(TESTED, key_class_name(number)):
            found[f"key {number}, beside another"] = totals.of(PASSED, key_class_name(number)) / tested
    return found


def meetings(plan: JoinPlan) -> dict[str, tuple[Sequence[int], StoreLayout, StoreLayout]]:
    """The pairs of inputs that meet in a node of the plan, with their key, by the subject name of their counts."""
    found: dict[str, tuple[Sequence[int], StoreLayout, StoreLayout]] = {}
    for stage in plan.stages:
        for node in (*(n for shape in stage.shapes for n in shape), *(hop.node for hop in stage.hops)):
            for i, left in enumerate(node.inputs):
                for right in node.inputs[:i]:
                    found[pair_name(left.label, right.label)] = (node.key, left, right)
    return found


def _equality_text(query: JoinQuery, key: Sequence[int], left: StoreLayout, right: StoreLayout) -> str:
    """The equalities of a key between two inputs, in the streams' order."""
    sides = sorted((min(streams_of(side.tree)), side) for side in (left, right)) if left is not right else []
    texts = []
    for number in key:
        columns = query.classes[number].columns
        named = [min(s for s in streams_of(side.tree) if columns[s] is not None) for _, side in sides]
        texts.append(" = ".join(f"{query.streams[s].name}.{columns[s]}" for s in named))
    return " AND ".join(texts)


def costs(totals: Sums) -> dict[str, float]:
    """The measured constants of the cost model (O1), in nanoseconds per row: C_i to store a row, C_d to expire one,
    C_j to match one."""
    figures = {"insert": (INSERT_NS, INSERTED), "delete": (EXPIRE_NS, EXPIRED), "join": (PROBE_NS, MATCHED)}
    return {name: round(totals.of(spent) / rows, 1) for name, (spent, of) in figures.items() if (rows := totals.of(of))}


def arrivals(
    names: Sequence[str], rows: Sequence[int], times_us: Sequence[Times], seconds: float
) -> dict[str, dict[str, float]]:
    """Rows per stream, per second of the clock and per second of event time since the epoch before."""
    found: dict[str, dict[str, float]] = {}
    for name, count, (before, after) in zip(names, rows, times_us, strict=True):
        found[name] = {"rows": count, "rowsPerSecond": round(count / seconds, 3) if seconds > 0 else 0.0}
        if before is not None and after is not None and after > before:
            found[name]["rowsPerEventSecond"] = round(count * 1e6 / (after - before), 3)
    return found


def slots(reports: Sequence[SlotReport], budget_bytes: int | None = None) -> list[dict[str, Any]]:
    """Per slot: where its tasks ran, rows received by its stages, bytes in memory, those of them beyond its budget,
    bytes fetched cold, and CPU milliseconds."""
    found: dict[int, list[SlotReport]] = {}
    for report in reports:
        found.setdefault(report.slot, []).append(report)
    return [
        {
            "slot": slot,
            "hosts": sorted({report.worker.host for report in mine}),
            "executors": sorted({report.worker.executor for report in mine}),
            "rows": _sum(mine, ROWS),
            "memoryBytes": (held := _sum(mine, MEMORY_BYTES)),
            "borrowedBytes": 0 if budget_bytes is None else max(0, held - budget_bytes),
            "fetchedColdBytes": _sum(mine, FETCHED_BYTES),
            "cpuMs": _sum(mine, *CPU_TIMES) // 1_000_000,
        }
        for slot, mine in sorted(found.items())
    ]


def hosts(reports: Sequence[SlotReport]) -> dict[str, dict[str, Any]]:
    """Per host: the slots that ran there, the bytes that they have in memory there, and those fetched cold."""
    found: dict[str, list[SlotReport]] = {}
    for report in reports:
        found.setdefault(report.worker.host, []).append(report)
    return {
        host: {
            "slots": sorted({report.slot for report in there}),
            "memoryBytes": _sum(there, MEMORY_BYTES),
            "fetchedColdBytes": _sum(there, FETCHED_BYTES),
        }
        for host, there in sorted(found.items())
    }


def _sum(reports: Sequence[SlotReport], *measures: Measure) -> int:
    return sum(report.counts.of(measure) for report in reports for measure in measures)


def stores(counts: Counts) -> dict[str, dict[str, int]]:
    """Rows and bytes of every store."""
    return {
        label: {"rows": rows, "bytes": counts.of(STORE_BYTES, label)} for label, rows in counts.by(STATE_ROWS).items()
    }
