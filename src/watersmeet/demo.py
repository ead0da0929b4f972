"""The demo: the brokerage query R5 (three banks' offers joined on currency and lot within a window), end to end.

It makes Parquet files as three banks would deliver them, joins them as streams with `StreamJoin`, shows progress while
it runs, and asks the result, now an ordinary Parquet folder, which brokers sell cheapest.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from watersmeet.errors import OptionError
from watersmeet.observe.terminal import LiveProgress
from watersmeet.runtime.spark.query import JoinQueryHandle, epochs_of
from watersmeet.runtime.spark.quiet_start import quiet_start
from watersmeet.sample_data import BANKS, BATCHES, make_offers

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from watersmeet.runtime.spark.stream_join import StreamJoin
from watersmeet.state.measures import RESULTS

SCHEMA = "ts TIMESTAMP, broker STRING, currency STRING, lot INT, price DOUBLE"
MARK = ".watersmeet-demo"
INTERRUPTED = 130

COLUMNS = (
    *(f"bank1.{column} AS {column}" for column in ("ts", "currency", "lot", "broker", "price")),
    "bank2.price AS price2",
    "bank3.price AS price3",
)


def run_demo(folder: Path, rows: int, *, verbose: bool = False) -> int:
    """Run the demo in a folder of its own; its exit code. Spark says nothing of its own unless `verbose`."""
    console = Console()
    if rows < BATCHES:
        raise OptionError(f"--rows must be at least {BATCHES}")
    _prepare(folder)
    console.print("[bold]watersmeet[/bold]: three banks' offers, joined on currency and lot within 20 seconds\n")
    began = time.monotonic()
    with console.status(f"making {len(BANKS)} x {rows:,} offers as Parquet files ..."):
        for seed, bank in enumerate(BANKS):
            make_offers(folder / "in" / bank, rows, seed)
    with console.status("starting Spark ..."):
        spark = _session(verbose=verbose)
    query = None
    try:
        query = _started(spark, folder)
        query.explain()
        console.print()
        with LiveProgress(console, BATCHES) as live:
            while not query.awaitTermination(0.25):
                live.show(epochs_of(query))
            live.show(epochs_of(query))
        results = epochs_of(query)[-1].totals.of(RESULTS)
        _report(console, spark, folder, results, time.monotonic() - began)
    except KeyboardInterrupt:
        if query is not None:
            query.stop()
        console.print(f"\nstopped by Ctrl-C; what there is so far is in {folder}")
        return INTERRUPTED
    finally:
        spark.stop()
    return 0


def _started(spark: SparkSession, folder: Path) -> JoinQueryHandle:
    join = StreamJoin(spark)
    for bank in BANKS:
        offers = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in" / bank))
        join = join.stream(bank, offers, eventTime="ts", delay="5 seconds")
    return (
        join.where("bank1.currency = bank2.currency AND bank2.currency = bank3.currency")
        .where("bank1.lot = bank2.lot AND bank2.lot = bank3.lot")
        .within("20 seconds")
        .select(*COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(folder / "offers"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .queryName("brokerage")
        .trigger(availableNow=True)
        .start()
    )


def _prepare(folder: Path) -> None:
    """Make the folder anew; one that is not ours is left alone."""
    if folder.exists():
        if not (folder / MARK).exists():
            raise OptionError(f"{folder} exists and was not made by the demo", hint="name another one with --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def _session(*, verbose: bool) -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master("local[*]")
        .appName("watersmeet demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    with quiet_start(verbose=verbose):
        spark = builder.getOrCreate()
        if not verbose:
            spark.sparkContext.setLogLevel("FATAL")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's own cancels jobs before we can stop well
    return spark


def _report(console: Console, spark: SparkSession, folder: Path, results: int, seconds: float) -> None:
    if not results:
        console.print(f"\nno results in {seconds:.0f} s: so few offers do not meet; try a larger --rows")
        return
    offers = spark.read.parquet(str(folder / "offers"))
    sample = Table(title="a few results", title_justify="left")
    for name in offers.columns:
        sample.add_column(name, justify="right" if name.startswith("price") or name == "lot" else "left")
    for row in offers.orderBy("ts", "lot", "price", "price2", "price3").limit(5).collect():
        sample.add_row(*(f"{value:%F %T}" if isinstance(value, datetime) else str(value) for value in row))
    console.print(sample)
    cheapest = offers.groupBy("broker").agg(F.min("price").alias("best"), F.count("*").alias("offers"))
    ranking = Table(title="who sells cheapest (min price by broker)", title_justify="left")
    for name in ("broker", "best price", "joined offers"):
        ranking.add_column(name, justify="left" if name == "broker" else "right")
    rows = cheapest.orderBy("best", "broker").collect()
    for row in rows:
        ranking.add_row(row["broker"], f"{row['best']:.2f}", f"{row['offers']:,}")
    console.print(ranking)
    stored = sum(row["offers"] for row in rows)
    agreed = "all there" if stored == results else f"[red]but the folder holds {stored:,}[/red]"
    console.print(f"\n[bold]{results:,}[/bold] results in {seconds:.0f} s, {agreed}: {folder / 'offers'}")
