"""The input of a spill policy: figures of the partition groups that a slot has in memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class GroupFigures:
    """The groups with active state on one slot, as arrays: element i of every array is of the same group.

    *Aged* figures follow the option `spillUpkeep` (see `adaptation/ledger.py`). Arrays by store have a column for each
    store of the widest stage, with NaN where a stage has fewer. The arrays are read-only.
    """

    epoch: int
    stage: Ints
    group: Ints
    height: Ints
    """0 for a stage whose inputs are all streams, else one more than the highest stage that feeds it."""
    size: Floats
    """P_size: bytes of the active rows."""
    sizes: Floats
    """P_size by store."""
    rows: Floats
    """Active rows by store: `sizes` divided by the mean bytes of a row in the store. NaN for stores that the topmost
    node of the stage does not join."""
    arrived: Floats
    """Rows added, by store; aged."""
    output: Floats
    """P_output: results of the query that the group has contributed to; aged."""
    local: Floats
    """Results that the group's own stage has emitted; aged."""
    inter: Floats
    """P_inter: intermediate results that the group has contributed to, in bytes of their stores; aged."""

    def __post_init__(self) -> None:
        count = len(self.group)
        for field in fields(self):
            values = getattr(self, field.name)
            if isinstance(values, np.ndarray):
                if len(values) != count:
                    raise ValueError(f"{field.name} has {len(values)} rows, not {count}")
                view = values.view()
                view.flags.writeable = False
                object.__setattr__(self, field.name, view)

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: Ints) -> GroupFigures:
        """The figures of some groups."""
        columns = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "epoch"}
        return replace(self, **{name: column[rows] for name, column in columns.items()})
