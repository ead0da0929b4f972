"""The options of a join: case-insensitive strings, with session defaults under `spark.watersmeet.`.

They are one table, `KNOWN`. Checks, `--help` and the tables in README.md and docs/queries.md follow from it. A new
option is an entry there and a field of `JoinOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.adaptation.ledger import DEFAULT_UPKEEP, upkeep_named
from watersmeet.adaptation.relocation_policies import policy_named as relocation_named
from watersmeet.adaptation.spill_policies import DEFAULT_POLICY, Policy, policy_named
from watersmeet.adaptation.spilling import DEFAULT_FRACTION
from watersmeet.errors import OptionError, unknown_name
from watersmeet.optimizer.strategies import AUTO
from watersmeet.plan.partitioning import DEFAULT_PARTITIONS, PARTITIONS_MAX
from watersmeet.plan.spillable import INTERVALS
from watersmeet.runtime.spark.memory import DEFAULT_LOCATION, budget_per_slot
from watersmeet.runtime.spark.option_parsers import Given, expected_rows, named, number, numbers, one_of, whole
from watersmeet.runtime.spark.option_parsers import OptionValue as OptionValue
from watersmeet.runtime.spark.session_settings import session_options
from watersmeet.units import parse_bytes, parse_duration_us

OFF = ("off", "false", "none")
ON_CHANGE = ("refuse", "ask", "migrate", "stuff")


@dataclass(frozen=True, slots=True)
class Looks:
    """How often the optimiser looks at a running query."""

    interval_s: float | None
    """None: as often as it finds useful."""
    is_given: bool
    """Whether the user asks for it. Otherwise, plans that the user names are left alone."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Options after parsing."""

    slots: int
    plan: str
    cpu_budget: float
    exploration_s: float
    partitions: int
    memory_budget_bytes: int | None
    """Per slot; None if there is no tmpfs and no budget was given."""
    memory_location: str
    idle_timeout_ms: int | None
    confidence: float | None
    expected_rows: Mapping[str, int]
    spill: Policy | None
    spill_fraction: float
    spill_upkeep: str
    relocation: str | None
    """The relocation policy; None if groups stay where they are."""
    relocation_threshold: float
    relocation_interval_s: float
    relocation_bounds: tuple[float, float, float]
    active_disk_ratio: float
    active_disk_limit_bytes: int
    rehearse: str
    reoptimize: Looks | None
    """How the running query is optimised; None: not at all."""
    approval: bool
    """Whether migrations of the optimiser wait for approval."""
    on_change: str
    """What happens if the query is another one than the checkpoint's: one of `ON_CHANGE`."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its names in texts and in `JoinOptions`, how it is read, and how it is described."""

    name: str
    field: str
    parse: Callable[[str, Given], Any]
    """The parser of the text; other options may bound the value."""
    meaning: str
    default: str | None = None
    """The default text; None: there is no default, or it depends on the machine."""
    otherwise: str = ""
    """How a missing default is described."""
    takes_function: bool = False
    is_special: bool = False
    """Whether few users need it, so that README.md leaves it out."""

    @property
    def default_text(self) -> str:
        """The default as documents show it."""
        if not self.default:
            return self.otherwise
        return self.default if self.default.replace(".", "").isdigit() else f"`{self.default}`"

    def value(self, given: Given) -> Any:
        text = given.get(self.name, self.default)
        return self.parse(text, given) if isinstance(text, str) else text


def option_name(name: str) -> str:
    """The canonical name of an option; an unknown name is refused with the nearest one."""
    by_lower = {known.lower(): known for known in KNOWN}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    raise unknown_name("option", "options", name, KNOWN, "UNKNOWN_OPTION")


def resolve(spark: SparkSession, given: Given) -> JoinOptions:
    """Options as given, else from the session, else the defaults."""
    return read_options({**session_options(spark, KNOWN), **given}, spark.sparkContext.defaultParallelism)


def read_options(given: Given, parallelism: int) -> JoinOptions:
    """Options as values; refuses invalid values and contradictory options. `parallelism` is the default number of
    slots."""
    values = {option.field: option.value(given) for option in KNOWN.values()}
    values["slots"] = min(values["slots"] or parallelism, values["partitions"])
    values["memory_budget_bytes"] = budget_per_slot(
        values["memory_location"], values["slots"], values["memory_budget_bytes"]
    )
    if values["confidence"] is not None and "spill" in given and values["spill"] is not None:
        raise OptionError(
            f"options confidence and spill exclude each other: {INTERVALS}",
            hint="leave spill out; with confidence, state beyond the budget stays in use on disk",
        )
    if "(" in values["plan"] and "reoptimize" not in given:
        values["reoptimize"] = None
    return JoinOptions(**values)


# The parsers


def _partitions(given: Given) -> int:
    return KNOWN["partitions"].value(given)


def _policy(text: str, _: Given) -> Policy | None:
    return None if text.strip().lower() in OFF else policy_named(text)


def _relocation(text: str, _: Given) -> str | None:
    word = text.strip().lower()
    if word in OFF:
        return None
    relocation_named(word)
    return word


def _upkeep(text: str, _: Given) -> str:
    upkeep_named(text)
    return text.strip().lower()


def _reoptimize(text: str, given: Given) -> Looks | None:
    word = text.strip().lower()
    if word in OFF:
        return None
    is_given = "reoptimize" in given
    return Looks(None if word == AUTO else parse_duration_us(text) / 1e6, is_given)


def _approval(text: str, _: Given) -> bool:
    word = text.strip().lower()
    if word not in ("ask", "none"):
        raise unknown_name("value of option approval", "values", text, ("ask", "none"), "UNKNOWN_APPROVAL")
    return word == "ask"


