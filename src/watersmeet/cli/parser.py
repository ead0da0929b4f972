"""Commands and options of the command line, with their help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from watersmeet import __version__
from watersmeet.cli.hints import read_rate, read_selectivity
from watersmeet.cli.specs import FILES, read_pair, read_sink_spec, read_stream_spec
from watersmeet.errors import OptionError, WatersmeetError
from watersmeet.runtime.repair import WAYS
from watersmeet.runtime.spark.options import KNOWN
from watersmeet.units import parse_duration_us

T = TypeVar("T")

TOP = """\
Adaptive multi-way stream joins for PySpark, on this machine or with any Spark master.

to try it:
  watersmeet demo                      three streams joined live
  watersmeet sample-data data          made-up streams to query:
  watersmeet run --stream bank1=data/bank1 --stream bank2=data/bank2 \\
      -e "SELECT bank1.broker, bank2.price FROM bank1 JOIN bank2
          ON bank1.lot = bank2.lot AND bank1.currency = bank2.currency WITHIN 1 MINUTE"
  watersmeet COMMAND --help            all about a command, with examples
"""

STREAMS = """\
streams: --stream 'NAME=FORMAT:LOCATION?OPTION=VALUE&OPTION=VALUE', once for each stream of the query
  bank1=data/bank1                     a folder; its files tell the format (.parquet, .json, .csv, .orc, .txt)
  bank1=parquet:data/bank1             also json:, csv:, orc:, text:; any folder that Spark can read, such as s3a://...
  ticks=rate:rowsPerSecond=10          Spark's rate source: columns timestamp, value
  lines=socket:localhost:9999          lines of text: column value; with ?includeTimestamp=true also timestamp
  orders=kafka:host:9092/topic         columns key, value, timestamp, ...; read from the start of the topic.
                                       needs --packages org.apache.spark:spark-sql-kafka-0-10_2.13:<your Spark version>
  options of ours:
    eventTime=COLUMN                   when rows happened; default: the only timestamp column, if there is a window
    delay='5 seconds'                  how late rows may be; default: 0 seconds
    schema='k bigint, ts timestamp'    the columns; default for files: inferred from those that are there at the start.
                                       for kafka and socket: each value is a JSON object with these columns
  all other options are Spark's, for its reader: maxFilesPerTrigger=1, header=true, startingOffsets=latest, ...
  (quote the whole: the shell knows & and ? too; inside a value write %26 for &)
"""

OPTIONS = "options of the join: --option NAME=VALUE\n" + "".join(
    f"  {option.name:<37}{option.meaning}\n{'':<39}default: {option.default_text}\n".replace("`", "")
    for option in KNOWN.values()
)

RUN = f"""\
Run a query: SELECT ... FROM stream [RANGE 10 MINUTES], ... WHERE ..., or FROM ... JOIN ... ON ... WITHIN 10 MINUTES.
Results go to standard output (or --sink), one line of progress per epoch to standard error.

{STREAMS}
sinks: --sink 'FORMAT:LOCATION?OPTION=VALUE'
  console                              a table per epoch (the default); console?numRows=100&truncate=false
  parquet:out                          also json:, csv:, orc:, text:; exactly once, whatever is killed when.
                                       partitionBy=a,b and the options of Spark's writer: csv:out?header=true
  kafka:host:9092/topic                the results need a column value; at least once
  noop                                 nowhere: to see how fast it is

{OPTIONS}"""

RUN_EXAMPLES = """\
examples (after `watersmeet sample-data data`):
  watersmeet run examples/cheapest.sql --stream bank1=data/bank1 --stream bank2=data/bank2 --stream bank3=data/bank3

  watersmeet run -e "SELECT o.ts, p.method FROM orders AS o JOIN payments AS p USING (order_id) WITHIN 1 MINUTE" \\
      --stream 'orders=parquet:data/orders?eventTime=ts&delay=5 seconds&maxFilesPerTrigger=1' \\
      --stream 'payments=parquet:data/payments?eventTime=ts&delay=5 seconds&maxFilesPerTrigger=1' \\
      --sink parquet:out --option memoryBudget=256m

The same command run again goes on where it ended: with the files that came since.
exit codes: 0 done, 1 an error, 2 a mistake on the command line, 130 stopped by Ctrl-C
"""

EXPLAIN = f"""\
Show what a query means and how it would run, without running it: the logical query, the join graph, the plan and its
stages, and estimated costs. Spark is asked for types, so it is started; streams are not read, but for the columns of
files without a schema.

{STREAMS}  s1=schema:k bigint, ts timestamp     columns only: nothing has to be there

