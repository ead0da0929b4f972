"""Moving values: what recent epochs have counted, per stream, store, predicate, pair and slot; and what they imply.

A moving value is a sum in which older epochs count less: by a factor e after each `memory_s` seconds of event time.
(Without windows, of the driver's clock.) Only epochs with rows are added, and only the time that they cover ages what
came before, so an empty epoch changes nothing. Everything is a ratio of two such sums:

| figure                     | ratio                                                                                 |
|----------------------------|---------------------------------------------------------------------------------------|
| rate of a stream           | rows that the slots saw, by seconds                                                   |
| selectivity of key classes | pairs with equal keys, by all pairs: from key sketches (`epoch/key_sketch.py`)        |
| selectivity of a residual  | passed, by tested: every plan tests every residual somewhere                          |
| seconds of a batch         | seconds, by epochs                                                                    |
| CPU seconds a second       | time that slots have spent, by seconds                                                |
| a gauge, such as state rows| value times seconds, by seconds                                                       |

Selectivities of all key classes come from sketches, also of those that the running plan joins. Counts of joined pairs
would be exact for these, but the two methods differ where keys depend on time, and a plan must not look better or worse
than another because of how its figures were found.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.epoch.key_sketch import BUCKETS, Floats, KeyClasses, SketchedKey, equal_share, unpacked
from watersmeet.epoch.pairs import with_pairs
from watersmeet.epoch.task import SlotReport
from watersmeet.optimizer.assumptions import Assumptions, rate_of
from watersmeet.query.logical import JoinQuery
from watersmeet.state.measures import (
    CPU_TIMES,
    PASSED,
    RESULTS,
    ROWS,
    TESTED,
    Counts,
    Figure,
    Measure,
    figure_named,
    name_of,
    residual_name,
)

LEAST_MATCHES = 0.5
"""Counted where no pair matches: no plan is free."""
OF_SLOTS = (ROWS, RESULTS, *CPU_TIMES)
"""The measures that are kept for every slot."""


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """The figures of one epoch, over all slots, and of each slot."""

    counts: Counts
    rows: Mapping[str, int]
    """By stream."""
    slots: Mapping[tuple[int, Measure], int]
    sketches: Mapping[SketchedKey, Floats]

    @staticmethod
    def of(reports: Sequence[SlotReport]) -> Counted:
        rows: Counter[str] = Counter()
        slots: Counter[tuple[int, Measure]] = Counter()
        sketches: dict[SketchedKey, Floats] = {}
        for report in reports:
            for stream, (seen, _) in report.seen.items():
                rows[stream] += seen
            for key, found in report.sketches.items():
                sketches[key] = sketches.get(key, 0.0) + unpacked(found).astype(np.float64)
            for figure, value in report.counts.values.items():
                if figure.measure in OF_SLOTS:
                    slots[report.slot, figure.measure] += value
        return Counted(with_pairs(reports), rows, slots, sketches)


class Moving:
    """Moving values of one memory. Not thread-safe."""

    def __init__(self, memory_s: float = math.inf) -> None:
        """Without a memory, the values are totals."""
        self.memory_s = memory_s
        self.seconds = self.epochs = 0.0
        self._rows: dict[str, float] = {}
        self._counts: dict[Figure, float] = {}
        self._slots: dict[tuple[int, Measure], float] = {}
        self._sketches: dict[SketchedKey, Floats] = {}

    def add(self, seconds: float, epoch: Counted) -> None:
        """Add an epoch that had rows and covers so many seconds."""
        self._age(math.exp(-seconds / self.memory_s))
        self.seconds += seconds
        self.epochs += 1
        for figure, value in epoch.counts.values.items():
            gained = value * seconds if figure.measure.is_gauge else value
            self._counts[figure] = self._counts.get(figure, 0.0) + gained
        for stream, rows in epoch.rows.items():
            self._rows[stream] = self._rows.get(stream, 0.0) + rows
        for of_slot, value in epoch.slots.items():
            self._slots[of_slot] = self._slots.get(of_slot, 0.0) + value
        for key, found in epoch.sketches.items():
            self._sketches[key] = self._sketches.get(key, 0.0) + found

    def _age(self, factor: float) -> None:
        if factor == 1:
            return
        self.seconds *= factor
        self.epochs *= factor
        self._rows = {of: value * factor for of, value in self._rows.items()}
        self._counts = {of: value * factor for of, value in self._counts.items()}
        self._slots = {of: value * factor for of, value in self._slots.items()}
        for sketch in self._sketches.values():
            sketch *= factor

    def rate(self, measure: Measure, of: str = "") -> float:
        """A counter per second, or the mean of a gauge."""
        return self._counts.get(Figure(measure, of), 0.0) / self.seconds if self.seconds else 0.0

    def rate_of_stream(self, stream: str) -> float:
        """Rows that slots have received, per second."""
        return self._rows.get(stream, 0.0) / self.seconds if self.seconds else 0.0

    def rate_of_slot(self, slot: int, measure: Measure) -> float:
        return self._slots.get((slot, measure), 0.0) / self.seconds if self.seconds else 0.0

    def of(self, measure: Measure, of: str = "") -> float:
        """The sum of a counter."""
        return self._counts.get(Figure(measure, of), 0.0)

    @property
    def rows(self) -> float:
        """Rows of all streams."""
        return sum(self._rows.values())

    @property
    def cpu_s(self) -> float:
        """CPU seconds a second, of all slots together."""
        return sum(self.rate(measure) for measure in CPU_TIMES) / 1e9

    def assumptions(self, query: JoinQuery, classes: Iterable[KeyClasses]) -> Assumptions:
        """The figures in the optimiser's form; those that were not measured are left out."""
        residuals = range(len(query.residuals))
        tested = {number: self.of(TESTED, residual_name(number)) for number in residuals}
        return Assumptions(
            rates={stream.name: rate_of(self._rows.get(stream.name, 0.0), self.seconds) for stream in query.streams},
            filters=dict.fromkeys(range(len(query.filters)), 1.0),
            keys=self._key_selectivities(query, classes),
            residuals={
                number: min(1.0, max(self.of(PASSED, residual_name(number)), LEAST_MATCHES) / met)
                for number, met in tested.items()
                if met >= 1
            },
            batch_s=self.seconds / self.epochs if self.epochs else None,
        )

    def _key_selectivities(self, query: JoinQuery, sketched: Iterable[KeyClasses]) -> dict[int, float]:
        found: dict[int, float] = {}
        for classes in sketched:
            streams = [query.streams[i].name for i in sorted(query.classes[classes[0]].streams)]
            sketches = [self._sketches.get(SketchedKey(stream, classes)) for stream in streams]
            known = [sketch for sketch in sketches if sketch is not None and sketch.sum() >= 1]
            share = equal_share(known) if len(known) > 1 else None
            if share is not None:
                rows = min(sketch.sum() for sketch in known)
                least = LEAST_MATCHES / max(1.0, rows * rows)
                found |= dict.fromkeys(classes, min(1.0, max(share, least)) ** (1 / len(classes)))
        return found

    def to_value(self) -> dict[str, Any]:
        """As JSON, for a checkpoint."""
        return {
            "memory_s": self.memory_s if math.isfinite(self.memory_s) else None,
            "seconds": self.seconds,
            "epochs": self.epochs,
            "rows": self._rows,
            "counts": {name_of(figure): value for figure, value in self._counts.items()},
            "slots": [[slot, measure.name, value] for (slot, measure), value in self._slots.items()],
            "sketches": [[*key, _as_text(sketch)] for key, sketch in self._sketches.items()],
        }

    def restore(self, value: Mapping[str, Any]) -> None:
        """Continue from a value of `to_value`; one of another memory is ignored."""
        memory_s = math.inf if value["memory_s"] is None else value["memory_s"]
        if memory_s != self.memory_s:
            return
        sketches = {SketchedKey(s, tuple(classes)): _from_text(text) for s, classes, text in value["sketches"]}
        self.seconds, self.epochs = float(value["seconds"]), float(value["epochs"])
        self._rows, self._sketches = dict(value["rows"]), sketches
        self._counts = {figure_named(name): float(sum_) for name, sum_ in value["counts"].items()}
        known = {measure.name: measure for measure in OF_SLOTS}
        self._slots = {(slot, known[name]): sum_ for slot, name, sum_ in value["slots"] if name in known}


def _as_text(sketch: Floats) -> str:
    return base64.b64encode(sketch.astype("<f4").tobytes()).decode()


def _from_text(text: str) -> Floats:
    found = np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float64)
    if len(found) != BUCKETS or not np.isfinite(found).all():
        raise ValueError("not a key sketch")
    return found
