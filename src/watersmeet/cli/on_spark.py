"""The one module of the command line that knows Spark: a session, the streams of the specs, and the join over them."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import pyspark
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.cli.specs import FILES, SinkSpec, StreamSpec, broker_and_topic, host_and_port
from watersmeet.errors import OptionError, QueryError, WatersmeetError
from watersmeet.planning.planner import Planner
from watersmeet.runtime.spark.options import JoinOptions
from watersmeet.runtime.spark.quiet_start import quiet_start
from watersmeet.runtime.spark.stream_join import StreamJoin, pieces_of

KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
PLAIN = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
QUIET = {**PLAIN, "spark.log.level": "FATAL"}
INFERRING = {"csv": {"inferSchema": "true"}, "json": {"inferTimestamp": "true"}}
"""Default options of a reader that has to infer the columns."""

Say = Callable[[str], None]


def is_running() -> bool:
    """Whether there is a session already, so that Spark need not start."""
    return SparkSession.getActiveSession() is not None


@contextmanager
def session(
    master: str, conf: Mapping[str, str], packages: str | None, say: Say, *, verbose: bool = False
) -> Iterator[SparkSession]:
    """A new session, stopped at the end of the command. If the program has a session already, that one is used and not
    stopped. Spark prints nothing unless `verbose`."""
    if (lent := SparkSession.getActiveSession()) is not None:
        yield lent
        return
    say("starting Spark ...")
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("watersmeet")
    settings = {
        **(PLAIN if verbose else QUIET),
        **({"spark.jars.packages": packages} if packages else {}),
        **conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with quiet_start(verbose=verbose or "spark.log.level" in conf) as start:
        try:
            spark = builder.getOrCreate()
        except (Py4JError, PySparkException) as error:
            said = re.findall(r"^(?:: |Caused by: )[\w.$]+: (.*)$", str(error), re.MULTILINE)
            said = said or [line for line in start.lines if line.strip()] or [str(error)]
            raise OptionError(
                f"Spark does not start with master '{master}': {said[-1]}",
                hint="look at --master, --conf and --packages; --verbose shows all that Spark says",
            ) from None
        if "spark.log.level" in settings:
            spark.sparkContext.setLogLevel(settings["spark.log.level"])
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's handler cancels jobs before our clean stop
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn errors of Spark and of epochs into one line without a traceback."""
    try:
        yield
    except WatersmeetError:
        raise
    except PySparkException as error:
        if "BrokenPipeError" in str(error):
            raise BrokenPipeError from error
        raise _in_short(error) from error


def _in_short(error: PySparkException) -> WatersmeetError:
    text = str(error).strip()
    if "Failed to find" in text and "kafka" in text:
        return OptionError(
            "this Spark has no Kafka", hint=f"add --packages {KAFKA}", error_class="MISSING_SPARK_PACKAGE"
        )
    lines = [line for line in text.splitlines() if line.strip()]
    raised = re.findall(r"^[\w.]+(?:Error|Exception)\b.*$", text, re.MULTILINE) if "Traceback" in text else []
    said = re.sub(r"^pyspark[\w.]*\.", "", [*raised[-1:], *lines, type(error).__name__][0])
    return WatersmeetError(
        f"Spark says: {said}",
        hint="for all that it says add --verbose",
        error_class="SPARK_FAILED",
    )


def build_join(
    spark: SparkSession,
    text: str,
    specs: Sequence[StreamSpec],
    options: Sequence[tuple[str, str]],
    predicates: Mapping[str, Callable[..., Any]],
    say: Say,
) -> StreamJoin:
    """The join of a query text over the streams of the specs."""
    join = StreamJoin(spark)
    plain: dict[str, DataFrame] = {}
    for spec in specs:
        df = _opened(spark, spec, say)
        if spec.event_time is None and spec.delay is None:
            plain[spec.name] = df
        else:
            event_time = spec.event_time or _only_timestamp(spec, df)
            join = join.stream(spec.name, df, eventTime=event_time, delay=spec.delay)
    for name, value in options:
        join = join.option(name, value)
    for name, function in predicates.items():
        join = join.register(name, function)
    return join.sql(text, **plain)


