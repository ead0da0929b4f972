"""A check of the Python workers before the first batch: they need the driver's version of watersmeet, and memory for a
slot.

A worker without the package would otherwise fail in the first micro-batch, behind a hundred lines of Java. So a small
job asks workers for their facts (`PROBE`, which needs only Python). It is skipped where workers certainly run the
driver's code: on a local master, with the driver's own interpreter.

Known limitation: it asks as many workers as the join has slots. A worker on a host that joins later is not asked.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

import watersmeet
from watersmeet.errors import OptionError, WatersmeetError
from watersmeet.units import format_bytes

PROBE = """
def probe(rows):
    import os, platform, shutil, sys
    location = next(iter(rows), None)
    try:
        import watersmeet
        version, problem = watersmeet.__version__, ""
    except Exception as error:
        version, problem = "", f"{type(error).__name__}: {error}"
    try:
        free = shutil.disk_usage(location).free if location else -1
    except OSError:
        free = -1
    yield platform.node(), sys.executable, version, problem, free
"""


class WorkerFacts(NamedTuple):
    """The facts that a worker reports; `memory_free` is -1 if the memory folder does not exist."""

    host: str
    python: str
    version: str
    problem: str
    memory_free: int


def require_able_workers(spark: SparkSession, slots: int, memory: str | None, budget_bytes: int | None) -> int:
    """The number of hosts that have workers. WatersmeetError if one cannot run the join; `memory` is the location of
    the memory tier, if any."""
    if _are_surely_ours(spark):
        return 1
    found = asked(spark, slots, memory)
    for facts in found:
        require_able(facts, memory, budget_bytes)
    return len({facts.host for facts in found})


def asked(spark: SparkSession, slots: int, memory: str | None) -> list[WorkerFacts]:
    """The facts of the workers; WatersmeetError if a worker has no usable Python."""
    namespace: dict[str, Any] = {"__name__": "__main__"}  # so that it travels by value
    exec(PROBE, namespace)
    try:
        told = spark.sparkContext.parallelize([memory or ""] * slots, slots).mapPartitions(namespace["probe"]).collect()
    except Exception as error:  # PySpark's, or py4j's, which has no class of PySpark's
        raise _cannot_start(spark, str(error)) from None
    return sorted({WorkerFacts(*facts) for facts in told})


def require_able(facts: WorkerFacts, memory: str | None, budget_bytes: int | None) -> None:
    """WatersmeetError if a worker lacks something; it says what to set."""
    where = f"{facts.python} on {facts.host}"
    if facts.problem:
        raise _cannot_work(
            f"the Python workers of Spark cannot import watersmeet: {facts.problem} ({where})",
            f"set PYSPARK_PYTHON={sys.executable} before Spark starts, or install watersmeet {watersmeet.__version__} "
            f"there: {facts.python} -m pip install watersmeet=={watersmeet.__version__}",
        )
    if facts.version != (ours := watersmeet.__version__):
        raise _cannot_work(
            f"the Python workers of Spark have watersmeet {facts.version}, the driver {ours} ({where})",
            "install one version on the driver and on all executors",
        )
    if memory is not None and budget_bytes is not None and facts.memory_free < budget_bytes:
        state = "is missing" if facts.memory_free < 0 else f"has {format_bytes(facts.memory_free)} free"
        raise OptionError(
            f"{memory} {state} on {facts.host}, and a slot may use {format_bytes(budget_bytes)} there",
            hint="lower memoryBudget, or name another tmpfs with memoryLocation",
        )


def _are_surely_ours(spark: SparkSession) -> bool:
    context = spark.sparkContext
    is_local = context.master.startswith("local") and not context.master.startswith("local-cluster")
    python = shutil.which(context.pythonExec)
    return is_local and python is not None and os.path.samefile(python, sys.executable) and _same_prefix(python)


def _same_prefix(python: str) -> bool:
    """Whether an interpreter is in the driver's environment: a link to it from elsewhere has other packages."""
    return os.path.dirname(os.path.abspath(python)) == os.path.dirname(os.path.abspath(sys.executable))


def _cannot_start(spark: SparkSession, text: str) -> WatersmeetError:
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    telling = [line for line in lines if "Cannot run program" in line or "PYTHON_VERSION_MISMATCH" in line]
    reason = telling[0] if telling else next((line for line in text.splitlines() if line.strip()), "no reason given")
    return _cannot_work(
        f"the Python workers of Spark do not start: {reason}",
        f"workers run '{spark.sparkContext.pythonExec}': set PYSPARK_PYTHON={sys.executable} before Spark starts",
    )


def _cannot_work(message: str, hint: str) -> WatersmeetError:
    return WatersmeetError(message, hint=hint, error_class="WORKERS_CANNOT_WORK")