{OPTIONS}"""

EXPLAIN_EXAMPLES = """\
example:
  watersmeet explain -e "SELECT a.v, b.v FROM a JOIN b ON a.k = b.k WITHIN 10 MINUTES WHERE a.v < b.v" \\
      --stream 'a=schema:k bigint, v double, ts timestamp' --stream 'b=schema:k bigint, v double, ts timestamp' \\
      --rate a=1000 --rate b=200 --selectivity 'a.k = b.k=0.0001' --selectivity 'a.v < b.v=0.5'
"""

SIMULATE = """\
Predict what a query would do on many slots: results a second, how long epochs take, memory, and what its policies would
relocate and spill. Numbers of rows per partition group are simulated on a virtual clock, with the real coordinator.
Spark is not started and no stream is read, so every stream says its columns:
  s1=schema:k bigint, ts timestamp     columns only; also ?eventTime=COLUMN&delay='5 seconds'

Rates and selectivities are hints, as for explain. Every node of the plan needs one key. Without --option memoryBudget
nothing spills. Options of the join are those of run; slots, partitions, plan, memoryBudget, spill and relocation with
their settings matter.
"""

SIMULATE_EXAMPLES = """\
example:
  watersmeet simulate -e "SELECT a.v, b.v FROM a JOIN b ON a.k = b.k WITHIN 10 MINUTES" --slots 200 --hosts 25 \\
      --stream 'a=schema:k bigint, v double, ts timestamp' --stream 'b=schema:k bigint, v double, ts timestamp' \\
      --rate 100000 --selectivity 'a.k = b.k=0.00000001' --skew 0.3 \\
      --option partitions=4000 --option memoryBudget=64m --option relocation=balance
"""

REPAIR = """\
Look into the checkpoint of a query that has ended: do its state and Spark's log belong together? If not, say what is
wrong, which way there is to go on, and what that would lose or repeat. Nothing is changed without --apply.

ways:
  put-back                             Spark's log lacks batches that are in the state, or was replaced: it is made to
                                       end where the state does; nothing is lost or repeated
  rewind                               the state lacks batches that Spark has run: Spark reads them again
What is taken out of Spark's log is kept in CHECKPOINT/repaired-1, -2, ...
exit codes: 0 the query can be started, 1 it cannot
"""

APPROVE = """\
Approve the migration that waits for it: the query was started with --option approval=ask, and its optimiser has found a
better plan. The query migrates after its next epoch. If no migration waits then, nothing happens.
"""

SAMPLES = """\
Make small Parquet streams to try queries on, each in a folder of its name:
  bank1, bank2, bank3                  ts, broker, currency, lot, price
  orders                               ts, order_id, customer, amount
  payments                             ts, order_id, method, paid
  parcels                              ts, order_id, parcel_id, weight
  scans                                ts, parcel_id, depot
  reviews                              ts, order_id, stars
