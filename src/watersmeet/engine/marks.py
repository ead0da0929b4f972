"""Marks: which rows have arrived since two plans began to run side by side (M2; dissertation 12.2, Alg. 8).

A row is *new* if it arrived since then, and so is a result of new rows only. All others are *old*. The new plan makes
the results of new rows, so the topmost node of the old plan leaves those out. Nodes below it keep them, for old rows to
join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.partials import Generations, Joined, Marks
from watersmeet.plan.layout import StoreLayout, is_mark
from watersmeet.state.run import Run

NEW = 1
OLD_DELTA = 2
"""Differs from both marks of stored rows: an arriving result of old rows joins old and new rows."""


def as_laid_out(run: Run, layout: StoreLayout) -> Run:
    """A stored run with a mark column if the layout has one, and without it otherwise. Rows without a mark are old."""
    if _has_marks(run) and layout.is_marked and run.payload.schema.names[-1] == layout.payload.names[-1]:
        return run
    run = without_marks(run)
    if not layout.is_marked:
        return run
    rows = run.payload.num_rows if run.payload.num_columns else int(run.starts[-1])
    columns = [*run.payload.columns, pa.array(np.zeros(rows, dtype=np.int8))]
    schema = run.payload.schema.append(layout.payload[-1])
    return replace(run, payload=pa.RecordBatch.from_arrays(columns, schema=schema))


def without_marks(run: Run) -> Run:
    return replace(run, payload=run.payload.select(run.payload.schema.names[:-1])) if _has_marks(run) else run


def _has_marks(run: Run) -> bool:
    names = run.payload.schema.names
    return bool(names) and is_mark(names[-1])


def arrived_marks(rows: int) -> pa.Array:
    return pa.array(np.full(rows, NEW, dtype=np.int8))


def marks_of_results(joined: Joined) -> pa.Array:
    """A result is new if all its rows are."""
    inputs = enumerate(joined.node.inputs)
    marks = [joined.partials.bound[i].column(len(layout.payload) - 1).to_numpy() for i, layout in inputs]
    return pa.array(np.minimum.reduce(marks))


def not_all_new(delta: Run, targets: Sequence[Sequence[Run]]) -> Generations:
    """Marks in the form of generations: a probe yields the results that are not of new rows only."""
    own = _marks(delta)
    return Generations(np.where(own == NEW, NEW, OLD_DELTA), [[_marks(run) for run in runs] for runs in targets])


def _marks(run: Run) -> Marks:
    column: Marks = run.payload.column(run.payload.num_columns - 1).to_numpy()
    return column
