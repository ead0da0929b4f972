"""The errors a user meets: what is wrong, where, and what to do.

Every error has an *error class*, a stable upper-case word that programs can test, next to a text for people:

    [UNKNOWN_COLUMN] unknown column 'pirce' in stream 'bank1'. did you mean 'price'?

There is a subclass only where a caller would catch it on its own. All survive pickling, since Python workers
raise them and the driver shows them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, ClassVar

from pyspark.errors import PySparkException


class WatersmeetError(PySparkException):  # type: ignore[misc]  # mypy does not look into pyspark
    """Anything that watersmeet refuses or fails to do. Who catches `PySparkException` catches it as well."""

    default_error_class: ClassVar[str] = "WATERSMEET_ERROR"

    def __init__(self, message: str, *, hint: str = "", error_class: str | None = None) -> None:
        super().__init__(message, error_class or self.default_error_class, {})
        self.message = message
        self.hint = hint
        self.error_class = error_class or self.default_error_class

    def __str__(self) -> str:
        text = f"[{self.error_class}] {self.message}"
        if not self.hint:
            return text
        # A message that ends in a drawing (the caret under a query) takes its hint on the next line.
        return f"{text}\n{self.hint}" if "\n" in self.message else f"{text}. {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.error_class)

    def getErrorClass(self) -> str:
        return self.error_class

    def getMessage(self) -> str:
        return self.message

    def getSqlState(self) -> None:
        """None: conditions of ours are not in Spark's list."""


def _rebuild(kind: type[WatersmeetError], message: str, hint: str, error_class: str) -> WatersmeetError:
    return kind(message, hint=hint, error_class=error_class)


class QueryError(WatersmeetError):
    """The query as typed is wrong.

    `position` says where, counted in the piece of text that was being read; once `drawn`, the message shows the place
    in the whole text, and the position is one of that (see `query/fragments.py`).
    """

    default_error_class = "INVALID_QUERY"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        error_class: str | None = None,
        position: int | None = None,
        drawn: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, error_class=error_class)
        self.position = position
        self.drawn = drawn


class OptionError(WatersmeetError):
    """An option, duration or size has a value that cannot be used."""

    default_error_class = "INVALID_OPTION"


class CheckpointError(WatersmeetError):
    """The checkpoint is refused: of another query, another format, or damaged."""

    default_error_class = "CHECKPOINT_REFUSED"


class CorruptSegmentError(CheckpointError):
    """The bytes of a segment are not those that were written."""

    default_error_class = "CORRUPT_SEGMENT"


class FencedError(WatersmeetError):
    """Another run has taken over this checkpoint: this one must stop."""

    default_error_class = "FENCED"


class SinkError(WatersmeetError):
    """The sink refused an epoch, or cannot keep its promise."""

    default_error_class = "SINK_FAILED"


def unknown_name(kind: str, plural: str, name: str, known: Iterable[str], error_class: str) -> OptionError:
    """A name among options or their values that there is not, with the nearest that there is."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.strip().lower(), by_lower, n=1)
    hint = f"did you mean '{by_lower[near[0]]}'?" if near else f"known {plural}: {', '.join(by_lower.values())}"
    return OptionError(f"unknown {kind} '{name}'", hint=hint, error_class=error_class)


def error_from_worker(text: str) -> WatersmeetError | None:
    """One of ours that a Python worker raised, found again in the text that Spark makes of it."""
    known = (WatersmeetError, QueryError, OptionError, CheckpointError, CorruptSegmentError, SinkError)
    kinds = {kind.__name__: kind for kind in known}
    found = re.search(r"watersmeet\.errors\.(\w+): \[(\w+)\] (.*)", text)
    if found is None or found[1] not in kinds:
        return None
    return kinds[found[1]](found[3], error_class=found[2])
