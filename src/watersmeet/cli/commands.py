"""The commands. Checks that need no Spark are made before Spark is started, the cheapest first.

Exit codes: 0 done, 1 an error (one of ours, or one of Spark's in short; no traceback), 2 a mistake on the command line,
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.cli.files import with_format
from watersmeet.cli.hints import assumptions
from watersmeet.cli.parser import make_parser
from watersmeet.cli.repair import repair
from watersmeet.cli.specs import StreamSpec
from watersmeet.cli.wording import cli_text, with_missing_stream
from watersmeet.errors import OptionError, QueryError, WatersmeetError
from watersmeet.query.cql import read_sql
from watersmeet.query.from_sql import sources_of
from watersmeet.state.measures import RESULTS
from watersmeet.state.requests import APPROVE, put_request
from watersmeet.state.storage import local_path

if TYPE_CHECKING:
    from watersmeet.observe.progress import EpochProgress

INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Asked:
    """A query text and its streams, checked as far as possible without Spark. `sources` has the streams by alias."""

    text: str
    streams: tuple[StreamSpec, ...]
    sources: dict[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    chosen = make_parser().parse_args(arguments)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": _run,
        "explain": _explain,
        "simulate": _simulate,
        "repair": _repair,
        "approve": _approve,
        "sample-data": _sample_data,
        "demo": _demo,
    }
    try:
        return commands[chosen.command](chosen)
    except WatersmeetError as error:
        print(cli_text(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("watersmeet: interrupted; the same command starts again from nothing", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it
        sys.stdout = None
        return 0
    except OSError as error:
        print(f"watersmeet: {error.filename or 'this machine'}: {error.strerror or error}", file=sys.stderr)
        return 1


def _demo(chosen: argparse.Namespace) -> int:
    from watersmeet.demo import run_demo  # Spark is loaded only when it is needed

    return run_demo(chosen.folder, chosen.rows, verbose=chosen.verbose)


def _repair(chosen: argparse.Namespace) -> int:
    return repair(local_path(chosen.checkpoint), chosen.apply)


def _approve(chosen: argparse.Namespace) -> int:
    put_request(local_path(chosen.checkpoint), APPROVE)
    print("asked: the query migrates after its next epoch, if a migration waits for approval")
    return 0


def _sample_data(chosen: argparse.Namespace) -> int:
    from watersmeet.sample_data import BANKS, SHOP, make_samples

    make_samples(chosen.folder, chosen.rows)
    print(f"{', '.join((*BANKS, *SHOP))}: in {chosen.folder}\n\nnow try")
    streams = " ".join(f"--stream {bank}={shlex.quote(str(chosen.folder / bank))}" for bank in BANKS[:2])
    print(f"  watersmeet run {streams} \\")
    print('      -e "SELECT bank1.broker, bank1.price, bank2.price FROM bank1 JOIN bank2 USING (currency, lot)')
    print('          WITHIN 1 MINUTE WHERE bank1.price < bank2.price"')
    return 0


def _run(chosen: argparse.Namespace) -> int:
    asked = read_query(chosen)
    say = _silent if chosen.quiet else _say
    for spec in asked.streams:
        if spec.format == "schema":
            raise OptionError(
                f"stream {spec.name} has columns only", hint="name its rows to run the query; explain needs none"
            )
    sink = chosen.sink
    checkpoint = chosen.checkpoint or sink.default_checkpoint
    if checkpoint is None and not sink.forgets:
        raise OptionError(
            f"sink {sink.format} needs a place for the state of the query",
            hint="name a folder on this machine, or one mounted at the same path everywhere, with --checkpoint PATH",
            error_class="MISSING_CHECKPOINT_LOCATION",
        )
    trigger = chosen.trigger or (None if any(spec.is_live for spec in asked.streams) else "available-now")

    from watersmeet.cli.before_spark import check_sink

    check_sink(sink, checkpoint)
    predicates = _checked(chosen)

    from watersmeet.cli import on_spark  # Spark is loaded only when it is needed

    is_new = not on_spark.is_running()
    with _session(chosen, say) as spark, on_spark.spark_errors():
        join = on_spark.build_join(spark, asked.text, asked.streams, chosen.option, predicates, say)
        query = on_spark.start(join, sink, checkpoint, chosen.mode, trigger)
        return _follow(query, checkpoint, say, is_new=is_new)


def _session(chosen: argparse.Namespace, say: Callable[[str], None]) -> AbstractContextManager[Any]:
    from watersmeet.cli import on_spark

    return on_spark.session(chosen.master, dict(chosen.conf), chosen.packages, say, verbose=chosen.verbose)


def _follow(query: Any, checkpoint: str | None, say: Callable[[str], None], *, is_new: bool = False) -> int:
    """Report every epoch until the query ends, or Ctrl-C ends it. In a new session the first epoch takes long, so a
    line explains the wait once there are rows."""
    from watersmeet.observe.terminal import COMPILING, epoch_line
    from watersmeet.runtime.spark.query import epochs_of, resent_by

    told, is_waiting = -1, is_new

    def tell() -> None:
        nonlocal told
        for epoch in epochs_of(query):
            if epoch.epoch > told:
                told = epoch.epoch
                say(epoch_line(epoch))

    if (pending := query.pending) is not None:
        say(f"waiting for an approval (watersmeet approve {checkpoint}): {pending['reason']}")
    try:
        while not query.awaitTermination(0.2):
            tell()
            if is_waiting and (told >= 0 or query.status["isDataAvailable"]):
                is_waiting = False
                if told < 0:
                    say(COMPILING)
    except KeyboardInterrupt:
        with suppress(Exception):
            query.stop()
        tell()
        print(f"watersmeet: stopped by Ctrl-C; {_restart_hint(checkpoint)}", file=sys.stderr)
        return INTERRUPTED
    tell()
    say(f"done: {'; '.join(_outcome(epochs_of(query), resent_by(query)))}")
    return 0


def _outcome(epochs: Sequence[EpochProgress], resent: int) -> list[str]:
    """What a run has done, in parts of a sentence."""
    found = [f"{resent:,} results of an earlier run were sent"] if resent else []
    if epochs:
        found.append(f"{epochs[-1].totals.of(RESULTS):,} results since the query was first started")
    return found or ["there was nothing new to read"]


def _restart_hint(checkpoint: str | None) -> str:
    if checkpoint is None:
        return "the state was temporary, so the same command starts again from nothing"
    return f"all is kept in {checkpoint}, and the same command goes on from there"


def _explain(chosen: argparse.Namespace) -> int:
    asked = read_query(chosen)

    predicates = _checked(chosen)

    from watersmeet.cli import on_spark

    with _session(chosen, _say) as spark, on_spark.spark_errors():
        join = on_spark.build_join(spark, asked.text, asked.streams, chosen.option, predicates, _say)
        planner, options = on_spark.planner_of(join)
        query = planner.query
        hints = assumptions(query, asked.sources, chosen.rate, chosen.selectivity, chosen.after)
        planner = replace(planner, known=hints)
        plan = planner.first_plan()

    from watersmeet.observe.estimates_text import estimates_text, join_graph_text
    from watersmeet.observe.explain import explain_text

    slots = options.slots
    parts = [join_graph_text(query), explain_text(query, plan, slots), estimates_text(query, plan, hints, slots)]
    if all(stream.name in hints.rates for stream in query.streams):
        parts.append(planner.costs_text(say=None))
    print("\n\n".join(parts))
    return 0


def _simulate(chosen: argparse.Namespace) -> int:
    asked = read_query(chosen)

    from watersmeet.cli.simulate import simulate

    print(simulate(chosen, asked))
    return 0


def read_query(chosen: argparse.Namespace) -> Asked:
    """The query text and its streams; WatersmeetError for a mistake in either."""
    text = _text(chosen)
    names = [spec.name for spec in chosen.stream]
    for name in names:
        if [other.lower() for other in names].count(name.lower()) > 1:
            raise OptionError(f"stream {name} is given twice", hint="leave one --stream out, or rename it")
    asked = read_sql(text)
    try:
        sources = sources_of(asked, names)
    except QueryError as error:
        raise with_missing_stream(error, asked, names) from None
    return Asked(text, tuple(with_format(spec) for spec in chosen.stream), sources)


def _text(chosen: argparse.Namespace) -> str:
    if (chosen.query is None) == (chosen.execute is None):
        what = "there is no query" if chosen.query is None else "there are two queries"
        chosen.parser.error(f'{what}. name a file that holds it, or write it: -e "SELECT ..."')
    if chosen.execute is not None:
        return str(chosen.execute)
    if chosen.query == "-":
        return sys.stdin.read()
    try:
        return Path(chosen.query).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if " " in chosen.query.strip():
            hint = "a query on the command line needs -e before it"
        else:
            hint = f"paths start from {Path.cwd()}"
        reason = getattr(error, "strerror", None) or "it is no text"
        raise OptionError(
            f"cannot read the query file {chosen.query}: {reason}", hint=hint, error_class="FILE_NOT_FOUND"
        ) from None


def _checked(chosen: argparse.Namespace) -> dict[str, Callable[..., Any]]:
    """The registered predicates, after a check of all settings and options."""
    from watersmeet.cli.before_spark import check_options, check_spark

    check_spark(chosen.master, dict(chosen.conf), chosen.packages)
    check_options(chosen.option, dict(chosen.conf))

    from watersmeet.cli.on_spark import load_predicate

    return {name: load_predicate(text) for name, text in chosen.predicate}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _silent(text: str) -> None:
    """No report."""
