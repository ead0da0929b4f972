"""A driver in a process of its own, to be killed: joins all there is in `folder/{a,b,c}` into `folder/out`, and exits.

    python -m tests.spark.driver_program <folder> [<master>]

With PYSPARK_GATEWAY_PORT it is a guest in the JVM of the test, which outlives it; otherwise it has a JVM of its own.
It prints `ready` when Spark is up and waits for a line on its standard input, so that a test can have the next driver
ready before it kills this one; then `started`, when the query runs. Exit code 0: everything is in the sink.
WATERSMEET_TEST_JOIN_OPTIONS has options of the join, as JSON, and WATERSMEET_TEST_BYTES_AT_ONCE how much of what was
spilled one epoch cleans up. WATERSMEET_TEST_WORKERS_FAILPOINT is the failpoint of the Python workers of a guest.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.spark.helpers import join_of, start
from tests.spark.session import SESSION_SETTINGS
from watersmeet import failpoints
from watersmeet.adaptation import coordinator
from watersmeet.adaptation.clean_up import cleaning_orders
from watersmeet.epoch.kinds import Clean

JOIN_OPTIONS = "WATERSMEET_TEST_JOIN_OPTIONS"
BYTES_AT_ONCE = "WATERSMEET_TEST_BYTES_AT_ONCE"
WORKERS_FAILPOINT = "WATERSMEET_TEST_WORKERS_FAILPOINT"
SHORT_LIVED = {
    "spark.executor.extraJavaOptions": SESSION_SETTINGS["spark.driver.extraJavaOptions"],
    # To generate and compile code takes longer than all that it would be run for.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def main(folder: Path, master: str) -> None:
    spark = guest_session() if "PYSPARK_GATEWAY_PORT" in os.environ else own_session(folder, master)
    print("ready", flush=True)
    if not sys.stdin.readline():
        os._exit(2)
    if BYTES_AT_ONCE in os.environ:
        coordinator.cleaning_orders = few_at_once(int(os.environ[BYTES_AT_ONCE]))
    options = {"slots": 2, **json.loads(os.environ.get(JOIN_OPTIONS, "{}"))}
    query = start(join_of(spark, folder).options(**options), folder / "out", folder / "ck")
    print("started", flush=True)
    query.awaitTermination()
    # The work is done and acknowledged; an orderly end of Spark would only take time.
    os._exit(0)


def few_at_once(bytes_at_once: int) -> Callable[..., tuple[Clean, ...]]:
    """`cleaning_orders` for less than the coordinator asks for."""
    return lambda plan, manifest, **how: cleaning_orders(plan, manifest, **how | {"bytes_at_once": bytes_at_once})


def own_session(folder: Path, master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("watersmeet-driver")
    for name, value in (SESSION_SETTINGS | SHORT_LIVED).items():
        builder = builder.config(name, value)
    spark = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def guest_session() -> SparkSession:
    gateway = launch_gateway()
    running = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jconf=running.getConf())
    workers = {failpoints.VARIABLE: os.environ[WORKERS_FAILPOINT]} if WORKERS_FAILPOINT in os.environ else {}
    return SparkSession(SparkContext(gateway=gateway, jsc=running, conf=conf, environment=workers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "local[2]")
