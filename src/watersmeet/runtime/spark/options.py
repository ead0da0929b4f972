"""The options of a join: case-insensitive strings, with session defaults under `spark.watersmeet.`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from watersmeet.adaptation.ledger import DEFAULT_UPKEEP, upkeep_named
from watersmeet.adaptation.spill_policies import DEFAULT_POLICY, Policy, policy_named
from watersmeet.adaptation.spilling import DEFAULT_FRACTION
from watersmeet.errors import OptionError, unknown_name
from watersmeet.optimizer.strategies import AUTO
from watersmeet.plan.partitioning import DEFAULT_PARTITIONS, PARTITIONS_MAX
from watersmeet.runtime.spark.memory import DEFAULT_LOCATION, budget_per_slot
from watersmeet.runtime.spark.session_settings import session_options
from watersmeet.units import parse_bytes, parse_duration_us

OptionValue = str | Policy
DEFAULT_CPU_BUDGET = 1.0
DEFAULT_EXPLORATION_US = 100_000
KNOWN = {
    "slots": "workers of the join; default: the cores Spark offers",
    "plan": "the join tree, such as (a b c) or ((a b) c); mjoin, bjtree; or how to find it: auto, mjoin-init, "
    "bjtree-init, exhaustive; default auto",
    "cpuBudget": "CPU seconds a second per slot that a plan may cost, such as 0.8; default: 1",
    "explorationTime": "extra time for the plan search; default 100 ms",
    "partitions": f"partition groups, fixed for the life of a checkpoint; default {DEFAULT_PARTITIONS}",
    "memoryBudget": "bytes of state in memory per slot, such as 512m; default: half of what is free / slots",
    "spill": "which state leaves memory when the budget is exceeded: bottom-up, local-output, global-output, "
    "global-output-penalty, push-more-productive, random, largest, balanced, rate-based, or off; "
    f"default {DEFAULT_POLICY}",
    "spillFraction": f"the part of the state in memory that one spill removes; default {DEFAULT_FRACTION}",
    "spillUpkeep": f"how statistics of partition groups age: cumulative, reset or ewma; default {DEFAULT_UPKEEP}",
    "memoryLocation": f"a tmpfs for state in memory; default {DEFAULT_LOCATION}",
    "confidence": "level of the intervals of running SUM, COUNT and AVG, such as 0.95; default: none",
    "expectedRows": "rows that each stream will have, for confidence, such as a=1000000, b=500000; default: none",
    "idleTimeout": "a stream silent for longer no longer holds the watermark back; default: off",
}


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Options after parsing."""

    slots: int
    plan: str
    cpu_budget: float
    exploration_s: float
    partitions: int
    memory_budget_bytes: int | None
    """Per slot; None where there is no tmpfs and nothing was said."""
    memory_location: str
    idle_timeout_ms: int | None
    confidence: float | None = None
    expected_rows: Mapping[str, int] = field(default_factory=dict)
    spill: Policy | None = None
    spill_fraction: float = DEFAULT_FRACTION
    spill_upkeep: str = DEFAULT_UPKEEP


def option_name(name: str) -> str:
    """The option's own spelling; an unknown one is refused with the nearest."""
    by_lower = {known.lower(): known for known in KNOWN}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    raise unknown_name("option", "options", name, KNOWN, "UNKNOWN_OPTION")


def resolve(spark: SparkSession, given: Mapping[str, OptionValue]) -> JoinOptions:
    """Options as given, else from the session, else the defaults."""
    return read_options(session_options(spark, KNOWN) | dict(given), spark.sparkContext.defaultParallelism)


