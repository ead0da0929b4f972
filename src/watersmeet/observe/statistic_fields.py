"""The fields of `statistics` in progress: one table of names, units and meanings makes them and their documentation.

| `of`     | a value                                                                   |
|----------|---------------------------------------------------------------------------|
| `epoch`  | of the micro-batch                                                        |
| `now`    | of the state after it                                                     |
| `recent` | that moves: older micro-batches count less (`adaptation/memories.py`)     |
| `total`  | over the life of the checkpoint                                           |

A path names a section, a subject in angle brackets if there are several, and a figure. `slots[n]` is the entry of a
list. A field without a value, such as a rate before the second micro-batch, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from watersmeet.adaptation.memories import Memories
from watersmeet.adaptation.moving import Moving
from watersmeet.epoch.task import SlotReport
from watersmeet.observe.statistics import Times, arrivals, costs, hosts, selectivities, slots, stores
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.logical import JoinQuery
from watersmeet.state.measures import CPU_TIMES, RESULTS, ROWS, STATE_ROWS, STORE_BYTES, Counts, Measure

Rows = Mapping[Any, Mapping[str, Any]]
"""Figures by name, for every subject."""


@dataclass(frozen=True)
class Observed:
    """A query after an epoch: everything that fields are made of. (Sections are computed once.)"""

    query: JoinQuery
    plan: JoinPlan
    totals: Counts
    """Counters over the life of the checkpoint, and gauges after the epoch."""
    slots_now: int
    rows: Sequence[int]
    """By stream: rows that came in."""
    times_us: Sequence[Times]
    """By stream: the latest event time before and after."""
    seconds: float
    """Since the epoch before, by the clock."""
    reports: Sequence[SlotReport]
    groups: Sequence[Mapping[str, Any]]
    """A summary of the partition groups of each stage."""
    memories: Memories
    budget_bytes: int | None = None
    """The memory budget of a slot."""

    @cached_property
    def arrivals(self) -> Rows:
        return arrivals(self.plan.names, self.rows, self.times_us, self.seconds)

    @cached_property
    def stores(self) -> Rows:
        return stores(self.totals)

    @cached_property
    def slots(self) -> Rows:
        return {row["slot"]: row for row in slots(self.reports, self.budget_bytes)}

    @cached_property
    def hosts(self) -> Rows:
        return hosts(self.reports)

    @cached_property
    def stages(self) -> Rows:
        return {row["stage"]: row for row in self.groups}

    @property
    def recent(self) -> Moving:
        return self.memories.recent


Values = Callable[[Observed], Mapping[Any, Any]]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of `statistics`, and its values by subject; the subject is empty if there is only one."""

    path: str
    of: Literal["epoch", "now", "recent", "total"]
    unit: str
    meaning: str
    values: Values


def _each(section: Literal["arrivals", "stores", "slots", "hosts", "stages"], name: str) -> Values:
    """A figure of every subject of a section."""
    return lambda seen: {subject: row[name] for subject, row in getattr(seen, section).items() if name in row}


def _recent_of_stores(measure: Measure) -> Values:
    return lambda seen: {store: round(seen.recent.rate(measure, store), 1) for store in seen.stores if _lasts(seen)}


def _recent_of_slots(*measures: Measure, per_unit: float = 1) -> Values:
    def values(seen: Observed) -> dict[int, float]:
        rate = seen.recent.rate_of_slot
        known = range(seen.slots_now) if _lasts(seen) else ()
        return {slot: round(sum(rate(slot, measure) for measure in measures) / per_unit, 6) for slot in known}

    return values


