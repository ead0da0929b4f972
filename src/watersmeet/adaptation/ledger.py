"""The ledger: statistics of all partition groups, for people and for policies, from the reports of slots and stages.

| figure                     | for people         | for policies            |
|----------------------------|--------------------|-------------------------|
| size, by store             | of the last epoch  | of the last epoch       |
| output, inter, local       | sum over all epochs| *aged*                  |
| rows that arrived, by store|                    | *aged*                  |
| closed generations         | those not cleaned  |                         |

How figures age is the option `spillUpkeep` (004, IV-B). Epochs without rows do not age them:

| upkeep       | per epoch with rows        | when the group spills | meaning                                      |
|--------------|----------------------------|-----------------------|----------------------------------------------|
| `cumulative` | x + new                    | x                     | total of the group so far (S2)               |
| `reset`      | x + new                    | 0                     | total of the rows that are now in memory     |
| `ewma`       | (1 - a) x + a new, a = 0.5 | 0                     | recent value per epoch                       |

The ledger is kept beside the checkpoint as an Arrow table. Results do not depend on it: a lost or old table only makes
spill decisions worse. Under another plan, the figures of a key stay, and those of a stage if its key is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.adaptation.figures import Floats, GroupFigures, Ints
from watersmeet.adaptation.group_loads import GroupLoads, Prices
from watersmeet.adaptation.placed_groups import LastPlaced
from watersmeet.epoch.task import GroupFigure, SlotReport
from watersmeet.errors import unknown_name
from watersmeet.plan.keys import key_name
from watersmeet.plan.placement import Move, Placement
from watersmeet.plan.spillable import spillable_stages
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import shape_count
from watersmeet.plan.tree import Join, streams_of
from watersmeet.state.measures import STATE_ROWS, STORE_BYTES

UPKEEP_MARK = b"upkeep"
"""In the table's metadata: the upkeep of its aged figures."""
KINDS = ("output", "inter", "local")
GROUP_SCHEMA = pa.schema(
    [
        ("stage", pa.int32()),
        ("streams", pa.string()),
        ("key", pa.string()),
        ("group", pa.int32()),
        ("slot", pa.int32()),
        ("size_bytes", pa.int64()),
        *((kind, pa.int64()) for kind in KINDS),
        ("generations", pa.int32()),
        *((f"upkept_{kind}", pa.float64()) for kind in KINDS),
        ("upkept_arrived", pa.list_(pa.float64())),
    ]
)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How a figure ages from epoch to epoch."""

    restarts: bool
    """Whether the figure becomes 0 when the group spills."""
    weight: float | None = None
    """The weight of the new epoch in a moving average; None for a sum."""

    def next(self, old: Floats, new: Ints) -> Floats:
        return old + new if self.weight is None else (1 - self.weight) * old + self.weight * new


UPKEEPS = {
    "cumulative": Upkeep(restarts=False),
    "reset": Upkeep(restarts=True),
    "ewma": Upkeep(restarts=True, weight=0.5),
}
DEFAULT_UPKEEP = "ewma"
"""With the default policy it is the best, or within a tenth of the best, on all workloads of `benchmarks/figures`."""


def upkeep_named(name: str) -> Upkeep:
    """The upkeep of an option's value, in any case; an unknown one is refused with the nearest."""
    found = UPKEEPS.get(name.strip().lower())
    if found is not None:
        return found
    raise unknown_name("spill upkeep", "upkeeps", name, UPKEEPS, "UNKNOWN_SPILL_UPKEEP")


