"""watersmeet: adaptive multi-way stream joins for PySpark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.runtime.spark.query import JoinQueryHandle
    from watersmeet.runtime.spark.stream_join import StreamJoin, sql
    from watersmeet.runtime.spark.writer import JoinStreamWriter

__version__ = "0.1.0"
__all__ = ["JoinQueryHandle", "JoinStreamWriter", "StreamJoin", "WatersmeetError", "__version__", "sql"]
_ON_SPARK = {
    "StreamJoin": "stream_join",
    "sql": "stream_join",
    "JoinQueryHandle": "query",
    "JoinStreamWriter": "writer",
}
"""Names of the Spark face, and their modules."""


def __getattr__(name: str) -> Any:
    # Python workers import this package for the engine alone: the Spark face is loaded when it is asked for.
    if name in _ON_SPARK:
        return getattr(import_module(f"watersmeet.runtime.spark.{_ON_SPARK[name]}"), name)
    raise AttributeError(f"module 'watersmeet' has no attribute '{name}'")
