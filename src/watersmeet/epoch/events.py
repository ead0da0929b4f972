"""Adaptations as values: the change, its epoch and its reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One adaptation, for the progress report and the event log."""

    epoch: int
    kind: str
    """`plan`: a plan was chosen; `spill`: groups were closed and left memory; `cleanUp`: their owed results were
    emitted; `relocate`: groups went to another slot; `slots`: the number of slots changed; `migrate`: the query runs by
    another plan from then on; `reoptimize`: the optimiser has decided about that; `migrationOutcome`: what a migration
    of its has cost and gained."""
    slot: int | None
    """None: all slots."""
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        value = asdict(self)
        return {**{name: v for name, v in value.items() if name != "details"}, **self.details}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())
