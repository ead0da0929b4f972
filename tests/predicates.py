"""Registered predicates that scenarios may use, each twice: as the engine calls it, and as the oracle understands it.

| predicate          | called with  | what it is good for                                                    |
|--------------------|--------------|------------------------------------------------------------------------|
| near(x, y)         | arrays       | unknown where an argument is NULL; any numbers, also an expression      |
| spread(x, y, z)    | arrays       | three streams; answers with NumPy, and NULL counts as 0                 |
| small(x)           | arrays       | one stream                                                              |
| alike(x, y)        | values       | true for two NULLs                                                      |
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.query.registered import RegisteredFunction, registered


def _doubles(values: pa.Array) -> pa.Array:
    return values.cast(pa.float64(), safe=False)


def _near(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.less_equal(pc.abs(pc.subtract(_doubles(left), _doubles(right))), 1.0)


def _spread(*arguments: pa.Array) -> np.ndarray:
    known = [_doubles(values).fill_null(0.0).to_numpy(zero_copy_only=False) for values in arguments]
    with np.errstate(invalid="ignore"):
        return np.max(known, axis=0) - np.min(known, axis=0) <= 1.0


def _small(values: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([pc.less_equal(_doubles(values), 1.0)])


def _near_row(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else abs(float(x) - float(y)) <= 1.0


def _spread_row(*values: Any) -> bool:
    known = [0.0 if value is None else float(value) for value in values]
    return not any(map(math.isnan, known)) and max(known) - min(known) <= 1.0


def _small_row(x: Any) -> bool | None:
    return None if x is None else float(x) <= 1.0


def _alike_row(x: Any, y: Any) -> bool | None:
    if x is None or y is None:
        return True if x is y else None
    return float(x) == float(y)


FUNCTIONS: dict[str, RegisteredFunction] = {
    f.name: f
    for f in (
        registered("near", _near),
        registered("spread", _spread),
        registered("small", _small),
        registered("alike", _alike_row, vectorized=False),
    )
}
BY_ROW: dict[str, Callable[..., bool | None]] = {
    "near": _near_row,
    "spread": _spread_row,
    "small": _small_row,
    "alike": _alike_row,
}