class GroupLedger:
    """Figures of every partition group of every stage that has a key."""

    def __init__(self, plan: JoinPlan, upkeep: str = DEFAULT_UPKEEP) -> None:
        self.plan, self.upkeep = plan, upkeep.strip().lower()
        self._upkeep = upkeep_named(upkeep)
        self._stages = {number: stage for number, stage in enumerate(plan.stages) if stage.key}
        self._heights = heights(plan)
        shape = len(plan.stages), plan.partitions
        self._totals: dict[GroupFigure, Ints] = {}
        self._upkept: dict[str, Floats] = {kind: np.zeros(shape) for kind in KINDS}
        slots = range(shape_count(plan))
        widths = [max(len(stage.stores(n, slot)) for slot in slots) for n, stage in enumerate(plan.stages)]
        self._arrived = [np.zeros((width, plan.partitions)) for width in widths]
        self._sizes = [np.zeros_like(arrived) for arrived in self._arrived]
        self._generations: Ints = np.zeros(shape, dtype=np.int64)
        self._row_bytes: dict[tuple[int, str], float] = {}
        self._inter: dict[tuple[int, str], tuple[int, int]] = {}
        """Rows and bytes of stored results of nodes, by stage and label, as their stage last reported them."""
        self._inter_row_bytes = 0.0
        self._placed = LastPlaced()

    def add(self, reports: Iterable[SlotReport], *, with_rows: bool = True) -> None:
        """Add the reports of one epoch, of all slots. A stage that sent none keeps its figures.

        An epoch without rows (`with_rows` is false) says nothing about productivity: only sizes and the sums for people
        are updated.
        """
        reports = [report for report in reports if report.stage < len(self.plan.stages)]
        new: dict[GroupFigure, Ints] = {}
        for report in reports:
            for figure, (groups, values) in report.groups.items():
                new.setdefault(figure, self._nothing())[groups] += values
        for number in self._stages.keys() & {report.stage for report in reports}:
            if with_rows:
                self._upkeep_stage(number, new)
            for store, size in enumerate(self._sizes[number]):
                size[:] = new.get(GroupFigure("size", stage=number, store=store), 0)
        for figure in {figure for number in self._stages for figure in self._figures_of(number)} & new.keys():
            self._totals[figure] = self._total(figure) + new[figure]
        self._weigh_rows(reports)

    def _upkeep_stage(self, number: int, new: Mapping[GroupFigure, Ints]) -> None:
        for kind, figure in zip(KINDS, self._figures_of(number), strict=True):
            upkept = self._upkept[kind]
            upkept[number] = self._upkeep.next(upkept[number], new.get(figure, self._nothing()))
        for store, arrived in enumerate(self._arrived[number]):
            figure = GroupFigure("arrived", stage=number, store=store)
            arrived[:] = self._upkeep.next(arrived, new.get(figure, self._nothing()))

    def spilled(self, stage: int, groups: Sequence[int]) -> None:
        """Note that some groups were closed as a generation. They have no active rows until more arrive."""
        at = list(groups)
        self._generations[stage, at] += 1
        self._sizes[stage][:, at] = 0
        if self._upkeep.restarts:
            self._arrived[stage][:, at] = 0
            for upkept in self._upkept.values():
                upkept[stage, at] = 0

    def cleaned(self, stage: int, groups: Sequence[int]) -> None:
        """Note that some groups were cleaned up: their closed generations owe nothing more."""
        self._generations[stage, list(groups)] = 0

    def moved(self, moves: Iterable[Move]) -> None:
        """Note that groups have come to slots that may number their stores otherwise. Of stores that their slot did not
        have, nothing is known yet."""
        for move in moves:
            at = list(move.groups)
            for number in (n for n, stage in self._stages.items() if stage.key_text == move.key):
                old, new = (
                    [layout.name for layout in self._stages[number].stores(number, slot)]
                    for slot in (move.sender, move.receiver)
                )
                known = {name: self._arrived[number][store, at] for store, name in enumerate(old)}
                if old != new:
                    self._arrived[number][:, at] = 0
                    for store, name in enumerate(new):
                        self._arrived[number][store, at] = known.get(name, 0)

    def figures(self, slot: int, placement: Placement, epoch: int) -> GroupFigures:
        """The groups with active state on a slot, in all stages that can spill."""
        numbers = spillable_stages(self.plan)
        width = max((len(self._stages[number].stores(number, slot)) for number in numbers), default=0)
        parts = [self._figures(number, slot, self._groups_of(placement, number, slot), width) for number in numbers]
        return GroupFigures(
            epoch,
            *(np.concatenate(column) for column in zip(_no_figures(width), *parts, strict=True)),
        )

    def loads(self, placement: Placement, prices: Prices) -> GroupLoads:
        """The load of every group of every key that has active state or has had rows of late."""
        keys = tuple(sorted({stage.key_text for stage in self._stages.values()}))
        shape = len(keys), self.plan.partitions
        held, cpu, output = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for number, stage in self._stages.items():
            key = keys.index(stage.key_text)
            held[key] += self._sizes[number].sum(axis=0)
            cpu[key] += prices.cpu_ns(self._arrived[number].sum(axis=0), self._upkept["local"][number])
            output[key] = np.maximum(output[key], self._upkept["output"][number])
        owners = np.array([placement.owners[key] for key in keys], dtype=np.int64).reshape(shape)
        at = np.nonzero((held > 0) | (cpu > 0))
        return GroupLoads(placement.slots, keys, at[0], at[1], owners[at], held[at], cpu[at], output[at])

    def table(self, placement: Placement) -> pa.Table:
        """One row for each stage and group that has state or results, or owes results."""
        schema = GROUP_SCHEMA.with_metadata({UPKEEP_MARK: self.upkeep.encode()})
        parts = [schema.empty_table()]
        for number, stage in self._stages.items():
            size = self._sizes[number].sum(axis=0)
            totals = [self._total(figure) for figure in self._figures_of(number)]
            known = np.flatnonzero(np.any([size, *totals, self._generations[number]], axis=0))
            columns = [
                np.full(len(known), number),
                [self._streams(number)] * len(known),
                [stage.key_text] * len(known),
                known,
                self._owners(placement, number)[known],
                size[known].astype(np.int64),
                *(total[known] for total in totals),
                self._generations[number, known],
                *(self._upkept[kind][number, known] for kind in KINDS),
            ]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, list(schema)[:-1], strict=True)]
            arrays.append(_lists(self._arrived[number][:, known]))
            parts.append(pa.Table.from_arrays(arrays, schema=schema))
        return pa.concat_tables(parts)

    def summary(self) -> list[dict[str, Any]]:
        """Per stage: groups with state, their bytes, the largest, their output, and how many owe results."""
        found = []
        for number in self._stages:
            size = self._sizes[number].sum(axis=0)
            output, inter, _ = (self._total(figure) for figure in self._figures_of(number))
            found.append(
                {
                    "stage": number,
                    "groups": int(np.count_nonzero(size)),
                    "sizeBytes": int(size.sum()),
                    "sizeBytesMax": int(size.max()),
                    "output": int(output.sum()),
                    "outputMax": int(output.max()),
                    "inter": int(inter.sum()),
                    "owedGroups": int(np.count_nonzero(self._generations[number])),
                }
            )
        return found

    def restore(self, table: pa.Table) -> None:
        """Continue from the table of an earlier run. If that had an older format or another upkeep, sums continue from
        its sums, and moving averages start again. A table of another shape is ignored."""
        if not _is_of_groups(table):
            return
        names = self._names_of_version_0_1() if "streams" not in table.schema.names else self._names_of_stages()
        same_upkeep = (table.schema.metadata or {}).get(UPKEEP_MARK) == self.upkeep.encode()
        for row in table.to_pylist():
            group = row["group"]
            if group >= self.plan.partitions:
                continue
            for key in {self._stages[number].key for (_, named), number in names.items() if named == row["key"]}:
                self._set_total(GroupFigure("output", key_name(key)), group, row["output"])
                self._set_total(GroupFigure("inter", key_name(key)), group, row["inter"])
            number = names.get((row.get("streams", row["stage"]), row["key"]))
            if number is None:
                continue
            self._set_total(GroupFigure("local", stage=number), group, row.get("local", 0))
            self._generations[number, group] = row.get("generations", 0)
            if same_upkeep:
                self._restore_upkept(number, group, row)
            elif self._upkeep.weight is None:
                for kind in KINDS:
                    self._upkept[kind][number, group] = row.get(kind, 0)

    def _names_of_stages(self) -> dict[tuple[str | int, str], int]:
        """Stages by their streams and key, as tables name them."""
        return {(self._streams(number), stage.key_text): number for number, stage in self._stages.items()}

    def _names_of_version_0_1(self) -> dict[tuple[str | int, str], int]:
        """Stages by their number and the number of their key class. Version 0.1 never changed a plan."""
        return {(number, key_name(stage.key)): number for number, stage in self._stages.items()}

    def _restore_upkept(self, number: int, group: int, row: dict[str, Any]) -> None:
        for kind in KINDS:
            self._upkept[kind][number, group] = row[f"upkept_{kind}"]
        if len(row["upkept_arrived"]) == len(self._arrived[number]):
            self._arrived[number][:, group] = row["upkept_arrived"]

    def _figures(self, number: int, slot: int, mine: Ints, width: int) -> list[Any]:
        """The columns of `GroupFigures` for one stage, of some groups."""
        stage = self._stages[number]
        stores = stage.stores(number, slot)
        size = self._sizes[number][: len(stores), mine].sum(axis=0)
        known, size = mine[size > 0], size[size > 0]
        sizes = self._sizes[number][: len(stores), known].T
        row_bytes = [self._row_bytes.get((number, layout.label), np.inf) for layout in stores]
        rows = sizes / np.array(row_bytes)
        rows[:, : stage.shape(slot)[-1].first_store] = np.nan
        return [
            np.full(len(known), number),
            known,
            np.full(len(known), self._heights[number]),
            size,
            _widened(sizes, width),
            _widened(rows, width),
            _widened(self._arrived[number][: len(stores), known].T, width),
            self._upkept["output"][number, known],
            self._upkept["local"][number, known],
            self._upkept["inter"][number, known] * self._inter_row_bytes,
        ]

    def _weigh_rows(self, reports: Sequence[SlotReport]) -> None:
        """The mean bytes of a row, by store and over all stored results of nodes; an empty store keeps its figure."""
        rows: Counter[tuple[int, str]] = Counter()
        held: Counter[tuple[int, str]] = Counter()
        for report in reports:
            for layout in self.plan.stages[report.stage].stores(report.stage, report.slot):
                store = report.stage, layout.label
                rows[store] += report.counts.of(STATE_ROWS, layout.label)
                held[store] += report.counts.of(STORE_BYTES, layout.label)
                if isinstance(layout.tree, Join):
                    self._inter[store] = rows[store], held[store]
        self._row_bytes |= {store: held[store] / count for store, count in rows.items() if count and held[store]}
        if count := sum(stored for stored, _ in self._inter.values()):
            self._inter_row_bytes = sum(size for _, size in self._inter.values()) / count

    def _streams(self, number: int) -> str:
        """The streams that a stage joins. With its key, they identify the stage under any plan."""
        return " ".join(sorted(self.plan.names[stream] for stream in streams_of(self._stages[number].node)))

    def _owners(self, placement: Placement, number: int) -> Ints:
        return self._placed.by(placement).owners[self._stages[number].key_text]

    def _groups_of(self, placement: Placement, number: int, slot: int) -> Ints:
        """The groups of a slot, ascending."""
        return self._placed.by(placement).of(self._stages[number].key_text, slot)

    def _figures_of(self, number: int) -> tuple[GroupFigure, ...]:
        """The figures of a stage in reports, by kind. Results are traced by key."""
        key = key_name(self._stages[number].key)
        return GroupFigure("output", key), GroupFigure("inter", key), GroupFigure("local", stage=number)

    def _total(self, figure: GroupFigure) -> Ints:
        return self._totals.get(figure, self._nothing())

    def _set_total(self, figure: GroupFigure, group: int, value: int) -> None:
        self._totals.setdefault(figure, self._nothing())[group] = value

    def _nothing(self) -> Ints:
        return np.zeros(self.plan.partitions, dtype=np.int64)


