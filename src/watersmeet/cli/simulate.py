"""The command `simulate`: what a query would do on many slots, from its text and hints. Spark is not started."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from watersmeet.cli.columns import stream_of
from watersmeet.cli.hints import assumptions
from watersmeet.errors import OptionError
from watersmeet.optimizer.assumptions import Assumptions, graph_of, horizon_us
from watersmeet.optimizer.dominating import Budget
from watersmeet.planning.planner import Planner
from watersmeet.query.cql import read_sql
from watersmeet.query.from_sql import build_sql_query
from watersmeet.query.logical import JoinQuery
from watersmeet.simulation.counter_model import Cluster
from watersmeet.simulation.prediction import Asked, predicted, prediction_text
from watersmeet.units import parse_bytes, parse_duration_us

if TYPE_CHECKING:
    from watersmeet.cli.commands import Asked as AskedQuery
    from watersmeet.runtime.spark.options import JoinOptions

EPOCHS_MAX = 100_000
WINDOWS = 2
"""How many times its longest window a query is simulated for."""


def simulate(chosen: argparse.Namespace, asked: AskedQuery) -> str:
    """The prediction, as text; WatersmeetError for whatever cannot be simulated."""
    query = _query(asked)
    known = assumptions(query, asked.sources, chosen.rate, chosen.selectivity, chosen.after)
    if missing := [stream.name for stream in query.streams if stream.name not in known.rates]:
        raise OptionError(
            f"the arrival rate of {', '.join(missing)} is not known",
            hint=f"write --rate {missing[0]}=1000, in rows a second, or --rate 1000 for all streams",
            error_class="MISSING_RATE",
        )
    options, budget = _options(chosen)
    batch_s = parse_duration_us(chosen.batch) / 1e6
    known = replace(known, batch_s=batch_s)
    cluster = _cluster(chosen, options, budget)
    bytes_max = math.inf if budget is None else budget
    planner = Planner(
        query,
        options.plan,
        known,
        options.slots,
        options.partitions,
        Budget(options.cpu_budget, bytes_max),
        options.exploration_s,
    )
    seconds = _seconds(chosen, query, known)
    if seconds > EPOCHS_MAX * batch_s:
        raise OptionError(
            f"{seconds / batch_s:,.0f} epochs are more than a simulation takes ({EPOCHS_MAX:,})",
            hint="give a shorter --time, or a longer --batch",
            error_class="TOO_MANY_EPOCHS",
        )
    what = Asked(
        plan=planner.first_plan(),
        graph=graph_of(query, known),
        cluster=cluster,
        seconds=seconds,
        batch_s=batch_s,
        skew=chosen.skew,
    )
    return prediction_text(what, predicted(what))


def _query(asked: AskedQuery) -> JoinQuery:
    given = [stream_of(spec) for spec in asked.streams]
    guessed = frozenset(spec.name for spec in asked.streams if spec.event_time is None)
    return build_sql_query(read_sql(asked.text), given, guess_event_time=guessed)


def _options(chosen: argparse.Namespace) -> tuple[JoinOptions, int | None]:
    """The options of the join, and the memory budget of a slot if one is given: this machine's memory says nothing of
    others."""
    from watersmeet.cli.before_spark import check_options
    from watersmeet.runtime.spark.options import option_name, read_options

    given = [*chosen.option, *([] if chosen.slots is None else [("slots", str(chosen.slots))])]
    check_options(given, {})
    named = {option_name(name): value for name, value in given}
    budget = parse_bytes(named["memoryBudget"]) if "memoryBudget" in named else None
    options = read_options(named, parallelism=1)
    return replace(options, memory_budget_bytes=budget), budget


def _cluster(chosen: argparse.Namespace, options: JoinOptions, budget: int | None) -> Cluster:
    from watersmeet.runtime.spark.coordination import relocator_of, spill_settings

    hosts = min(chosen.hosts, options.slots)
    return Cluster(
        slots=options.slots,
        hosts=hosts,
        budget_bytes=budget,
        spill=spill_settings(options),
        relocator=relocator_of(options),
    )


def _seconds(chosen: argparse.Namespace, query: JoinQuery, known: Assumptions) -> float:
    if chosen.time is not None:
        return parse_duration_us(chosen.time) / 1e6
    windows: Sequence[int] = [window for window in query.windows_us if window is not None]
    return (WINDOWS * max(windows) if windows else horizon_us(query, known)) / 1e6
