"""Sliding and tumbling windows over panes: what leaves a window is cancelled, what enters it is added.

The rows of a run are (group, pane), in that order, with accumulators. A window is a range of the panes of its group,
found by two binary searches in the codes. Counts and sums of integers of all windows come from one running sum: the sum
up to the window's end minus the sum up to its start, which cancels the panes that have left (dissertation 11.3). It is
exact, because integers wrap round in both sums alike. Floats, decimals, extremes and sets cannot be cancelled without
loss; for them the panes of each window are reduced anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.engine.accumulators import reduce
from watersmeet.engine.kernels import Ranges, expand, rows_between
from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.state.run import Ints, Run, take


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of the groups of a run: the number of the group, where the window starts, and its accumulators."""

    ranks: Ints
    starts: Ints
    values: list[pa.Array]


def windows_of_panes(plan: AggregatePlan, run: Run, ranks: Ints, panes: Ints) -> Windows | None:
    """The windows that contain some panes of some groups; None if there are none."""
    return _windows(plan, run, *_containing(plan, ranks, panes))


def windows_between(plan: AggregatePlan, run: Run, after_us: int | None, until_us: int) -> Windows | None:
    """The windows with rows in them that end after `after_us` and not after `until_us`."""
    assert plan.window is not None
    ranks, starts = _containing(plan, run.row_ranks(), run.times(run.rows_slice()))
    ends = starts + np.int64(plan.window.length_us)
    wanted = ends <= until_us
    if after_us is not None:
        wanted &= ends > after_us
    return _windows(plan, run, ranks[wanted], starts[wanted])


def _containing(plan: AggregatePlan, ranks: Ints, panes: Ints) -> tuple[Ints, Ints]:
    """(group, start) of every window that contains one of the panes, each once."""
    assert plan.window is not None
    length, slide = plan.window.length_us, plan.window.slide_us
    last = panes - panes % np.int64(slide)
    count = -(-length // slide)
    starts = (last[:, None] - np.arange(count, dtype=np.int64) * np.int64(slide)).ravel()
    owners, inside = np.repeat(ranks, count), starts + np.int64(length) > np.repeat(panes, count)
    pairs = np.unique(np.stack([owners[inside], starts[inside]]), axis=1)
    return pairs[0], pairs[1]


def _windows(plan: AggregatePlan, run: Run, ranks: Ints, starts: Ints) -> Windows | None:
    assert plan.window is not None
    if not len(ranks):
        return None
    found = rows_between(run, ranks, starts, starts + np.int64(plan.window.length_us))
    ranks, starts = ranks[found.needle], starts[found.needle]
    first = run.rows_slice().start
    begin = found.start - first
    end = begin + found.count
    values: dict[int, pa.Array] = {}
    others = []
    for i, accumulator in enumerate(plan.accumulators):
        if accumulator.combine == "sum" and accumulator.type == pa.int64():
            column = run.payload.column(i).slice(first, run.rows).to_numpy()
            running = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(column)])
            values[i] = pa.array(running[end] - running[begin])
        else:
            others.append(i)
    if others:
        numbers, rows = expand(Ranges(np.arange(len(ranks)), found.start, found.count))
        columns = [take(run.payload.column(i), rows) for i in others]
        reduced = reduce(numbers, len(ranks), columns, [plan.accumulators[i] for i in others])
        values |= dict(zip(others, reduced, strict=True))
    return Windows(ranks, starts, [values[i] for i in range(len(plan.accumulators))])