def _total_of_slots(*measures: Measure, per_unit: int = 1) -> Values:
    def values(seen: Observed) -> dict[int, int]:
        totals = seen.memories.slot_totals
        return {slot: sum(totals[slot, each] for each in measures) // per_unit for slot in range(seen.slots_now)}

    return values


def _recent_rates(seen: Observed) -> dict[str, float]:
    known = seen.plan.names if _lasts(seen) else ()
    return {stream: round(seen.recent.rate_of_stream(stream), 3) for stream in known}


def _lasts(seen: Observed) -> bool:
    """Whether the recent epochs cover any time."""
    return seen.recent.seconds > 0


COST_OF_A_ROW = "CPU time to store (`insert`), expire (`delete`) or match (`join`) a row"
FIELDS = (
    Field("arrivals.<stream>.rows", "epoch", "rows", "rows that came in, before any filter", _each("arrivals", "rows")),
    Field(
        "arrivals.<stream>.rowsPerSecond",
        "epoch",
        "rows/s",
        "the same by the clock",
        _each("arrivals", "rowsPerSecond"),
    ),
    Field(
        "arrivals.<stream>.rowsPerEventSecond",
        "epoch",
        "rows/s",
        "the same by event time",
        _each("arrivals", "rowsPerEventSecond"),
    ),
    Field(
        "selectivities.<predicate>",
        "total",
        "share",
        "pairs of rows, or tested rows, that the predicate lets pass",
        lambda seen: selectivities(seen.query, seen.plan, seen.totals),
    ),
    Field("stores.<store>.rows", "now", "rows", "active rows of the store", _each("stores", "rows")),
    Field("stores.<store>.bytes", "now", "bytes", "bytes of these rows", _each("stores", "bytes")),
    Field("costsNs.<step>", "total", "ns/row", COST_OF_A_ROW, lambda seen: costs(seen.totals)),
    Field("slots[n].slot", "now", "number", "number of the slot", _each("slots", "slot")),
    Field("slots[n].hosts", "now", "names", "hosts where its last tasks ran", _each("slots", "hosts")),
    Field("slots[n].executors", "now", "names", "executors where its last tasks ran", _each("slots", "executors")),
    Field("slots[n].rows", "epoch", "rows", "rows that its stages received", _each("slots", "rows")),
    Field("slots[n].memoryBytes", "now", "bytes", "state in its memory", _each("slots", "memoryBytes")),
    Field(
        "slots[n].borrowedBytes",
        "now",
        "bytes",
        "of these, beyond `memoryBudget`: lent by slots of its host",
        _each("slots", "borrowedBytes"),
    ),
    Field(
        "slots[n].fetchedColdBytes",
        "epoch",
        "bytes",
        "state fetched because it was not in memory where its tasks ran",
        _each("slots", "fetchedColdBytes"),
    ),
    Field("slots[n].cpuMs", "epoch", "ms", "CPU time of its tasks", _each("slots", "cpuMs")),
    Field("hosts.<host>.slots", "now", "numbers", "slots whose last tasks ran there", _each("hosts", "slots")),
    Field("hosts.<host>.memoryBytes", "now", "bytes", "state in their memory there", _each("hosts", "memoryBytes")),
    Field(
        "hosts.<host>.fetchedColdBytes",
        "epoch",
        "bytes",
        "state that they fetched there",
        _each("hosts", "fetchedColdBytes"),
    ),
    Field("partitionGroups[n].stage", "now", "number", "number of the stage", _each("stages", "stage")),
    Field("partitionGroups[n].groups", "now", "groups", "groups with state", _each("stages", "groups")),
    Field("partitionGroups[n].sizeBytes", "now", "bytes", "their state", _each("stages", "sizeBytes")),
    Field("partitionGroups[n].sizeBytesMax", "now", "bytes", "state of the largest", _each("stages", "sizeBytesMax")),
    Field("partitionGroups[n].output", "total", "rows", "results that they took part in", _each("stages", "output")),
    Field("partitionGroups[n].outputMax", "total", "rows", "the most of one group", _each("stages", "outputMax")),
    Field("partitionGroups[n].inter", "total", "rows", "stored results that they made", _each("stages", "inter")),
    Field(
        "partitionGroups[n].owedGroups", "now", "groups", "groups that may owe results", _each("stages", "owedGroups")
    ),
    Field(
        "recent.seconds",
        "recent",
        "s",
        "time that recent micro-batches cover, older time counting less",
        lambda seen: {"": round(seen.recent.seconds, 3)},
    ),
    Field(
        "recent.arrivals.<stream>.rowsPerSecond", "recent", "rows/s", "rows after filters at the source", _recent_rates
    ),
    Field(
        "recent.selectivities.<predicate>",
        "recent",
        "share",
        "pairs of rows, or tested rows, that the predicate lets pass",
        lambda seen: selectivities(seen.query, seen.plan, seen.recent),
    ),
    Field("recent.stores.<store>.rows", "recent", "rows", "active rows of the store", _recent_of_stores(STATE_ROWS)),
    Field("recent.stores.<store>.bytes", "recent", "bytes", "bytes of these rows", _recent_of_stores(STORE_BYTES)),
    Field("recent.costsNs.<step>", "recent", "ns/row", COST_OF_A_ROW, lambda seen: costs(seen.recent)),
    Field("recent.slots[n].rowsPerSecond", "recent", "rows/s", "rows that its stages received", _recent_of_slots(ROWS)),
    Field("recent.slots[n].resultsPerSecond", "recent", "rows/s", "results of its tasks", _recent_of_slots(RESULTS)),
    Field(
        "recent.slots[n].cpuPerSecond",
        "recent",
        "s/s",
        "CPU time of its tasks",
        _recent_of_slots(*CPU_TIMES, per_unit=1e9),
    ),
    Field(
        "totals.arrivals.<stream>.rows",
        "total",
        "rows",
        "rows after filters at the source",
        lambda seen: {stream: seen.memories.stream_totals[stream] for stream in seen.plan.names},
    ),
    Field("totals.slots[n].rows", "total", "rows", "rows that its stages received", _total_of_slots(ROWS)),
    Field("totals.slots[n].results", "total", "rows", "results of its tasks", _total_of_slots(RESULTS)),
    Field(
        "totals.slots[n].cpuMs", "total", "ms", "CPU time of its tasks", _total_of_slots(*CPU_TIMES, per_unit=1_000_000)
    ),
)
SECTIONS = tuple(dict.fromkeys(field.path.split(".")[0] for field in FIELDS))


def statistics(seen: Observed) -> dict[str, Any]:
    """The `statistics` of progress."""
    found: dict[str, Any] = {}
    for field in FIELDS:
        for subject, value in field.values(seen).items():
            _put(found, field.path, subject, value)
    return {section.removesuffix("[n]"): _section(found, section) for section in SECTIONS}


def idle(found: Mapping[str, Any]) -> dict[str, Any]:
    """The `statistics` of a trigger without rows: those of the state after the last epoch."""
    copied = deepcopy(dict(found))
    for field in FIELDS:
        *above, last = _parts(field.path)
        for holder in _holders(copied, above) if field.of == "epoch" else ():
            if last in holder:
                holder[last] = 0
    return copied


def _holders(at: Any, path: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The values at a path, with all subjects."""
    if not path:
        yield at
    elif path[0].startswith("<"):
        for each in at if isinstance(at, list) else at.values():
            yield from _holders(each, path[1:])
    elif path[0] in at:
        yield from _holders(at[path[0]], path[1:])


def _put(found: dict[Any, Any], path: str, subject: Any, value: Any) -> None:
    """Put a value at its path, which has the subject where the path names one. Entries of lists have numbers as
    keys."""
    at = found
    *above, last = (subject if part.startswith("<") else part for part in _parts(path))
    for part in above:
        at = at.setdefault(part, {})
    at[last] = value


@cache
def _parts(path: str) -> list[str]:
    return path.replace("[n]", ".<n>").split(".")


def _section(found: Mapping[str, Any], section: str) -> Any:
    """A section, which may be empty."""
    name = section.removesuffix("[n]")
    return _with_lists(found[name]) if name in found else {} if name == section else []


def _with_lists(value: Any) -> Any:
    """The value, with lists in place of what has numbers as keys."""
    if not isinstance(value, dict):
        return value
    if all(isinstance(key, int) for key in value):
        return [_with_lists(value[key]) for key in sorted(value)]
    return {key: _with_lists(each) for key, each in value.items()}
