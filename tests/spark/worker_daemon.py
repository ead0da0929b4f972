"""Spark's daemon of Python workers, with what every worker imports already imported: a fork then costs nothing.

Spark itself imports after the fork, because Arrow and NumPy start threads of their allocators when they are imported.
Those (jemalloc, OpenBLAS) are made to survive a fork, and nothing here has used them before. Our own package is left to
the workers, as for users.
"""

import gc

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    # After each task a worker collects garbage, and need not look through all these modules.
    gc.collect()
    gc.freeze()
    manager()
