"""Pairs of rows: what the selectivity of a key is a share of, over all slots.

A row probes rows of its own slot only, but a selectivity is a share of *all* pairs of rows. So a slot reports rows, per
input of a node or hop, and the driver adds them up over the slots before it multiplies:

| count   | rows of the input                                       |
|---------|---------------------------------------------------------|
| `there` | in its store when the first new row of the epoch probes |
| `new`   | that probe in the epoch, and are then stored            |

In one epoch, two inputs of a node meet in every pair that has a new row, once, however the rows are cut into chunks and
runs:

    pairs(i, j) = (there_i + new_i) (there_j + new_j) - there_i there_j

In a hop one input has new rows only and the others have rows that are there, so the formula holds for hops too. It
counts rows whatever their times: windows are no part of a key's selectivity. Products are made per epoch, because only
these add up over the life of a query.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import combinations

THERE, NEW = "there", "new"


def pair_name(left: str, right: str) -> str:
    """What the pairs and matches of two inputs are counted under, given their labels."""
    return "~".join(sorted((left, right)))


def count_rows(counts: Counter[str], stage: int, node: str, label: str, *, there: int, new: int) -> None:
    """Report the rows of one input of a node, also where there are none: `node` is unique in its stage, and the same on
    all slots that run it."""
    counts[f"{THERE}.{stage}.{node}.{label}"] += there
    counts[f"{NEW}.{stage}.{node}.{label}"] += new


def with_pairs(reports: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of all slots and stages in one epoch together, with `pairs.*` in place of `there.*` and `new.*`.

    Where slots have different nodes in a stage, those that lack a node are taken to have as many rows as the others.
    """
    sums: defaultdict[str, int] = defaultdict(int)
    slots: Counter[tuple[str, ...]] = Counter()
    for report in reports:
        for name, count in report.items():
            sums[name] += count
        slots.update(_nodes_of(tuple(report)))
    rows: dict[tuple[str, str], dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for name, parts in [(name, parts) for name in sums if (parts := _rows_of(name))]:
        kind, stage, node, label = parts
        rows[stage, node][label][kind] = sums.pop(name)
    for (stage, node), inputs in rows.items():
        for left, right in combinations(inputs, 2):
            if pairs := _pairs(inputs[left], inputs[right]):
                sums[f"pairs.{pair_name(left, right)}"] += pairs * slots[stage,] // slots[stage, node]
    return dict(sums)


@lru_cache(maxsize=256)  # all slots report the same names
def _nodes_of(names: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """The stages, and the nodes in them, that a report of these counts has rows of."""
    rows = [parts for name in names if (parts := _rows_of(name))]
    return frozenset(known for _, stage, node, _ in rows for known in ((stage,), (stage, node)))


def _rows_of(name: str) -> tuple[str, str, str, str] | None:
    """The kind, stage, node and label that a count of `count_rows` is of; None for others."""
    if not name.startswith((f"{THERE}.", f"{NEW}.")):
        return None
    kind, stage, node, label = name.split(".")
    return kind, stage, node, label


def _pairs(left: Mapping[str, int], right: Mapping[str, int]) -> int:
    return (left[THERE] + left[NEW]) * (right[THERE] + right[NEW]) - left[THERE] * right[THERE]