KNOWN = {
    option.name: option
    for option in (
        Option(
            "slots",
            "slots",
            whole("slots", _partitions),
            "workers of the join; may change between runs",
            otherwise="the cores Spark offers",
        ),
        Option(
            "plan",
            "plan",
            lambda text, _: text.strip() or AUTO,
            "a join tree such as `((a b) c)`, or how to find one",
            AUTO,
        ),
        Option(
            "cpuBudget",
            "cpu_budget",
            number(
                "cpuBudget",
                "more than 0",
                lambda budget: 0 < budget < float("inf"),
                "CPU seconds a second that a slot may use, such as 0.8",
            ),
            "CPU seconds per second that a plan may cost a slot",
            "1",
        ),
        Option(
            "explorationTime",
            "exploration_s",
            named("explorationTime", lambda text: parse_duration_us(text, allow_zero=True) / 1e6),
            "extra time for the plan search",
            "100 ms",
            is_special=True,
        ),
        Option(
            "rehearse",
            "rehearse",
            lambda text, _: text,
            "adaptations after given epochs: `2: migrate ((a b) c); 5: clean`",
            "",
            otherwise="none",
        ),
        Option(
            "reoptimize",
            "reoptimize",
            lambda text, given: named("reoptimize", lambda value: _reoptimize(value, given))(text, given),
            "change the plan when the data does: `auto`, `off`, or an interval of looks",
            AUTO,
        ),
        Option(
            "approval",
            "approval",
            _approval,
            "`ask`: migrations of `reoptimize` wait for `query.approve()`",
            "none",
        ),
        Option(
            "onChange",
            "on_change",
            one_of("onChange", ON_CHANGE),
            "a restart with another query: `refuse`, `ask`, `migrate` its state, or also `stuff` it with NULL",
            "refuse",
        ),
        Option(
            "partitions",
            "partitions",
            whole("partitions", lambda _: PARTITIONS_MAX),
            "partition groups; fixed for the life of a checkpoint",
            str(DEFAULT_PARTITIONS),
        ),
        Option(
            "memoryBudget",
            "memory_budget_bytes",
            named("memoryBudget", parse_bytes),
            "bytes of state in memory per slot, such as `512m`",
            otherwise="half of the free memory / slots",
        ),
        Option(
            "spill",
            "spill",
            _policy,
            "which partition groups leave memory first; `off`: none",
            DEFAULT_POLICY,
            takes_function=True,
        ),
        Option(
            "spillFraction",
            "spill_fraction",
            number(
                "spillFraction", "more than 0 and at most 1", lambda fraction: 0 < fraction <= 1, hint="such as 0.3"
            ),
            "the part of the state in memory that one spill removes",
            str(DEFAULT_FRACTION),
        ),
        Option(
            "spillUpkeep",
            "spill_upkeep",
            _upkeep,
            "how group statistics age: `cumulative`, `reset` or `ewma`",
            DEFAULT_UPKEEP,
            is_special=True,
        ),
        Option(
            "relocation",
            "relocation",
            _relocation,
            "how groups change slots: `auto`, `off`, `balance`, `lazy-disk`, `active-disk`, `thresholds`",
            AUTO,
        ),
        Option(
            "relocationThreshold",
            "relocation_threshold",
            number(
                "relocationThreshold", "more than 0 and at most 1", lambda share: 0 < share <= 1, hint="such as 0.8"
            ),
            "groups move where the least loaded slot has less than this share of the most loaded one",
            "0.8",
            is_special=True,
        ),
        Option(
            "relocationInterval",
            "relocation_interval_s",
            named("relocationInterval", lambda text: parse_duration_us(text, allow_zero=True) / 1e6),
            "the least time between two relocations",
            "45 seconds",
            is_special=True,
        ),
        Option(
            "relocationBounds",
            "relocation_bounds",
            numbers("relocationBounds", 3, hint="such as 0.8, 0.6, 0.2"),
            "`thresholds`: the least share of memory of the fullest slot, the most of the emptiest, their difference",
            "0.8, 0.6, 0.2",
            is_special=True,
        ),
        Option(
            "activeDiskRatio",
            "active_disk_ratio",
            number("activeDiskRatio", "from 1", lambda ratio: 1 <= ratio < float("inf"), hint="such as 2"),
            "`active-disk`: a slot so many times less productive than another one spills",
            "2",
            is_special=True,
        ),
        Option(
            "activeDiskLimit",
            "active_disk_limit_bytes",
            named("activeDiskLimit", parse_bytes),
            "`active-disk`: the most bytes that are spilled because of that",
            "100m",
            is_special=True,
        ),
        Option(
            "memoryLocation",
            "memory_location",
            lambda text, _: text or DEFAULT_LOCATION,
            "a tmpfs for state in memory",
            DEFAULT_LOCATION,
        ),
        Option(
            "confidence",
            "confidence",
            number("confidence", "from 0.5 to 0.999", lambda level: 0.5 <= level <= 0.999, hint="such as 0.95"),
            "level of the intervals of running aggregates, such as `0.95`",
            otherwise="none",
        ),
        Option(
            "expectedRows",
            "expected_rows",
            expected_rows,
            "final rows of each stream, for `confidence`: `a=1000000, b=500000`",
            "",
            otherwise="none",
            is_special=True,
        ),
        Option(
            "idleTimeout",
            "idle_timeout_ms",
            named("idleTimeout", lambda text: parse_duration_us(text) // 1000),
            "after this silence a stream no longer holds the watermark back",
            otherwise="off",
        ),
    )
}
"""All options, by name, in the order of the documents."""
