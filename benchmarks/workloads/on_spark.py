"""What the workloads on Spark share: files of streams, a session, and a join of them into Parquet."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet
from watersmeet import StreamJoin

START_US = 1_700_000_000_000_000
WINDOW = "60 seconds"


def write_streams(folder: Path, keys: Mapping[str, Mapping[str, int]], args: Namespace) -> None:
    """One file per stream and micro-batch, in time order: key columns, event time, and the number of the row.

    `keys` has how many values each key column of each stream has.
    """
    rng = np.random.default_rng(args.seed)
    rows, batches = args.rows, args.batches
    for name, columns in keys.items():
        (folder / name).mkdir(parents=True)
        ts = np.sort(rng.integers(0, args.seconds * 1_000_000, rows)) + START_US
        values = {column: rng.integers(0, count, rows) for column, count in columns.items()}
        table = pa.table({**values, "ts": pa.array(ts).cast(pa.timestamp("us", tz="UTC")), "n": np.arange(rows)})
        for i in range(batches):
            path = folder / name / f"{i:04d}.parquet"
            pq.write_table(table.slice(i * rows // batches, (i + 1) * rows // batches - i * rows // batches), path)
            os.utime(path, (START_US // 10**6 + i, START_US // 10**6 + i))


def run_join(
    data: Path, work: Path, keys: Mapping[str, Mapping[str, int]], where: str, plan: str, cores: int
) -> dict[str, int]:
    """Join the streams into Parquet, a file of each per micro-batch, and end Spark; what was found."""
    spark = session(cores)
    join = StreamJoin(spark)
    for name, columns in keys.items():
        schema = "".join(f"{column} BIGINT, " for column in columns) + "ts TIMESTAMP, n BIGINT"
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1")
        join = join.stream(name, reader.parquet(str(data / name)), eventTime="ts")
    join = join.where(where).within(WINDOW).select(*(f"{name}.n AS {name}n" for name in keys)).option("plan", plan)
    writer = join.writeStream.format("parquet").option("path", str(work / "rows"))
    query = writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
    return found_in(work / "rows", [f"{name}n" for name in keys])


def session(cores: int) -> SparkSession:
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    (there,) = spark.sparkContext.parallelize([0], 1).map(package_file).collect()
    assert there == watersmeet.__file__, f"Spark's workers have {there}, the driver {watersmeet.__file__}"
    return spark


def package_file(_: Any) -> str:
    import watersmeet

    return watersmeet.__file__


def found_in(rows: Path, columns: list[str]) -> dict[str, int]:
    """Count and order-independent checksum of the results."""
    query = f"SELECT count(*), sum(hash({', '.join(columns)}) % 1000003) FROM read_parquet('{rows}/*.parquet')"
    found = duckdb.connect().execute(query).fetchone()
    assert found is not None
    return {"results": int(found[0]), "checksum": int(found[1] or 0)}
