"""What the user wishes of a run, beside the query: its plan, and a script of rehearsals."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.adaptation.rehearsal import Entry
from watersmeet.epoch.goals import Migrate


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's wishes about plans: the option `plan`, the migration to its plan if the option has changed since the
    checkpoint, and a script of rehearsals."""

    asked: str | None = None
    wanted: Migrate | None = None
    script: tuple[Entry, ...] = ()


NO_WISHES = Wishes()
