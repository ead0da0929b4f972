"""Parsers of option values: they check one text, and their errors name the option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from watersmeet.adaptation.spill_policies import Policy
from watersmeet.errors import OptionError, unknown_name

OptionValue = str | Policy
Given = Mapping[str, OptionValue]
"""Options that have been set, by name."""


def whole(name: str, largest: Callable[[Given], int]) -> Callable[[str, Given], int]:
    def parse(text: str, given: Given) -> int:
        try:
            value = int(text)
        except ValueError:
            value = 0
        if not 1 <= value <= largest(given):
            raise OptionError(
                f"option {name} must be a whole number from 1 to {largest(given)}, not '{text}'", hint="such as 4"
            )
        return value

    return parse


def number(name: str, bounds: str, fits: Callable[[float], bool], hint: str) -> Callable[[str, Given], float]:
    def parse(text: str, _: Given) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not fits(value):
            raise OptionError(f"option {name} must be a number {bounds}, not '{text}'", hint=hint)
        return value

    return parse


def numbers(name: str, count: int, hint: str) -> Callable[[str, Given], tuple[float, ...]]:
    """A parser of some positive numbers with commas between them."""

    def parse(text: str, _: Given) -> tuple[float, ...]:
        try:
            found = tuple(float(part) for part in text.split(","))
        except ValueError:
            found = ()
        if len(found) != count or not all(0 < value < float("inf") for value in found):
            raise OptionError(f"option {name} must be {count} positive numbers with commas, not '{text}'", hint=hint)
        return found

    return parse


def named(name: str, read: Callable[[str], Any]) -> Callable[[str, Given], Any]:
    """A parser of a duration or a size; its errors name the option."""

    def parse(text: str, _: Given) -> Any:
        try:
            return read(text)
        except OptionError as error:
            named = f"option {name}: {error.message}"
            raise OptionError(named, hint=error.hint, error_class=error.error_class) from None

    return parse


def one_of(name: str, values: Sequence[str]) -> Callable[[str, Given], str]:
    def parse(text: str, _: Given) -> str:
        word = text.strip().lower()
        if word not in values:
            raise unknown_name(f"value of option {name}", "values", text, values, "UNKNOWN_VALUE")
        return word

    return parse


def expected_rows(text: str, _: Given) -> dict[str, int]:
    """Rows by stream, from `a=1000000, b=500000`."""
    found: dict[str, int] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, _equals, rows = part.partition("=")
        if not name.strip() or not rows.strip().isdigit() or int(rows) < 1:
            raise OptionError(
                f"option expectedRows cannot be read at '{part.strip()}'", hint="write it as a=1000000, b=500000"
            )
        found[name.strip()] = int(rows)
    return found
