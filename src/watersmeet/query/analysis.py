"""The one question that a query asks Spark: the type of an expression that Spark will evaluate.

The query package does not import Spark. The caller passes this function in. The in-process runner passes None; then
only expressions that the engine evaluates can be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


class Analyse(Protocol):
    """The type that Spark gives to an SQL expression over some columns; QueryError if Spark refuses it."""

    def __call__(self, sql: str, columns: Sequence[pa.Field]) -> pa.DataType: ...
