"""Whether a query is the one that a checkpoint was made by: both are sets of marks, compared one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watersmeet.errors import CheckpointError
from watersmeet.state.damage import damaged
from watersmeet.state.format_1 import OldCheckpoint
from watersmeet.state.manifest_json import FORMAT_1
from watersmeet.state.query_file import Texts, Written, difference, hash_of, read_marks


@dataclass(frozen=True, slots=True)
class Identity:
    """The marks of a checkpoint, and of a query; `output` are the names of marks of the output."""

    made_for: Mapping[str, str]
    asked: Mapping[str, str]
    output: frozenset[str]
    texts: Texts | None = None
    """The query of the checkpoint as it was written, if it is known."""

    @property
    def differing(self) -> list[str]:
        """The names of the marks that differ."""
        names = sorted(self.made_for.keys() | self.asked.keys())
        return [name for name in names if self.made_for.get(name) != self.asked.get(name)]

    @property
    def written(self) -> Written:
        """The query of the checkpoint."""
        return Written(self.made_for, self.texts)

    def require_same(self, location: Path) -> None:
        """Refuse a query that differs, naming every difference."""
        found = self.differing
        texts = [difference(name, self.made_for.get(name, "none"), self.asked.get(name, "none")) for name in found]
        if any(name not in self.output for name in found):
            raise another_join(location, texts)
        if found:
            raise another_output(location, texts)


def identity_of(
    path: Path,
    last: Mapping[str, Any] | None,
    old: OldCheckpoint | None,
    join: Mapping[str, str],
    marks_1: Mapping[str, str],
    output: Mapping[str, str],
) -> Identity:
    """The query in the file `path`, beside a given one; `last` is the last manifest."""
    marks, names = {**join, **output}, frozenset(output)
    if old is not None:
        return Identity(old.marks, marks_1, names)
    if last is not None and last.get("query") == hash_of(marks):
        return Identity(marks, marks, names, _texts_of(path, last["query"]))
    made_for, texts = _made_for(path, marks, last)
    if made_for.keys().isdisjoint(output):  # written by a version without output marks
        made_for = {**made_for, **output}
    return Identity(made_for, marks, names, texts)


def _texts_of(path: Path, query: str) -> Texts | None:
    """The texts of a query that is the same; None if they cannot be read: the file is written again."""
    try:
        kept = read_marks(path, query)
    except CheckpointError:
        return None
    return None if kept is None or hash_of(kept.marks) != query else kept.texts


def _made_for(
    path: Path, marks: Mapping[str, str], last: Mapping[str, Any] | None
) -> tuple[Mapping[str, str], Texts | None]:
    """The marks in the checkpoint; the given ones if the query has not begun."""
    kept = read_marks(path, None if last is None else last.get("query"))
    if kept is None:
        if last is None:
            return marks, None
        raise damaged(path, "it is missing, and without it nobody knows whether this query is the same")
    if kept.format == FORMAT_1:  # the query has not committed anything in this format
        found = {name: kept.marks.get(name, "") for name in marks}
        return found | {name: mark for name, mark in marks.items() if name.startswith("columns read of ")}, None
    if last is not None and last.get("query", hash_of(kept.marks)) != hash_of(kept.marks):
        raise damaged(path, "it is of another query than the last manifest")
    return kept.marks, kept.texts


def another_join(location: Path, differences: Sequence[str]) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {location} was made by a different join ({'; '.join(differences)})",
        hint="slots, budgets and delays may change, the join may not: use a new checkpointLocation, or let the state "
        "follow with option('onChange', 'migrate')",
        error_class="DIFFERENT_JOIN",
    )


def another_output(location: Path, differences: Sequence[str]) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {location} was made for another output ({'; '.join(differences)})",
        hint="results of both would not fit together: use a new checkpointLocation and a new place for the output",
        error_class="DIFFERENT_OUTPUT",
    )
