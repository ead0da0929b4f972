"""Partial results of a probe (`engine/mjoin.py`), column by column, and the values of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.bound import Bound
from watersmeet.plan.keys import Key
from watersmeet.plan.layout import Field
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.partitioning import group_of
from watersmeet.plan.weights import Part
from watersmeet.query.expressions import Column
from watersmeet.state.generation_column import Numbers
from watersmeet.state.run import Ints, Mask, Run, take

ALL = slice(None)


Marks = npt.NDArray[np.int8]
Generation: TypeAlias = int | Numbers | Marks
"""One generation for all rows of a run, or an array with one for each row."""


@dataclass(frozen=True, slots=True, eq=False)
class Partials:
    """Partial results, column by column."""

    ranks: Ints
    latest: Ints | None
    last: Ints | None
    bound: dict[int, Bound]
    generation: Numbers | Marks | None = None
    """The generation of the delta's row; None if generations do not matter."""
    mixed: Mask | None = None
    """Whether rows of another generation are bound."""
    weights: Ints | None = None
    """The bytes of the bound rows; None if rows are too narrow to be weighed."""

    def narrowed(self, rows: Ints | Mask) -> Partials:
        return Partials(
            self.ranks[rows],
            None if self.latest is None else self.latest[rows],
            None if self.last is None else self.last[rows],
            {i: bound.narrowed(rows) for i, bound in self.bound.items()},
            None if self.generation is None else self.generation[rows],
            None if self.mixed is None else self.mixed[rows],
            None if self.weights is None else self.weights[rows],
        )


@dataclass(frozen=True, slots=True)
class Generations:
    """The generation of a delta, and of every run that it probes: only mixed results are wanted."""

    delta: Generation
    targets: Sequence[Sequence[Generation]]


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Some results of a node: complete partials, with access to their fields."""

    node: NodePlan
    delta: Run
    partials: Partials

    @property
    def rows(self) -> int:
        return len(self.partials.ranks)

    def column(self, field: Field) -> pa.Array:
        return field_values(self.node, self.delta, self.partials, field)

    def group_under(self, key: Key, partitions: int, rows: Ints | slice = ALL) -> Ints:
        """The partition groups of results under the key of the node, or under an earlier key."""
        if key == self.node.key:
            return group_of(self.delta.hashes, partitions)[self.partials.ranks[rows]]
        number = next(i for i, layout in enumerate(self.node.inputs) if key in layout.trail)
        bound = self.partials.bound[number]
        chosen = bound if rows is ALL else bound.narrowed(rows)
        column = chosen.column(self.node.inputs[number].group_column(key))
        return column.to_numpy().view(np.uint16).astype(np.int64)


def field_values(node: NodePlan, delta: Run, partials: Partials, field: Field, of_input: int | None = None) -> pa.Array:
    """The values of a field in partials that bind it; `of_input` chooses the input if several hold the field."""
    number = _holder(node, partials, field) if of_input is None else of_input
    source = node.inputs[number].source(field)
    bound = partials.bound[number]
    match source.kind:
        case "key":
            values = take(delta.keys.column(source.index), partials.ranks)
        case "time":
            assert bound.times is not None
            values = pa.array(bound.times[bound.index])
        case "payload":
            values = bound.column(source.index)
        case "null":
            values = pa.nulls(len(partials.ranks), source.type)
    return values if values.type.equals(source.type) else pc.cast(values, source.type)


def _holder(node: NodePlan, partials: Partials, field: Field) -> int:
    if isinstance(field, Column | Part):
        return node.input_of(field.stream)
    return next(i for i in partials.bound if any(known == field for known, _ in node.inputs[i].sources))
