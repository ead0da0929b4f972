"""Calls of registered predicates: whole arrays, or row by row. The answer is checked and becomes an Arrow array.

If a function fails, or does not return one truth value per row, an error names it, with file and line: a worker raises
it, and the driver shows it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.query.registered import RegisteredFunction


def call(predicate: RegisteredFunction, arguments: Sequence[Any], rows: int) -> pa.Array:
    """One truth value, or NULL, per row. An argument is an array of `rows` values, or a scalar that all rows share."""
    arrays = [pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value for value in arguments]
    try:
        if predicate.vectorized:
            answer = predicate.function(*arrays)
        else:
            answer = [predicate.function(*row) for row in zip(*(array.to_pylist() for array in arrays), strict=True)]
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise QueryError(
            f"predicate '{predicate.name}' failed with {reason} ({_place(predicate, error)})",
            hint="NULL comes as None, or as a null in an array: the function must bear it",
            error_class="PREDICATE_FAILED",
        ) from error
    found = _from_arrays(predicate, answer) if predicate.vectorized else _from_rows(predicate, answer)
    if len(found) != rows:
        raise _wrong(predicate, f"{len(found)} values for {rows} rows")
    if found.type == pa.null():
        return pa.nulls(rows, pa.bool_())
    if found.type != pa.bool_():
        raise _wrong(predicate, f"values of type {found.type}")
    return found


def _from_arrays(predicate: RegisteredFunction, answer: Any) -> pa.Array:
    match answer:
        case pa.ChunkedArray():
            return pa.concat_arrays(answer.chunks) if answer.num_chunks else pa.nulls(0, answer.type)
        case pa.Array():
            return answer
        case np.ndarray() if answer.ndim == 1:
            try:
                return pa.array(answer)
            except pa.ArrowException:
                raise _wrong(predicate, f"a NumPy array of {answer.dtype}") from None
    raise _wrong(predicate, f"a {type(answer).__name__}")


def _from_rows(predicate: RegisteredFunction, answer: Sequence[Any]) -> pa.Array:
    for value in answer:
        if not (value is None or isinstance(value, bool | np.bool_)):
            raise _wrong(predicate, f"a {type(value).__name__}")
    return pa.array([None if value is None else bool(value) for value in answer], pa.bool_())


def _wrong(predicate: RegisteredFunction, what: str) -> QueryError:
    due = (
        "a vectorised predicate returns a boolean pyarrow or NumPy array with one value per row"
        if predicate.vectorized
        else "a predicate that is called row by row returns True, False or None"
    )
    where = _definition(predicate.function)
    return QueryError(f"predicate '{predicate.name}' returned {what}{where}", hint=due, error_class="PREDICATE_FAILED")


def _place(predicate: RegisteredFunction, error: Exception) -> str:
    """The place where the user's code failed: the innermost frame in the function's own file, else in any file."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the call here
    own = getattr(_code(predicate.function), "co_filename", None)
    frame = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1] if frames else None)
    return "in a function without Python code" if frame is None else f"{frame.filename}, line {frame.lineno}"


def _definition(function: Any) -> str:
    code = _code(function)
    return "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"


def _code(function: Any) -> Any:
    """The code of a function, of a `functools.partial`, or of a callable object."""
    function = getattr(function, "func", function)
    found = getattr(function, "__code__", None)
    return getattr(type(function).__call__, "__code__", None) if found is None else found
