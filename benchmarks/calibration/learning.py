"""What the first rows of a query tell of its data, as its first micro-batch does on Spark
(`runtime/spark/learning.py`): with the same estimates (`planning/first_rows.py`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.planning.first_rows import SAMPLE_ROWS, Floats, equal_share, passing_share, rows_by_key
from watersmeet.query.expressions import columns_of
from watersmeet.query.logical import JoinQuery, KeyClass


def learned(query: JoinQuery, rows: Mapping[str, pa.Table]) -> Assumptions:
    """What some rows of every stream say of a query's data."""
    tables = [rows[stream.name] for stream in query.streams]
    counts = [table.num_rows for table in tables]
    keys = {i: equal_share(_by_key(c, tables), counts, sorted(c.streams)) for i, c in enumerate(query.classes)}
    residuals = {}
    for number, residual in enumerate(query.residuals):
        names = dict.fromkeys(column.stream for column in columns_of(residual))
        samples = {name: rows[name].slice(0, SAMPLE_ROWS).combine_chunks().to_batches()[0] for name in names}
        residuals[number] = passing_share(residual, samples)
    return Assumptions(
        rates={stream.name: _rate(rows[stream.name][stream.event_time]) for stream in query.streams},
        keys={number: share for number, share in keys.items() if share is not None},
        residuals={number: share for number, share in residuals.items() if share is not None},
    )


def _rate(times: pa.ChunkedArray) -> float:
    us = times.cast(pa.int64()).to_numpy()
    return len(us) * 1e6 / max(1, int(us.max()) - int(us.min()))


def _by_key(key_class: KeyClass, tables: list[pa.Table]) -> Floats:
    """By key and stream: all rows."""
    values = [tables[i][key_class.columns[i]].to_numpy() for i in sorted(key_class.streams)]
    stream = np.repeat(sorted(key_class.streams), [len(each) for each in values])
    everyone = np.ones(len(stream), dtype=bool)
    return rows_by_key(np.concatenate(values), stream, everyone, part=1, streams=len(tables))
