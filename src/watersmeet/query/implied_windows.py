"""Windows that follow from the condition: `a.ts BETWEEN b.ts - INTERVAL 5 MINUTES AND b.ts + INTERVAL 5 MINUTES` bounds
how long a row of a or b can wait for the other, as `within` does. So their state need not be kept for ever.

A comparison of two event times and constants is a bound on a difference, t_x - t_y <= c. Bounds add up along paths of
streams (shortest paths); the window of a stream is one microsecond more than the furthest that any other stream can be
ahead of it. If any other stream is unbounded, it has no window. The condition is still evaluated. The window admits all
of its results, so it only says when state expires.

A window also makes rows late, so none is derived unless every stream was given a delay (`Stream.is_delay_given`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from watersmeet.query.expressions import Abs, And, Arithmetic, Column, Compare, Expression, Literal, Negate
from watersmeet.query.relations import KeyClass, Stream
from watersmeet.query.types import is_duration

INT64_MAX = 2**63 - 1
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Bound:
    """In every result, the event time of `later` is at most `most_us` after that of `earlier`."""

    earlier: str
    later: str
    most_us: int


def implied_windows(
    streams: Sequence[Stream], residuals: Iterable[Expression], classes: Iterable[KeyClass]
) -> tuple[int | None, ...]:
    """The window of each stream that the condition implies; None is unbounded."""
    names = [stream.name for stream in streams]
    nothing: tuple[int | None, ...] = (None,) * len(names)
    kinds = {stream.schema.field(stream.event_time).type for stream in streams if stream.event_time is not None}
    if len(kinds) != 1 or not all(stream.event_time is not None and stream.is_delay_given for stream in streams):
        return nothing
    times = {Column(stream.name, stream.event_time): stream.name for stream in streams if stream.event_time}
    reach = _closed(names, [*_bounds(residuals, times), *_equal_times(streams, classes)])
    windows = []
    for name in names:
        ahead = [reach.get((name, other)) for other in names if other != name]
        furthest = None if any(most is None for most in ahead) else max([0, *(m for m in ahead if m is not None)])
        windows.append(None if furthest is None or furthest >= INT64_MAX else furthest + 1)
    return tuple(windows)


def _closed(names: Sequence[str], bounds: Iterable[Bound]) -> dict[tuple[str, str], int]:
    """The least bound of every pair that has one: (earlier, later) -> microseconds."""
    reach: dict[tuple[str, str], int] = {}
    for bound in bounds:
        pair = bound.earlier, bound.later
        reach[pair] = min(bound.most_us, reach.get(pair, bound.most_us))
    for middle, (start, end) in product(names, permutations(names, 2)):
        if (start, middle) in reach and (middle, end) in reach:
            through = reach[start, middle] + reach[middle, end]
            reach[start, end] = min(through, reach.get((start, end), through))
    return reach


def _equal_times(streams: Sequence[Stream], classes: Iterable[KeyClass]) -> Iterator[Bound]:
    """Event times that are equal because they are in one key class."""
    for key_class in classes:
        pairs = zip(streams, key_class.columns, strict=True)
        equal = [stream.name for stream, column in pairs if column is not None and column == stream.event_time]
        yield from (Bound(x, y, 0) for x, y in permutations(equal, 2))


def _bounds(residuals: Iterable[Expression], times: dict[Column, str]) -> Iterator[Bound]:
    for residual in residuals:
        match residual:
            case And(left, right):
                yield from _bounds((left, right), times)
            case Compare(op, Abs(operand), limit) if op in ("<", "<="):
                yield from _bounds((Compare(op, operand, limit), Compare(op, Negate(operand), limit)), times)
            case Compare(op, limit, Abs(operand)) if op in (">", ">="):
                yield from _bounds((Compare("<" if op == ">" else "<=", Abs(operand), limit),), times)
            case Compare(op, left, right) if op in _SWAPPED:
                yield from _of_comparison(op, _linear(left, times), _linear(right, times))


Linear = tuple[dict[str, int], int]
"""A sum: the sign of each stream's event time, and a constant in microseconds."""


def _of_comparison(op: str, left: Linear | None, right: Linear | None) -> Iterator[Bound]:
    """The bounds of `left op right`, if it compares a difference of two event times with a constant."""
    if left is None or right is None:
        return
    signs, constant = _sum(left, right, -1)
    if sorted(signs.values()) != [-1, 1]:
        return
    if op in (">", ">="):
        signs, constant, op = {name: -sign for name, sign in signs.items()}, -constant, _SWAPPED[op]
    later = next(name for name, sign in signs.items() if sign == 1)
    earlier = next(name for name, sign in signs.items() if sign == -1)
    yield Bound(earlier, later, -constant - (op == "<"))
    if op == "=":
        yield Bound(later, earlier, constant)


def _linear(expr: Expression, times: dict[Column, str]) -> Linear | None:
    match expr:
        case Column() if expr in times:
            return {times[expr]: 1}, 0
        case Literal(int(value), type_) if is_duration(type_):
            return {}, value
        case Negate(operand):
            inner = _linear(operand, times)
            return None if inner is None else _sum(({}, 0), inner, -1)
        case Arithmetic(op, left, right) if op in ("+", "-"):
            first, second = _linear(left, times), _linear(right, times)
            return None if first is None or second is None else _sum(first, second, 1 if op == "+" else -1)
    return None


def _sum(left: Linear, right: Linear, sign: int) -> Linear:
    names = left[0].keys() | right[0].keys()
    signs = {name: left[0].get(name, 0) + sign * right[0].get(name, 0) for name in names}
    return {name: value for name, value in signs.items() if value}, left[1] + sign * right[1]
