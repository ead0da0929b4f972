"""The generation column: the last column of the payload, with the generation of each row.

Closed state of several generations is merged into one run (`engine/closed_state.py`), so that files and extents do not
grow in number with the generations. The column is valid only in an extent of `SEVERAL` generations: when its groups are
cleaned up, the extent gets one generation, the file does not change, and the column has no meaning any more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.state.run import Run
from watersmeet.state.segment import compact

GENERATION_FIELD = pa.field("_generation", pa.int32())
Numbers = npt.NDArray[np.int32]


def labelled(run: Run, generation: int) -> Run:
    """The run with a generation column; all its rows are of one generation."""
    run = compact(run)
    column = pa.array(np.full(run.rows, generation, dtype=np.int32))
    names = pa.schema([*run.payload.schema, GENERATION_FIELD])
    return replace(run, payload=pa.RecordBatch.from_arrays([*run.payload.columns, column], schema=names))


def generations_of(run: Run) -> Numbers:
    """The generations in the column of a run, by row number."""
    column: Numbers = run.payload.column(run.payload.num_columns - 1).to_numpy()
    return column


def without_generations(run: Run) -> Run:
    """The run without the column, if it has one."""
    columns = run.payload.schema.names
    if not columns or columns[-1] != GENERATION_FIELD.name:
        return run
    return replace(run, payload=run.payload.select(columns[:-1]))