def _is_of_groups(table: pa.Table) -> bool:
    """Whether it can be a table of this version or an earlier one: known columns have their types, and no NULL. Other
    columns are ignored."""
    known = [field for field in GROUP_SCHEMA if field.name in table.schema.names]
    columns = [table.column(field.name).combine_chunks() for field in known]
    typed = all(column.type == field.type for column, field in zip(columns, known, strict=True))
    needed = {"stage", "key", "group", "output", "inter"} <= {field.name for field in known}
    if not typed or not needed or any(column.null_count for column in columns):
        return False
    lists = [column.flatten() for column in columns if pa.types.is_list(column.type)]
    return not any(values.null_count for values in lists) and min(table["group"].to_pylist(), default=0) >= 0


def heights(plan: JoinPlan) -> list[int]:
    """Per stage: 0 if its inputs are all streams, else one more than the highest stage that feeds it."""
    found = [0] * len(plan.stages)
    for number, stage in enumerate(plan.stages):
        for fed in stage.sends_to:
            found[fed] = max(found[fed], found[number] + 1)
    return found


def _no_figures(width: int) -> Iterator[Any]:
    """Empty columns, for a slot without groups."""
    for kind in (np.int64, np.int64, np.int64, np.float64):
        yield np.zeros(0, dtype=kind)
    for _ in range(3):
        yield np.zeros((0, width))
    for _ in range(3):
        yield np.zeros(0)


def _lists(columns: Floats) -> pa.Array:
    """An Arrow list per column."""
    offsets = np.arange(columns.shape[1] + 1, dtype=np.int32) * columns.shape[0]
    return pa.ListArray.from_arrays(offsets, columns.T.ravel())


def _widened(columns: Floats, width: int) -> Floats:
    """The array with more columns, filled with NaN."""
    if columns.shape[1] == width:
        return columns
    return np.pad(columns, ((0, 0), (0, width - columns.shape[1])), constant_values=np.nan)
