"""Sliding and tumbling windows over panes: panes that leave a window are subtracted, panes that enter are added.

The rows of a run are (group, pane), in that order, with accumulators. A window is a range of the panes of its group,
found by two binary searches in the codes. Counts and sums of integers of all windows come from one running sum: the sum
up to the window's end minus the sum up to its start, which subtracts the panes that have left (dissertation 11.3). This
is exact, because integers wrap round in both sums alike. Floats, decimals, extremes and sets cannot be subtracted
without loss; for them the panes of each window are reduced again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.engine.accumulators import reduce
from watersmeet.engine.kernels import Ranges, cut_points, expand, rows_between
from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.state.moments import EARLIEST_US
from watersmeet.state.run import Ints, Run, take
from watersmeet.state.widths import bytes_between, row_bytes

PANES_AT_ONCE = 1 << 20
BYTES_AT_ONCE = 64 << 20
"""The most panes that are reduced at once, and the most bytes of windows that are made at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of the groups of a run: number of the group, start of the window, and accumulators."""

    ranks: Ints
    starts: Ints
    values: list[pa.Array]


def windows_of_panes(plan: AggregatePlan, run: Run, ranks: Ints, panes: Ints) -> Iterator[Windows]:
    """The windows that contain some panes of some groups, some at a time."""
    return _windows(plan, run, *_containing(plan, ranks, panes))


def windows_between(plan: AggregatePlan, run: Run, after_us: int | None, until_us: int | None) -> Iterator[Windows]:
    """The windows with rows in them that end after `after_us` and not after `until_us`, some at a time; None is no
    bound."""
    return _windows(plan, run, *_containing(plan, run.row_ranks(), run.times(run.rows_slice()), after_us, until_us))


def _containing(
    plan: AggregatePlan, ranks: Ints, panes: Ints, after_us: int | None = None, until_us: int | None = None
) -> tuple[Ints, Ints]:
    """(group, start) of every window that contains one of the panes, each once. With bounds, only windows that end
    after `after_us` and not after `until_us`.

    Windows are numbered by start. A pane's windows are consecutive; those of the group's previous pane are skipped.
    """
    assert plan.window is not None
    length, slide = plan.window.length_us, plan.window.slide_us
    order = np.lexsort((panes, ranks))
    ranks, panes = ranks[order], panes[order]
    low, high = (panes - np.int64(length)) // np.int64(slide) + 1, panes // np.int64(slide)
    if after_us is not None:
        low = np.maximum(low, max((after_us - length) // slide + 1, EARLIEST_US))
    if until_us is not None:
        high = np.minimum(high, max((until_us - length) // slide, EARLIEST_US))
    low[1:] = np.where(ranks[1:] == ranks[:-1], np.maximum(low[1:], high[:-1] + 1), low[1:])
    owners, numbers = expand(Ranges(np.arange(len(low)), low, np.maximum(high - low + 1, 0)))
    return ranks[owners], numbers * np.int64(slide)


def _windows(plan: AggregatePlan, run: Run, ranks: Ints, starts: Ints) -> Iterator[Windows]:
    """Windows in chunks of bounded bytes: each window repeats the key of its group, and a pane is in many windows."""
    assert plan.window is not None
    if not len(ranks):
        return
    found = rows_between(run, ranks, starts, starts + np.int64(plan.window.length_us - 1))
    ranks, starts = ranks[found.needle], starts[found.needle]
    sums = _running_sums(plan, run)
    others = [i for i in range(len(plan.accumulators)) if i not in sums]
    sizes = row_bytes(run.keys, np.arange(len(run.hashes)))[ranks]
    sizes += bytes_between(run.payload, found.start, found.start + found.count)
    for low, high in pairwise(cut_points(sizes, BYTES_AT_ONCE)):
        some = found.slice(low, high)
        begin = some.start - run.rows_slice().start
        values = {i: pa.array(running[begin + some.count] - running[begin]) for i, running in sums.items()}
        if others:
            values |= dict(zip(others, _reduced(plan, run, some, others), strict=True))
        yield Windows(ranks[low:high], starts[low:high], [values[i] for i in range(len(plan.accumulators))])


def _running_sums(plan: AggregatePlan, run: Run) -> dict[int, Ints]:
    """The running sums over the rows of a run, by number of the accumulator, of all that are sums of integers."""
    found = {}
    for i, accumulator in enumerate(plan.accumulators):
        if accumulator.combine == "sum" and accumulator.type == pa.int64():
            column = run.payload.column(i).slice(run.rows_slice().start, run.rows).to_numpy()
            found[i] = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(column)])
    return found


def _reduced(plan: AggregatePlan, run: Run, windows: Ranges, accumulators: Sequence[int]) -> list[pa.Array]:
    """Some accumulators of windows, reduced from all their panes; a few windows at a time, as a pane is in many."""
    cuts = cut_points(windows.count, PANES_AT_ONCE)
    parts = []
    for part in (windows.slice(low, high) for low, high in pairwise(cuts)):
        numbers, rows = expand(Ranges(np.arange(len(part.count)), part.start, part.count))
        columns = [take(run.payload.column(i), rows) for i in accumulators]
        parts.append(reduce(numbers, len(part.count), columns, [plan.accumulators[i] for i in accumulators]))
    return [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]
