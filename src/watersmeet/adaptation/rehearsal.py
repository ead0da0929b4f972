"""Rehearsals: adaptations that a script asks for right after given epochs (`option("rehearse", ...)`).

    2: migrate ((a b) c) moving-state; 6: migrate (a b c)

Epochs count from 0; those without rows count as well. An entry is carried out as soon as possible after the commit of
its epoch. The manifest of its last epoch records it, so a restart does not repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from watersmeet.adaptation.migration import AUTO, strategy_named
from watersmeet.epoch.protocol import Migrate
from watersmeet.errors import OptionError
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest

VERBS = ("migrate",)
REASON = "rehearsal"
_ENTRY = re.compile(r"\s*(?:(?P<epoch>\d+)\s*:\s*(?:(?P<verb>\w+)\s*(?P<rest>.*))?)?", re.DOTALL)
_HINT = 'write it like "2: migrate ((a b) c) moving-state; 6: migrate (a b c)"'


@dataclass(frozen=True, slots=True)
class Entry:
    """An adaptation, and the epoch that it follows."""

    epoch: int
    goal: Migrate


def parse_script(text: str, plan_of: Callable[[str], JoinPlan]) -> tuple[Entry, ...]:
    """The entries of a script, by epoch; `plan_of` parses the text of a plan. An unreadable script is refused, with a
    caret under the place."""
    entries, start = [], 0
    for part in text.split(";"):
        if part.strip():
            entries.append(_entry(text, part, start, plan_of))
        start += len(part) + 1
    return tuple(sorted(entries, key=lambda entry: entry.epoch))


def due(script: Sequence[Entry], last: Manifest) -> tuple[int, Entry] | None:
    """The first entry not carried out yet, with its number; None if there is none or its epoch has not passed."""
    number = last.rehearsed
    if number < len(script) and script[number].epoch <= last.epoch:
        return number, script[number]
    return None


def _entry(text: str, part: str, start: int, plan_of: Callable[[str], JoinPlan]) -> Entry:
    found = _ENTRY.fullmatch(part)
    begin = start + len(part) - len(part.lstrip())
    if found is None or found["epoch"] is None:
        raise _unreadable(text, begin, "an entry begins with the number of an epoch and a colon")
    if found["verb"] is None:
        raise _unreadable(text, start + len(part.rstrip()), f"one of {', '.join(VERBS)} is missing")
    if found["verb"].lower() not in VERBS:
        raise _unreadable(text, start + found.start("verb"), f"there is no '{found['verb']}', only {', '.join(VERBS)}")
    rest = found["rest"]
    end = rest.rfind(")") + 1
    if not end:
        raise _unreadable(text, start + found.start("rest"), "a plan such as ((a b) c) is missing")
    try:
        plan = plan_of(rest[:end])
    except OptionError as error:
        raise _unreadable(text, start + found.start("rest"), error.message) from None
    name = rest[end:]
    try:
        strategy = strategy_named(name.strip() or AUTO)
    except OptionError as error:
        at = start + found.start("rest") + end + len(name) - len(name.lstrip())
        raise _unreadable(text, at, error.message, error.hint) from None
    return Entry(int(found["epoch"]), Migrate(plan, strategy, REASON))


def _unreadable(text: str, position: int, what: str, hint: str = _HINT) -> OptionError:
    shown = " ".join(text.splitlines())
    return OptionError(
        f"option rehearse: {what}\n  {shown}\n  {' ' * min(position, len(shown))}^",
        hint=hint,
        error_class="INVALID_REHEARSAL",
    )