def load_predicate(text: str) -> Callable[..., Any]:
    """The function named by `module:function`; the current folder is searched too."""
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise OptionError(f"'{text}' names no function", hint="write --predicate near=module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise OptionError(
            f"cannot import module '{module_name}': {error}", hint=f"it is looked for in {os.getcwd()} too"
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise OptionError(f"module '{module_name}' has no function '{name}'")
    cloudpickle.register_pickle_by_value(module)  # workers need not find the module
    return function


def _opened(spark: SparkSession, spec: StreamSpec, say: Say) -> DataFrame:
    reader = spark.readStream.options(**spec.options)
    match spec.format:
        case "schema":
            return _placeholder_stream(spark, _schema_of(spec.name, spec.location))
        case "rate":
            return reader.format("rate").load()
        case "socket":
            host, port = host_and_port(f"stream {spec.name}", spec.location)
            return _with_columns(reader.format("socket").option("host", host).option("port", port).load(), spec)
        case "kafka":
            brokers, topic = broker_and_topic(f"stream {spec.name}", spec.location)
            reader = reader.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
            if "startingOffsets" not in spec.options:
                reader = reader.option("startingOffsets", "earliest")
            return _with_columns(reader.load(), spec)
    assert spec.format in FILES
    schema = _inferred(spark, spec, say) if spec.schema is None else _schema_of(spec.name, spec.schema)
    return reader.format(spec.format).schema(schema).load(spec.location)


def _inferred(spark: SparkSession, spec: StreamSpec, say: Say) -> StructType:
    """The columns of the files that exist now."""
    options = {**INFERRING.get(spec.format, {}), **spec.options}
    schema = spark.read.format(spec.format).options(**options).load(spec.location).schema
    if schema.names == ["_corrupt_record"]:
        raise OptionError(
            f"stream {spec.name}: the files in {spec.location} cannot be read as {spec.format}",
            hint="name their format before the path; for JSON over several lines add ?multiLine=true",
            error_class="UNKNOWN_FORMAT",
        )
    if spec.format != "text":
        columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in schema)
        nameless = spec.format == "csv" and schema.names[:1] == ["_c0"]
        advice = "; if their first line holds names, add ?header=true" if nameless else ""
        say(f"stream {spec.name}, by the files that are there: {columns}{advice}")
    return schema


def _schema_of(name: str, text: str) -> StructType:
    try:
        return StructType.fromDDL(text)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise OptionError(
            f"stream {name}: '{text}' is no schema ({reason})",
            hint="write columns and types, like 'k bigint, ts timestamp, v double'",
            error_class="INVALID_SCHEMA",
        ) from None


def _placeholder_stream(spark: SparkSession, schema: StructType) -> DataFrame:
    """A stream with these columns, for planning only; it never runs."""
    columns = [F.lit(None).cast(column.dataType).alias(column.name) for column in schema]
    return spark.readStream.format("rate").load().select(*columns)


def _with_columns(df: DataFrame, spec: StreamSpec) -> DataFrame:
    """With a schema, values are JSON objects with these columns; other columns of the source are kept."""
    if spec.schema is None:
        return df
    schema = _schema_of(spec.name, spec.schema)
    taken = {column.lower() for column in (*schema.names, "value", "key")}
    others = [column for column in df.columns if column.lower() not in taken]
    return df.withColumn("value", F.from_json(F.col("value").cast("string"), schema)).select("value.*", *others)


def _only_timestamp(spec: StreamSpec, df: DataFrame) -> str:
    found = [column.name for column in df.schema if column.dataType.typeName().startswith("timestamp")]
    if len(found) != 1:
        columns = ", ".join(found) or "none"
        raise QueryError(
            f"stream '{spec.name}' has a delay, but its event time is not clear (timestamp columns: {columns})",
            hint=f"name it: --stream '{spec.name}=...?eventTime=COLUMN&delay={spec.delay}'",
            error_class="MISSING_EVENT_TIME",
        )
    return found[0]


def planner_of(join: StreamJoin) -> tuple[Planner, JoinOptions]:
    return pieces_of(join).planner()


def start(join: StreamJoin, sink: SinkSpec, checkpoint: str | None, mode: str | None, trigger: str | None) -> Any:
    """Start the query; without a mode, in the mode that fits it."""
    _, plan, _ = pieces_of(join).build()
    fitting = "append" if plan.aggregate is None else plan.aggregate.mode
    writer = join.writeStream.format(sink.format).options(**sink.options).outputMode(mode or fitting)
    if sink.format == "kafka":
        brokers, topic = broker_and_topic("the sink", sink.location)
        writer = writer.option("kafka.bootstrap.servers", brokers).option("topic", topic)
    elif sink.location:
        writer = writer.option("path", sink.location)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    return writer.start()
