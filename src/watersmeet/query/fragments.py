"""Pieces of SQL text with their positions, so that an error can point at the place in the user's text.

A query is read piece by piece: a condition, a conjunct of it, a name in that. The reader of a piece raises QueryError
with a position in *that* piece. `at` adds the offset of the piece, and `Fragment.drawn` draws the place, once:

    unknown column 'pirce' in stream 'a' (line 2, column 9)
      WHERE a.pirce > 3
              ^
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import QueryError


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a text and where it starts. If the text does not have the piece there, errors point at `start`."""

    text: str
    whole: str
    start: int = 0

    @staticmethod
    def of(text: str | Fragment) -> Fragment:
        return text if isinstance(text, Fragment) else Fragment(text, text)

    def part(self, start: int, end: int) -> Fragment:
        return Fragment(self.text[start:end], self.whole, self.start + start)

    def stripped(self) -> Fragment:
        start = len(self.text) - len(self.text.lstrip())
        return self.part(start, max(start, len(self.text.rstrip())))

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw the place in this piece for an error raised inside, unless it already has a drawing."""
        try:
            yield
        except QueryError as error:
            if error.drawn:
                raise
            raise draw(error, self.whole, self._place(error.position)) from None

    def _place(self, position: int | None) -> int:
        if position is not None and self.whole.startswith(self.text, self.start):
            return self.start + position
        return self.start + len(self.text) - len(self.text.lstrip())


@contextmanager
def at(offset: int) -> Iterator[None]:
    """Shift the position of an error raised inside by this much; an error without a position gets this one."""
    try:
        yield
    except QueryError as error:
        if not error.drawn:
            error.position = offset + (error.position or 0)
        raise


def start_of(node: Any) -> int | None:
    """Where a parser node starts in the text, if the parser has recorded it."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=None)


def draw(error: QueryError, text: str, position: int) -> QueryError:
    """The error with line, column and a caret under the place."""
    before = text[:position]
    number, column = before.count("\n"), position - (before.rfind("\n") + 1)
    line = text.split("\n")[number].replace("\t", " ").rstrip("\r")
    indent = " " * sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line[:column])
    message = f"{error.message} (line {number + 1}, column {column + 1})\n  {line}\n  {indent}^"
    return QueryError(message, hint=error.hint, error_class=error.error_class, position=position, drawn=True)
