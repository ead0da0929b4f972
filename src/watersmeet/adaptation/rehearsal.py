"""Rehearsals: adaptations that a script asks for right after given epochs (`option("rehearse", ...)`).

    2: migrate ((a b) c) moving-state; 4: relocate 0 1 0.5; 5: spill 0 0.3; 7: clean

| entry                   | carries out                                                                       |
|-------------------------|-----------------------------------------------------------------------------------|
| `migrate PLAN STRATEGY` | a migration; without a strategy, `auto`                                           |
| `relocate A B SHARE`    | a share of the bytes in use on slot A goes to slot B, the most productive groups  |
| `spill A SHARE`         | a share of the bytes in use on slot A leaves memory, by the policy                |
| `clean`                 | all owed results are emitted                                                      |

Epochs count from 0; those without rows count as well. An entry is carried out as soon as possible after the commit of
its epoch. The manifest of its last epoch records it, so a restart does not repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from watersmeet.adaptation.migration import AUTO, strategy_named
from watersmeet.epoch.goals import CleanUp, Migrate, Relocate, SpillShare
from watersmeet.errors import OptionError
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.manifest import Manifest

VERBS = ("migrate", "relocate", "spill", "clean")
REASON = "rehearsal"
_ENTRY = re.compile(r"\s*(?:(?P<epoch>\d+)\s*:\s*(?:(?P<verb>\w+)\s*(?P<rest>.*))?)?", re.DOTALL)
_HINT = 'write it like "2: migrate ((a b) c) moving-state; 4: relocate 0 1 0.5; 5: spill 0 0.3; 7: clean"'
_WORD = re.compile(r"\S+")
Rehearsed: TypeAlias = Migrate | Relocate | SpillShare | CleanUp


@dataclass(frozen=True, slots=True)
class Entry:
    """An adaptation, and the epoch that it follows."""

    epoch: int
    goal: Rehearsed


class _Unreadable(Exception):
    """A part of an entry that cannot be read, by its position in what follows the verb."""

    def __init__(self, position: int, what: str, hint: str = _HINT) -> None:
        self.position, self.what, self.hint = position, what, hint


def parse_script(text: str, plan_of: Callable[[str], JoinPlan], slots: int | None = None) -> tuple[Entry, ...]:
    """The entries of a script, by epoch; `plan_of` parses the text of a plan, and `slots` is the number of slots, if it
    is known. An unreadable script is refused, with a caret under the place."""
    entries, start = [], 0
    for part in text.split(";"):
        if part.strip():
            entries.append(_entry(text, part, start, plan_of, slots))
        start += len(part) + 1
    return tuple(sorted(entries, key=lambda entry: entry.epoch))


def due(script: Sequence[Entry], last: Manifest) -> tuple[int, Entry] | None:
    """The first entry not carried out yet, with its number; None if there is none or its epoch has not passed."""
    number = last.rehearsed
    if number < len(script) and script[number].epoch <= last.epoch:
        return number, script[number]
    return None


def _entry(text: str, part: str, start: int, plan_of: Callable[[str], JoinPlan], slots: int | None) -> Entry:
    found = _ENTRY.fullmatch(part)
    begin = start + len(part) - len(part.lstrip())
    if found is None or found["epoch"] is None:
        raise _unreadable(text, begin, "an entry begins with the number of an epoch and a colon")
    if found["verb"] is None:
        raise _unreadable(text, start + len(part.rstrip()), f"one of {', '.join(VERBS)} is missing")
    verb = found["verb"].lower()
    if verb not in VERBS:
        raise _unreadable(text, start + found.start("verb"), f"there is no '{found['verb']}', only {', '.join(VERBS)}")
    try:
        return Entry(int(found["epoch"]), _goal(verb, found["rest"], plan_of, slots))
    except _Unreadable as error:
        raise _unreadable(text, start + found.start("rest") + error.position, error.what, error.hint) from None


def _goal(verb: str, rest: str, plan_of: Callable[[str], JoinPlan], slots: int | None) -> Rehearsed:
    match verb:
        case "migrate":
            return _migrate(rest, plan_of)
        case "relocate":
            words = _words(rest, ("the slot that gives", "the slot that takes", "a share of the bytes, such as 0.5"))
            sender, receiver = _slot(*words[0], slots), _slot(*words[1], slots)
            if sender == receiver:
                raise _Unreadable(words[1][0], "a slot cannot give groups to itself")
            return Relocate(sender, receiver, _share(*words[2]), REASON)
        case "spill":
            words = _words(rest, ("the slot that spills", "a share of the bytes, such as 0.3"))
            return SpillShare(_slot(*words[0], slots), _share(*words[1]), REASON)
        case _:
            _words(rest, ())
            return CleanUp(REASON)


def _migrate(rest: str, plan_of: Callable[[str], JoinPlan]) -> Migrate:
    end = rest.rfind(")") + 1
    if not end:
        raise _Unreadable(0, "a plan such as ((a b) c) is missing")
    try:
        plan = plan_of(rest[:end])
    except OptionError as error:
        raise _Unreadable(0, error.message) from None
    name = rest[end:]
    try:
        return Migrate(plan, strategy_named(name.strip() or AUTO), REASON)
    except OptionError as error:
        raise _Unreadable(end + len(name) - len(name.lstrip()), error.message, error.hint or _HINT) from None


def _words(rest: str, wanted: Sequence[str]) -> list[tuple[int, str]]:
    """The words of an entry with their positions: one for everything that is wanted."""
    words = [(found.start(), found[0]) for found in _WORD.finditer(rest)]
    if len(words) < len(wanted):
        raise _Unreadable(len(rest.rstrip()), f"{wanted[len(words)]} is missing")
    if len(words) > len(wanted):
        raise _Unreadable(words[len(wanted)][0], f"'{words[len(wanted)][1]}' is too much")
    return words


def _slot(position: int, word: str, slots: int | None) -> int:
    if not word.isdecimal():
        raise _Unreadable(position, f"'{word}' is not the number of a slot")
    if slots is not None and int(word) >= slots:
        raise _Unreadable(position, f"there is no slot {word}, only 0 to {slots - 1}")
    return int(word)


def _share(position: int, word: str) -> float:
    try:
        share = float(word)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise _Unreadable(position, f"'{word}' is not a share: more than 0 and at most 1")
    return share


def _unreadable(text: str, position: int, what: str, hint: str = _HINT) -> OptionError:
    shown = " ".join(text.splitlines())
    return OptionError(
        f"option rehearse: {what}\n  {shown}\n  {' ' * min(position, len(shown))}^",
        hint=hint,
        error_class="INVALID_REHEARSAL",
    )
