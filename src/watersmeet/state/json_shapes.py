"""Shapes of JSON values, as data: they check a file of the checkpoint before it is used.

A shape is a function that raises `Damage` for a value that does not have it, with the place of the value: for example
`extents.rows[3] is 'x', not a whole number of at least 0`. Objects may have more keys than their shape names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from watersmeet.state.damage import Damage

Shape: TypeAlias = Callable[[Any, str], None]
"""Takes a value and its place."""
SHOWN_MAX = 40


def _refuse(value: Any, place: str, wanted: str) -> Damage:
    return Damage(f"{place or 'it'} is {shown(repr(value))}, not {wanted}")


def shown(text: str) -> str:
    """A text in a form for messages: short, and on one line."""
    text = "".join(each if each.isprintable() else "?" for each in text[: SHOWN_MAX + 1])
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def any_value(value: Any, place: str) -> None:
    """Accepts every value."""


def of_type(kind: type | tuple[type, ...], wanted: str) -> Shape:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _refuse(value, place, wanted)

    return check


text = of_type(str, "a text")
truth = of_type(bool, "true or false")
number = of_type((int, float), "a number")


def whole(low: int = 0, high: int | None = None) -> Shape:
    """Whole numbers from `low` to `high`, both included."""
    wanted = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"

    def check(value: Any, place: str) -> None:
        if type(value) is not int or value < low or (high is not None and value > high):
            raise _refuse(value, place, wanted)

    return check


def matching(pattern: re.Pattern[str], wanted: str) -> Shape:
    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise _refuse(value, place, wanted)

    return check


def one_of(*values: str) -> Shape:
    def check(value: Any, place: str) -> None:
        if value not in values:
            raise _refuse(value, place, f"one of {', '.join(values)}")

    return check


def maybe(shape: Shape) -> Shape:
    """The shape, or null."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            shape(value, place)

    return check


def list_of(shape: Shape) -> Shape:
    def check(value: Any, place: str) -> None:
        for number, item in enumerate(_list(value, place)):
            shape(item, f"{place}[{number}]")

    return check


def row(*shapes: Shape, at_least: int | None = None) -> Shape:
    """A list with a shape for every item; those after the first `at_least` may be missing."""
    least = len(shapes) if at_least is None else at_least

    def check(value: Any, place: str) -> None:
        if not least <= len(_list(value, place)) <= len(shapes):
            raise _refuse(value, place, f"a list of {len(shapes)}")
        for number, (item, shape) in enumerate(zip(value, shapes, strict=False)):
            shape(item, f"{place}[{number}]")

    return check


def mapping_of(shape: Shape) -> Shape:
    def check(value: Any, place: str) -> None:
        for name, item in _object(value, place).items():
            shape(item, f"{place}.{shown(name)}")

    return check


def record(shapes: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """An object with these keys, and perhaps the optional ones."""
    more = optional or {}

    def check(value: Any, place: str) -> None:
        found = _object(value, place)
        if missing := [name for name in shapes if name not in found]:
            raise Damage(f"{place or 'it'} lacks {', '.join(missing)}")
        for name, shape in (*shapes.items(), *((name, more[name]) for name in more if name in found)):
            shape(found[name], f"{place}.{name}" if place else name)

    return check


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise _refuse(value, place, "a list")
    return value


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _refuse(value, place, "an object")
    return value