def read_options(given: Mapping[str, OptionValue], parallelism: int) -> JoinOptions:
    """Options as values, by their own spelling; `parallelism` is how many slots there are by default."""
    text: dict[str, str | None] = dict.fromkeys(KNOWN)
    text |= {name: value for name, value in given.items() if isinstance(value, str)}
    policies = [value for value in given.values() if not isinstance(value, str)]
    slots = text["slots"]
    partitions = _whole("partitions", text["partitions"] or str(DEFAULT_PARTITIONS), PARTITIONS_MAX)
    count = parallelism if slots is None else _whole("slots", slots, partitions)
    budget, idle = text["memoryBudget"], text["idleTimeout"]
    budget_bytes = None if budget is None else _read("memoryBudget", budget, parse_bytes)
    location, count = text["memoryLocation"] or DEFAULT_LOCATION, min(count, partitions)
    return JoinOptions(
        slots=count,
        plan=(text["plan"] or AUTO).strip(),
        cpu_budget=_cpu_budget(text["cpuBudget"]),
        exploration_s=_exploration_s(text["explorationTime"]),
        partitions=partitions,
        memory_budget_bytes=budget_per_slot(location, count, budget_bytes),
        memory_location=location,
        idle_timeout_ms=None if idle is None else _read("idleTimeout", idle, parse_duration_us) // 1000,
        confidence=_level(text["confidence"]),
        expected_rows=_expected(text["expectedRows"]),
        spill=_policy(policies[0] if policies else text["spill"], text["confidence"]),
        spill_fraction=_fraction(text["spillFraction"]),
        spill_upkeep=_upkeep(text["spillUpkeep"]),
    )


def _cpu_budget(text: str | None) -> float:
    try:
        budget = DEFAULT_CPU_BUDGET if text is None else float(text)
    except ValueError:
        budget = 0.0
    if not 0 < budget < float("inf"):
        raise OptionError(
            f"option cpuBudget must be a number more than 0, not '{text}'",
            hint="CPU seconds a second that a slot may use, such as 0.8",
        )
    return budget


def _exploration_s(text: str | None) -> float:
    read = partial(parse_duration_us, allow_zero=True)
    return (DEFAULT_EXPLORATION_US if text is None else _read("explorationTime", text, read)) / 1e6


def _read(name: str, text: str, read: Callable[[str], int]) -> int:
    """A duration or a size; an error names the option."""
    try:
        return read(text)
    except OptionError as error:
        raise OptionError(f"option {name}: {error.message}", hint=error.hint, error_class=error.error_class) from None


def _policy(given: OptionValue | None, confidence: str | None) -> Policy | None:
    """Intervals count on every result of the rows that have arrived, so none may be owed."""
    is_off = isinstance(given, str) and given.strip().lower() in ("off", "false", "none")
    if confidence is not None and given is not None and not is_off:
        raise OptionError(
            "options confidence and spill exclude each other: intervals are wrong while results are owed",
            hint="leave spill out; with confidence, state beyond the budget stays in use on disk",
        )
    if is_off or confidence is not None:
        return None
    return policy_named(given or DEFAULT_POLICY) if given is None or isinstance(given, str) else given


def _fraction(text: str | None) -> float:
    try:
        fraction = DEFAULT_FRACTION if text is None else float(text)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise OptionError(
            f"option spillFraction must be a number more than 0 and at most 1, not '{text}'", hint="such as 0.3"
        )
    return fraction


def _upkeep(text: str | None) -> str:
    name = text or DEFAULT_UPKEEP
    upkeep_named(name)
    return name.strip().lower()


def _level(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        level = float(text)
    except ValueError:
        level = 0.0
    if not 0.5 <= level <= 0.999:
        raise OptionError(f"option confidence must be a number from 0.5 to 0.999, not '{text}'", hint="such as 0.95")
    return level


def _expected(text: str | None) -> dict[str, int]:
    """Rows by stream, from `a=1000000, b=500000`."""
    found: dict[str, int] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, rows = part.partition("=")
        if not name.strip() or not rows.strip().isdigit() or int(rows) < 1:
            raise OptionError(
                f"option expectedRows cannot be read at '{part.strip()}'", hint="write it as a=1000000, b=500000"
            )
        found[name.strip()] = int(rows)
    return found


def _whole(name: str, text: str, largest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= largest:
        raise OptionError(f"option {name} must be a whole number from 1 to {largest}, not '{text}'", hint="such as 4")
    return value
