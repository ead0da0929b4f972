"""watersmeet: adaptive multi-way stream joins for PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.runtime.spark.stream_join import StreamJoin, sql

__version__ = "0.1.0"
__all__ = ["StreamJoin", "WatersmeetError", "__version__", "sql"]


def __getattr__(name: str) -> Any:
    # Python workers import this package for the engine alone: the Spark face is loaded when it is asked for.
    if name in ("StreamJoin", "sql"):
        from watersmeet.runtime.spark import stream_join

        return getattr(stream_join, name)
    raise AttributeError(f"module 'watersmeet' has no attribute '{name}'")
