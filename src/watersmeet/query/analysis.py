"""What the query needs to know from Spark: the type of an expression that Spark will evaluate.

The query itself knows no Spark. Whoever builds it hands in this one question, or None where there is nobody to ask (the
in-process runner): then only what the engine evaluates by itself can be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


class Analyse(Protocol):
    """The type that Spark gives to an SQL expression over some columns; QueryError if Spark refuses it."""

    def __call__(self, sql: str, columns: Sequence[pa.Field]) -> pa.DataType: ...
