"""The measures of a join: one table of all figures, and their values as counts.

A *measure* is a figure with its unit and meaning. It is counted for a subject: a stream, a store, a predicate, a pair
of inputs, or the whole join. A *counter* adds up over epochs, a *gauge* describes the present. `Counts` are figures
with their values: of a report, of an epoch, or of the life of a checkpoint. Files and reports name them as
`late.bank1`: the measure, and the subject if there is one.

`customMetrics` in progress and its documentation (docs/guide.md) follow from `MEASURES`; `statistics`, from
`observe/statistic_fields.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

Subject = Literal["", "stream", "store", "predicate", "pair"]


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """A figure, and its fields in progress. There is one object per measure, because measures are compared a thousand
    times per epoch."""

    name: str
    unit: str
    meaning: str
    per: Subject = ""
    is_gauge: bool = False
    shown: str = ""
    """Its field in `customMetrics`, with a placeholder if the name contains the subject."""
    shown_in_total: str = ""
    """The field of its sum over the life of the checkpoint."""
    shown_by_slot: str = ""
    """The field of its value on a slot."""

    def __reduce__(self) -> tuple[Callable[[str], Measure], tuple[str]]:
        return measure_named, (self.name,)


ROWS = Measure("rows", "rows", "rows that came to a stage, of streams or of other stages")
INTAKE = Measure("intake", "rows", "rows that came in, before any filter", "stream", shown="rows.<stream>")
LATE = Measure("late", "rows", "rows dropped because they were late", "stream")
NULL_KEY = Measure("null_key", "rows", "rows dropped because a key was NULL", "stream", shown="rowsDroppedNullKey")
NO_EVENT_TIME = Measure(
    "no_event_time", "rows", "rows dropped because the event time was NULL", "stream", shown="rowsDroppedNoEventTime"
)
ARRIVED = Measure("arrived", "rows", "rows so far, where intervals are made of them", "stream")
RESULTS = Measure("results", "rows", "results that were sent", shown="results", shown_in_total="resultsTotal")
JOINED = Measure("joined", "rows", "results of the join, before they are aggregated")
INTERMEDIATE = Measure("intermediate", "rows", "results of a node that another node takes")
OWED = Measure("owed", "rows", "results that spilled state owed, sent since", shown_in_total="owedResultsTotal")
ACCUMULATED = Measure("accumulated", "rows", "rows taken into groups of an aggregation")
MATCHED = Measure("matched", "rows", "combinations that probes met")
INSERTED = Measure("inserted", "rows", "rows stored")
EXPIRED = Measure("expired", "rows", "rows let go")
TESTED = Measure("tested", "rows", "combinations that a predicate was tested on", "predicate")
PASSED = Measure("passed", "rows", "those that it let pass", "predicate")
PAIRS = Measure("pairs", "pairs", "pairs of rows of two inputs", "pair")
MATCHES = Measure("matches", "pairs", "pairs with equal keys", "pair")
INSERT_NS = Measure("insert_ns", "ns", "time spent on storing rows")
PROBE_NS = Measure("probe_ns", "ns", "time spent on probing")
EXPIRE_NS = Measure("expire_ns", "ns", "time spent on letting rows go")
SPILL_NS = Measure("spill_ns", "ns", "time spent on closing groups")
OWED_NS = Measure("owed_ns", "ns", "time spent on owed results")
BUILT_ROWS = Measure("built_rows", "rows", "rows stored for the plan of a migration")
BUILD_NS = Measure("build_ns", "ns", "time spent on that")
SKETCH_NS = Measure("sketch_ns", "ns", "time spent on key sketches, part of insert_ns")
FETCHED_BYTES = Measure(
    "fetched_bytes", "bytes", "state fetched because it was not in memory", shown="fetchedColdBytes"
)
SPOILED_COPIES = Measure("spoiled_copies", "files", "damaged copies in memory, fetched again", shown="spoiledCopies")
SPILLED_BYTES = Measure("spilled_bytes", "bytes", "state that was spilled so far", shown_in_total="spilledBytesTotal")
MEMORY_BYTES = Measure("memory_bytes", "bytes", "state in memory", is_gauge=True, shown_by_slot="memoryBytes.slot<n>")
STATE_BYTES = Measure("state_bytes", "bytes", "state, in memory or not", is_gauge=True, shown="stateBytes")
ACTIVE_BYTES = Measure("active_bytes", "bytes", "state that rows are joined with as they arrive", is_gauge=True)
CLOSED_BYTES = Measure("closed_bytes", "bytes", "spilled state", is_gauge=True, shown="spilledBytes")
CLOSED_ROWS = Measure("closed_rows", "rows", "rows of spilled state", is_gauge=True, shown="spilledRows")
OWED_GROUPS = Measure(
    "owed_groups", "groups", "partition groups that may owe results", is_gauge=True, shown="owedGroups"
)
SEGMENTS = Measure("segments", "files", "files of state", is_gauge=True, shown="segments")
STATE_ROWS = Measure("state_rows", "rows", "active rows of a store", "store", is_gauge=True, shown="stateRows.<store>")
STORE_BYTES = Measure("store_bytes", "bytes", "bytes of these rows, kept columns only", "store", is_gauge=True)

CPU_TIMES = (INSERT_NS, PROBE_NS, EXPIRE_NS, SPILL_NS, OWED_NS)

MEASURES = (
    RESULTS,
    STATE_BYTES,
    CLOSED_BYTES,
    CLOSED_ROWS,
    SPILLED_BYTES,
    OWED_GROUPS,
    OWED,
    FETCHED_BYTES,
    SPOILED_COPIES,
    SEGMENTS,
    NULL_KEY,
    NO_EVENT_TIME,
    INTAKE,
    STATE_ROWS,
    MEMORY_BYTES,
    # not shown
    ROWS,
    LATE,
    ARRIVED,
    JOINED,
    INTERMEDIATE,
    ACCUMULATED,
    MATCHED,
    INSERTED,
    EXPIRED,
    TESTED,
    PASSED,
    PAIRS,
    MATCHES,
    INSERT_NS,
    PROBE_NS,
    EXPIRE_NS,
    SPILL_NS,
    OWED_NS,
    BUILT_ROWS,
    BUILD_NS,
    SKETCH_NS,
    ACTIVE_BYTES,
    STORE_BYTES,
)
"""All of them: first those in `customMetrics`, in its order."""
_BY_NAME = {measure.name: measure for measure in MEASURES}


class Figure(NamedTuple):
    """A measure of a subject."""

    measure: Measure
    of: str = ""
    """Which stream, store, predicate or pair; empty for the whole."""


def measure_named(name: str) -> Measure:
    """The measure of a name; an unknown one, of another version, is a counter and keeps its name."""
    found = _BY_NAME.get(name)
    return _BY_NAME.setdefault(name, Measure(name, "", "unknown to this version")) if found is None else found


@lru_cache(maxsize=1 << 12)
def figure_named(name: str) -> Figure:
    """The figure of a name in a file or a report."""
    measure, _, of = name.partition(".")
    return Figure(measure_named(measure), of)


@lru_cache(maxsize=1 << 12)
def name_of(figure: Figure) -> str:
    return f"{figure.measure.name}.{figure.of}" if figure.of else figure.measure.name


def residual_name(number: int) -> str:
    """A predicate that the engine tests, as a subject."""
    return f"residual {number}"


def key_class_name(number: int) -> str:
    """A key class that is tested as an equality, as a subject."""
    return f"key {number}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Figures with their values; a missing figure is 0."""

    values: Mapping[Figure, int] = field(default_factory=dict)

    @staticmethod
    def named(values: Mapping[str, int]) -> Counts:
        """From values by name, as in a file or a report."""
        return Counts({figure_named(name): value for name, value in values.items()})

    def by_name(self) -> dict[str, int]:
        return {name_of(figure): value for figure, value in self.values.items()}

    def of(self, measure: Measure, subject: str = "") -> int:
        return self.values.get(Figure(measure, subject), 0)

    def sum(self, measure: Measure) -> int:
        """The sum over all subjects."""
        return sum(value for figure, value in self.values.items() if figure.measure is measure)

    def by(self, measure: Measure) -> dict[str, int]:
        """The values by subject."""
        return {figure.of: value for figure, value in self.values.items() if figure.measure is measure}

    def gauges(self) -> Counts:
        return Counts({figure: value for figure, value in self.values.items() if figure.measure.is_gauge})

    def counters(self) -> Counts:
        return Counts({figure: value for figure, value in self.values.items() if not figure.measure.is_gauge})

    def without(self, *measures: Measure) -> Counts:
        return Counts({figure: value for figure, value in self.values.items() if figure.measure not in measures})

    def with_values(self, other: Counts) -> Counts:
        """These counts, with the values of `other` where it has any."""
        return Counts({**self.values, **other.values})


def total(many: Iterable[Counts]) -> Counts:
    """The sum of many counts, figure by figure."""
    sums: defaultdict[Figure, int] = defaultdict(int)
    for counts in many:
        for figure, value in counts.values.items():
            sums[figure] += value
    return Counts(dict(sums))
