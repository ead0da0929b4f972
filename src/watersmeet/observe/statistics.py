"""What is known of a running join: rates, selectivities, stores, partition groups and calibrated costs.

Counts come from the reports of the slots and, over the life of a checkpoint, from the totals of its manifest; figures
of partition groups are added up here and kept beside the checkpoint as an Arrow table. They advise, they decide
nothing about results: a table that is lost or old costs knowledge only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.task import SlotReport
from watersmeet.plan.keys import key_name
from watersmeet.plan.layout import StoreLayout
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import streams_of
from watersmeet.query.expressions import to_text
from watersmeet.query.logical import JoinQuery

GROUP_SCHEMA = pa.schema(
    [
        ("stage", pa.int32()),
        ("key", pa.string()),
        ("group", pa.int32()),
        ("slot", pa.int32()),
        ("size_bytes", pa.int64()),
        ("output", pa.int64()),
        ("inter", pa.int64()),
    ]
)


class GroupStatistics:
    """P_size, P_output and P_inter of every partition group, from the reports of all slots and stages.

    Sizes are those of the last epoch; outputs and intermediate results add up over the life of the query.
    """

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan
        self._figures: dict[str, npt.NDArray[np.int64]] = defaultdict(self._nothing)

    def add(self, reports: Iterable[SlotReport]) -> None:
        sizes = [name for name in self._figures if name.startswith("size.")]
        for name in sizes:
            self._figures[name] = self._nothing()
        for report in reports:
            for name, (groups, figures) in report.groups.items():
                self._figures[name][groups] += figures

    def table(self, assignment: Sequence[int]) -> pa.Table:
        """One row per stage and group that has state or results."""
        parts = []
        for number, stage in enumerate(self.plan.stages):
            if not stage.key:
                continue
            figures = self._of_stage(number)
            known = np.flatnonzero(np.any(figures, axis=0))
            columns = [
                np.full(len(known), number),
                [key_name(stage.key)] * len(known),
                known,
                np.asarray(assignment, dtype=np.int32)[known],
                *(figure[known] for figure in figures),
            ]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, GROUP_SCHEMA, strict=True)]
            parts.append(pa.Table.from_arrays(arrays, schema=GROUP_SCHEMA))
        return pa.concat_tables(parts) if parts else GROUP_SCHEMA.empty_table()

    def summary(self) -> list[dict[str, Any]]:
        """Per stage: groups with state, their bytes, the largest, and how much they have yielded."""
        found = []
        for number, stage in enumerate(self.plan.stages):
            if stage.key:
                size, output, inter = self._of_stage(number)
                found.append(
                    {
                        "stage": number,
                        "groups": int(np.count_nonzero(size)),
                        "sizeBytes": int(size.sum()),
                        "sizeBytesMax": int(size.max()),
                        "output": int(output.sum()),
                        "outputMax": int(output.max()),
                        "inter": int(inter.sum()),
                    }
                )
        return found

    def restore(self, table: pa.Table) -> None:
        """Go on from a table that an earlier run has left."""
        for row in table.to_pylist():
            if row["group"] < self.plan.partitions:
                for kind in ("output", "inter"):
                    self._figures[f"{kind}.{row['key']}"][row["group"]] = row[kind]

    def _of_stage(self, number: int) -> list[npt.NDArray[np.int64]]:
        """P_size, P_output and P_inter; the last two are those of the stage's key."""
        key = key_name(self.plan.stages[number].key)
        return [self._figures[name] for name in (f"size.{number}", f"output.{key}", f"inter.{key}")]

    def _nothing(self) -> npt.NDArray[np.int64]:
        return np.zeros(self.plan.partitions, dtype=np.int64)


def selectivities(query: JoinQuery, plan: JoinPlan, totals: Mapping[str, int]) -> dict[str, float]:
    """The share of pairs, or of tested rows, that each predicate lets pass, over the life of the query."""
    texts: dict[str, str] = {}
    for stage in plan.stages:
        for node in (*(n for shape in stage.shapes for n in shape), *(hop.node for hop in stage.hops)):
            for i, left in enumerate(node.inputs):
                for right in node.inputs[:i]:
                    name = "~".join(sorted((left.label, right.label)))
                    texts[name] = _equality_text(query, node.key, left, right)
    pairs: Counter[str] = Counter()
    matches: Counter[str] = Counter()
    for name, text in texts.items():
        if text:
            pairs[text] += totals.get(f"pairs.{name}", 0)
            matches[text] += totals.get(f"matches.{name}", 0)
    found = {text: matches[text] / pairs[text] for text in pairs if pairs[text]}
    for number, residual in enumerate(query.residuals):
        if tested := totals.get(f"tested.residual {number}"):
            found[to_text(residual)] = totals.get(f"passed.residual {number}", 0) / tested
    for number in range(len(query.classes)):
        if tested := totals.get(f"tested.key {number}"):
            found[f"key {number}, beside another"] = totals.get(f"passed.key {number}", 0) / tested
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


def costs(totals: Mapping[str, int]) -> dict[str, float]:
    """The constants of the cost model (O1) as this engine has them, in nanoseconds per row: C_i to store a row,
    C_d to let one go, C_j to match one."""
    figures = {"insert": ("insert_ns", "inserted"), "delete": ("expire_ns", "expired"), "join": ("probe_ns", "matched")}
    return {name: round(totals[spent] / totals[rows], 1) for name, (spent, rows) in figures.items() if totals.get(rows)}


def arrivals(
    names: Sequence[str], rows: Sequence[int], times_us: Sequence[tuple[int | None, int | None]], seconds: float
) -> dict[str, dict[str, float]]:
    """Rows per stream, per second of the clock and per second of event time since the epoch before."""
    found: dict[str, dict[str, float]] = {}
    for name, count, (before, after) in zip(names, rows, times_us, strict=True):
        found[name] = {"rows": count, "rowsPerSecond": round(count / seconds, 3) if seconds > 0 else 0.0}
        if before is not None and after is not None and after > before:
            found[name]["rowsPerEventSecond"] = round(count * 1e6 / (after - before), 3)
    return found


def stores(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Rows and bytes of every store."""
    labels = [name.removeprefix("state_rows.") for name in counts if name.startswith("state_rows.")]
    return {x: {"rows": counts[f"state_rows.{x}"], "bytes": counts.get(f"store_bytes.{x}", 0)} for x in labels}
