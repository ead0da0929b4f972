"""The stores that groups lack which come from a slot of another shape (MSLB; D2; dissertation 22).

The rows of the stores that both slots have are there, for they moved. All others are joined from those, children first,
as in a build (`engine/rebuild.py`). This is silent: results of these rows have been emitted by the sender. After that
the rows of the epoch are joined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from watersmeet.engine.rebuild import merged_of_store, stores_built
from watersmeet.engine.work import Scratch
from watersmeet.epoch.task import SlotTask
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.cuts import cut_to_groups
from watersmeet.state.groups import Groups
from watersmeet.state.run import Run


def rows_lacking(
    plan: JoinPlan, task: SlotTask, stores: Sequence[Sequence[Run]], scratch: Scratch
) -> list[tuple[int, Run]]:
    """The rows that groups of the task lack, with the numbers of their stores. `stores` are the active rows."""
    nodes = plan.stages[task.stage].shape(task.slot)
    found: list[tuple[int, Run]] = []
    for lacking, groups in _by_stores(task.lacks):
        cut = ([cut_to_groups(run, groups, plan.partitions) for run in runs] for runs in stores)
        held = [[run for run in runs if run.rows] for runs in cut]
        rows = stores_built(nodes, lacking, held, plan.partitions, scratch)
        found += [(store, run) for store in lacking for run in merged_of_store(store, rows[store], scratch)]
    return found


def _by_stores(lacks: Sequence[tuple[int, Groups]]) -> Iterator[tuple[tuple[int, ...], Groups]]:
    """Groups that lack the same stores, together with these."""
    stores: dict[int, list[int]] = defaultdict(list)
    for store, groups in lacks:
        for group in groups.numbers().tolist():
            stores[group].append(store)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for group, lacking in stores.items():
        together[tuple(sorted(lacking))].append(group)
    for of_groups, alike in together.items():
        yield of_groups, Groups.of_numbers(alike)
