"""A stage of a plan that hands its groups over to another one (`plan/handover.py`), on one slot in one epoch.

Rows of groups below a boundary are joined by the new shape, all others by the old one. What the stage stores is one set
of rows: a row that arrives is stored once, whoever joins it. After the join, a chunk of groups may change sides: the
stores that only the new shape has are built for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watersmeet.engine.layers import slice_of
from watersmeet.engine.partials import Joined
from watersmeet.engine.rebuild import stores_built
from watersmeet.engine.statistics import Tally
from watersmeet.engine.work import Scratch, Work
from watersmeet.epoch.task import SlotTask
from watersmeet.plan.handover import new_stores
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.groups import Groups
from watersmeet.state.run import Run


class Sides:
    """Both shapes of a stage, each with the rows of its own groups."""

    def __init__(
        self, plan: JoinPlan, task: SlotTask, stores: Sequence[Sequence[Run]], scratch: Scratch, tally: Tally
    ) -> None:
        """`stores`: the rows by store of the stage."""
        stage = plan.stages[task.stage]
        self._plan, self._task, self._scratch = plan, task, scratch
        self._numbers = [list(range(sum(len(node.inputs) for node in stage.shape(task.slot))))]
        self._numbers.append(new_stores(stage, task.slot))
        self._groups = Groups.between(task.handed_over, plan.partitions), Groups.between(0, task.handed_over)
        shapes = stage.shape(task.slot), stage.successor(task.slot)
        self._works = [
            Work(nodes, [self._own(stores[number], groups) for number in numbers], scratch, tally)
            for nodes, numbers, groups in zip(shapes, self._numbers, self._groups, strict=True)
        ]
        self._there = [work.rows_by_store() for work in self._works]
        self._arrived: list[tuple[int, Run]] = []
        self._entry = {
            source: node.first_store + i
            for node in stage.shape(task.slot)
            for i, source in enumerate(node.stage_inputs)
            if source is not None
        }

    def results(self, deltas: Sequence[Sequence[Run]]) -> Iterator[Joined]:
        """The new results of the stage from one chunk of rows. All stores are brought up to date."""
        kept = [[self._scratch.keep(self._entry[i], run) for run in runs] for i, runs in enumerate(deltas)]
        self._arrived += [(self._entry[i], run) for i, runs in enumerate(kept) for run in runs]
        for work, groups in zip(self._works, self._groups, strict=True):
            yield from work.results(len(work.nodes) - 1, [self._own(runs, groups) for runs in kept])

    def take_arrived(self) -> list[tuple[int, Run]]:
        """The rows to store: those of the chunk as they came, and results of the nodes below the topmost ones."""
        arrived, self._arrived = self._arrived, []
        entries = set(self._entry.values())
        for work, numbers in zip(self._works, self._numbers, strict=True):
            arrived += [(numbers[s], run) for s, run in work.take_arrived() if numbers[s] not in entries]
        return arrived

    def count_rows(self) -> None:
        for work, there in zip(self._works, self._there, strict=True):
            work.count_rows(self._task.stage, there)

    def handed_over(self, low: int, high: int) -> list[tuple[int, Run]]:
        """The rows of stores that only the new shape has, for groups of the old side that change sides."""
        old, new = self._works
        old_stores, numbers = len(self._numbers[0]), self._numbers[1]
        groups = Groups.between(low, high)
        held = [self._own(old.stores[n], groups) if n < old_stores else [] for n in numbers]
        building = [store for store, n in enumerate(numbers) if n >= old_stores]
        rows = stores_built(new.nodes, building, held, self._plan.partitions, self._scratch)
        return [(numbers[store], run) for store in building for run in rows[store]]

    def _own(self, runs: Sequence[Run], groups: Groups) -> list[Run]:
        cut = (slice_of(run, groups, self._plan.partitions) for run in runs) if groups else ()
        return [run for run in cut if run.rows]
