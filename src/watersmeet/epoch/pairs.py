"""Pairs of rows over all slots: the selectivity of a key is a share of them.

A row probes rows of its own slot only, but a selectivity is a share of *all* pairs of rows. So a slot reports rows, per
input of a node or hop, and the driver adds them up over the slots before it multiplies:

| count   | rows of the input                                       |
|---------|---------------------------------------------------------|
| `there` | stored when the first new row of the epoch probes       |
| `new`   | that probe in the epoch, and are then stored            |

In one epoch, every pair of rows of two inputs with at least one new row is compared once, however the rows are cut into
chunks and runs:

    pairs(i, j) = (there_i + new_i) (there_j + new_j) - there_i there_j

In a hop one input has new rows only and the others have stored rows only, so the formula holds for hops too. It ignores
the times of rows: windows are no part of a key's selectivity. Products are made per epoch, because only these add up
over the life of a query.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from watersmeet.epoch.task import InputRows, NodeInput, SlotReport
from watersmeet.state.measures import PAIRS, Counts, Figure, total


def pair_name(left: str, right: str) -> str:
    """The name under which pairs and matches of two inputs are counted, given their labels."""
    return "~".join(sorted((left, right)))


def with_pairs(reports: Sequence[SlotReport]) -> Counts:
    """The counts of all slots and stages in one epoch together, with the pairs of rows of all inputs.

    If slots have different nodes in a stage, a slot without a node is assumed to have as many rows as the others.
    """
    sums: dict[NodeInput, list[int]] = {}
    slots: Counter[tuple[int] | tuple[int, str]] = Counter()
    for report in reports:
        for at, (there, new) in report.inputs.items():
            held = sums.setdefault(at, [0, 0])
            held[0] += there
            held[1] += new
        slots.update(_nodes_of(tuple(report.inputs)))
    rows: defaultdict[tuple[int, str], dict[str, InputRows]] = defaultdict(dict)
    for at, held in sums.items():
        rows[at.stage, at.node][at.label] = InputRows(*held)
    pairs: Counter[Figure] = Counter()
    for (stage, node), inputs in rows.items():
        for left, right in combinations(inputs, 2):
            if met := _pairs(inputs[left], inputs[right]):
                scaled = met * slots[stage,] // slots[stage, node]
                pairs[Figure(PAIRS, pair_name(left, right))] += scaled
    return total([*(report.counts for report in reports), Counts(pairs)])


def add_rows(inputs: dict[NodeInput, InputRows], at: NodeInput, rows: InputRows) -> None:
    """Add rows of an input to a report; hops may probe the same input twice."""
    there, new = inputs.get(at, InputRows())
    inputs[at] = InputRows(there + rows.there, new + rows.new)


@lru_cache(maxsize=256)  # all slots report the same inputs
def _nodes_of(inputs: tuple[NodeInput, ...]) -> frozenset[tuple[int] | tuple[int, str]]:
    """The stages and nodes for which a report has rows."""
    return frozenset(known for at in inputs for known in ((at.stage,), (at.stage, at.node)))


def _pairs(left: InputRows, right: InputRows) -> int:
    return (left.there + left.new) * (right.there + right.new) - left.there * right.there