The same rows every time, half an hour of them, in three files each.
"""


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        print(f"watersmeet: {message}\nsee {self.prog} --help", file=sys.stderr)
        sys.exit(2)


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="watersmeet", description=TOP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"watersmeet {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = _command(commands, "run", "run a query over streams", RUN, RUN_EXAMPLES)
    _add_query(run)
    _add_sink(run)
    _add_spark(run)
    explain = _command(commands, "explain", "show the plan of a query and what it may cost", EXPLAIN, EXPLAIN_EXAMPLES)
    _add_query(explain)
    _add_hints(explain)
    _add_spark(explain)
    simulate = _command(commands, "simulate", "predict a query on many slots, from hints", SIMULATE, SIMULATE_EXAMPLES)
    _add_query(simulate)
    _add_hints(simulate)
    _add_simulation(simulate)
    repair = _command(commands, "repair", "look whether a checkpoint is in order, and mend it", REPAIR, "")
    repair.add_argument("checkpoint", metavar="CHECKPOINT", help="the checkpointLocation of the query")
    repair.add_argument("--apply", choices=WAYS, metavar="WAY", help="go this way")
    approve = _command(commands, "approve", "let a running query change its plan", APPROVE, "")
    approve.add_argument("checkpoint", metavar="CHECKPOINT", help="the checkpointLocation of the query")
    samples = _command(commands, "sample-data", "make small streams to try queries on", SAMPLES, "")
    samples.add_argument("folder", type=Path, help="where to write them")
    samples.add_argument("--rows", type=int, default=3000, help="rows per stream (default: 3,000)")
    demo = _command(commands, "demo", "join three banks' offers live, on this machine", "", "")
    demo.add_argument("--rows", type=int, default=1_000_000, help="offers per bank (default: 1,000,000)")
    demo.add_argument("--folder", type=Path, default=Path("demo-output"), help="where to write (default: demo-output)")
    _add_verbose(demo)
    return parser


def _command(commands: Any, name: str, summary: str, description: str, examples: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=description or summary,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_query(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(parser=parser)
    parser.add_argument("query", nargs="?", metavar="QUERY.sql", help="a file with the query; - is standard input")
    parser.add_argument("-e", "--execute", metavar="SQL", help="the query itself, in place of a file")
    parser.add_argument(
        "--stream",
        action="append",
        default=[],
        type=_read("stream", read_stream_spec),
        metavar="NAME=SPEC",
        help="a stream of the query, see above; repeat for each",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=_read("option", lambda text: read_pair(text, "--option slots=4")),
        metavar="NAME=VALUE",
        help="an option of the join, see above; repeat for each",
    )
    parser.add_argument(
        "--predicate",
        action="append",
        default=[],
        type=_read("predicate", lambda text: read_pair(text, "--predicate near=module:function")),
        metavar="NAME=MODULE:FUNCTION",
        help="a Python predicate over pyarrow arrays that conditions may call by this name",
    )


def _add_sink(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sink",
        type=_read("sink", read_sink_spec),
        default="console",
        metavar="SPEC",
        help="where results go, see above (default: console)",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="PATH",
        help="where the query keeps its state, to go on from there; default for the files of "
        f"{', '.join(FILES)} sinks: LOCATION.checkpoint, beside them; for console and noop: a temporary one",
    )
    parser.add_argument(
        "--mode",
        choices=("append", "update", "complete"),
        help="which rows an epoch sends (default: append; for aggregates that keep running: update)",
    )
    parser.add_argument(
        "--trigger",
        type=_read("trigger", _read_trigger),
        metavar="WHEN",
        help="available-now: read all that is there, then end (the default, unless a stream is rate or socket); "
        "or an interval such as '10 seconds', until Ctrl-C",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def _add_hints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rate",
        action="append",
        default=[],
        type=_read("rate", read_rate),
        metavar="[STREAM=]ROWS",
        help="rows a second that arrive, for the estimates; without a stream: of all",
    )
    parser.add_argument(
        "--selectivity",
        action="append",
        default=[],
        type=_read("selectivity", read_selectivity),
        metavar="PREDICATE=SHARE",
        help="the share of pairs that a predicate lets pass (default: keys: a row finds one; others 1/3, filters 1)",
    )
    parser.add_argument(
        "--after",
        type=_read("after", _read_duration),
        metavar="TIME",
        help="how long the query has run, for streams without a window (default: 1 hour)",
    )


def _add_simulation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slots", type=_read("slots", _read_count), metavar="N", help="as --option slots=N")
    parser.add_argument(
        "--hosts", type=_read("hosts", _read_count), default=1, metavar="N", help="that share the slots (default: 1)"
    )
    parser.add_argument(
        "--time",
        type=_read("time", _read_duration),
        help="how long rows arrive (default: twice the longest window; without windows, --after)",
    )
    parser.add_argument(
        "--batch",
        type=_read("batch", _read_duration),
        default="10 seconds",
        metavar="TIME",
        help="the interval of micro-batches (default: 10 seconds)",
    )
    parser.add_argument(
        "--skew",
        type=_read("skew", _read_skew),
        default=0.0,
        metavar="S",
        help="partition group r of a key gets rows like 1 / r^S (default: 0, all the same)",
    )


def _read_count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise OptionError(f"'{text}' is no whole number from 1", hint="such as 200")
    return int(text)


def _read_skew(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 3:
        raise OptionError(f"'{text}' is no skew", hint="write a number from 0 (all groups the same) to 3")
    return found


def _add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", default="local[*]", help="the Spark master (default: local[*], all cores)")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_read("conf", lambda text: read_pair(text, "--conf spark.driver.memory=4g")),
        metavar="NAME=VALUE",
        help="a setting of Spark, such as spark.driver.memory=4g or spark.sql.session.timeZone=UTC",
    )
    parser.add_argument("--packages", metavar="MAVEN", help="packages that Spark is to fetch, such as Kafka's")
    _add_verbose(parser)


def _add_verbose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="also what Spark itself says, from its start on")


def _read_trigger(text: str) -> str:
    """An interval, or available-now."""
    if text.lower().replace("-", "").replace("_", "") == "availablenow":
        return "available-now"
    parse_duration_us(text, allow_zero=True)
    return text


def _read_duration(text: str) -> str:
    parse_duration_us(text)
    return text


def _read(name: str, reader: Callable[[str], T]) -> Callable[[str], T]:
    """A reader for argparse, whose errors become usage errors."""

    def read(text: str) -> T:
        try:
            return reader(text)
        except WatersmeetError as error:
            raise argparse.ArgumentTypeError(f"{error.message}. {error.hint}".rstrip(". ")) from None

    read.__name__ = name
    return read
