"""Sliding and tumbling windows over panes: what leaves a window is cancelled, what enters it is added.

The rows of a run are (group, pane), in that order, with accumulators. A window is a range of the panes of its group,
found by two binary searches in the codes. Counts and sums of integers of all windows come from one running sum: the sum
up to the window's end minus the sum up to its start, which cancels the panes that have left (dissertation 11.3). It is
exact, because integers wrap round in both sums alike. Floats, decimals, extremes and sets cannot be cancelled without
loss; for them the panes of each window are reduced anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.engine.accumulators import reduce
from watersmeet.engine.kernels import Ranges, cut_points, expand, rows_between
from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.state.run import Ints, Run, take

PANES_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of the groups of a run: the number of the group, where the window starts, and its accumulators."""

    ranks: Ints
    starts: Ints
    values: list[pa.Array]


def windows_of_panes(plan: AggregatePlan, run: Run, ranks: Ints, panes: Ints) -> Windows | None:
    """The windows that contain some panes of some groups; None if there are none."""
    return _windows(plan, run, *_containing(plan, ranks, panes))


def windows_between(plan: AggregatePlan, run: Run, after_us: int | None, until_us: int | None) -> Windows | None:
    """The windows with rows in them that end after `after_us` and not after `until_us`; None is no bound."""
    return _windows(plan, run, *_containing(plan, run.row_ranks(), run.times(run.rows_slice()), after_us, until_us))


def _containing(
    plan: AggregatePlan, ranks: Ints, panes: Ints, after_us: int | None = None, until_us: int | None = None
) -> tuple[Ints, Ints]:
    """(group, start) of every window that contains one of the panes, each once; if asked for, of those that end after
    `after_us` and not after `until_us`.

    Windows are numbered by start, and a pane's are neighbours; those of the pane before it in the group are known.
    """
    assert plan.window is not None
    length, slide = plan.window.length_us, plan.window.slide_us
    order = np.lexsort((panes, ranks))
    ranks, panes = ranks[order], panes[order]
    low, high = (panes - np.int64(length)) // np.int64(slide) + 1, panes // np.int64(slide)
    if after_us is not None:
        low = np.maximum(low, (after_us - length) // slide + 1)
    if until_us is not None:
        high = np.minimum(high, (until_us - length) // slide)
    low[1:] = np.where(ranks[1:] == ranks[:-1], np.maximum(low[1:], high[:-1] + 1), low[1:])
    owners, numbers = expand(Ranges(np.arange(len(low)), low, np.maximum(high - low + 1, 0)))
    return ranks[owners], numbers * np.int64(slide)


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
        values |= dict(zip(others, _reduced(plan, run, found, others), strict=True))
    return Windows(ranks, starts, [values[i] for i in range(len(plan.accumulators))])


def _reduced(plan: AggregatePlan, run: Run, windows: Ranges, accumulators: Sequence[int]) -> list[pa.Array]:
    """Some accumulators of windows, of all their panes anew; a pane is in many windows, so some are taken at a time."""
    cuts = cut_points(windows.count, PANES_AT_ONCE)
    parts = []
    for part in (windows.slice(low, high) for low, high in pairwise(cuts)):
        numbers, rows = expand(Ranges(np.arange(len(part.count)), part.start, part.count))
        columns = [take(run.payload.column(i), rows) for i in accumulators]
        parts.append(reduce(numbers, len(part.count), columns, [plan.accumulators[i] for i in accumulators]))
    return [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]
