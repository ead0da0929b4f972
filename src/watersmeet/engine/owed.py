"""Owed results: results whose rows are not all of one generation (S3, equations 3 and 4).

A node has emitted the combinations within single generations, and no others. So its clean-up is a join of all its rows
that yields mixed results only: every row of the first input, of any generation, probes all rows of the others. The
papers merge two generations again and again; the results are the same, but here one pass does any number of them.
The rows of a store are merged first, each with its generation. Otherwise every generation would probe every other one,
and the time would grow with the square of their number. A single group above the limits is not merged: its files are
probed as they are.

Windowed queries cannot wait: when rows expire, the results they still owe are emitted first. A result over several
generations is found when the first of its rows expires, while the others are still stored:

    rows of input i that expire  x  rows of j < i that stay  x  all rows of j > i

An owed result is an ordinary arrival for the parent node, which joins it with active rows and stores it with them. So
nodes are cleaned up children first, and this module does not know the tree above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from watersmeet.engine.generations import Part, is_mixed, merged_parts, ranges_by_rows
from watersmeet.engine.layers import slice_of
from watersmeet.engine.mjoin import probe
from watersmeet.engine.partials import Generations, Joined
from watersmeet.plan.nodes import NodePlan
from watersmeet.state.groups import Groups

ROWS_AT_ONCE = 1 << 19
BYTES_AT_ONCE = 1 << 26
"""The most rows and bytes of a node that are cleaned up at once, unless one group has more."""
MERGED_FROM = 12
"""From this number on, parts of an input are merged before they are probed; fewer parts are as fast unmerged."""


def owed_in_groups(
    node: NodePlan, parts: Sequence[Part], group_low: int, group_high: int, partitions: int
) -> Iterator[Joined]:
    """The owed results of a range of groups at a node, given all rows of its stores."""
    of_node = [part for part in parts if 0 <= part.store - node.first_store < len(node.inputs)]
    if not is_mixed(of_node):
        return
    runs = [part.run for part in of_node]
    bounds = {"rows_max": ROWS_AT_ONCE, "bytes_max": BYTES_AT_ONCE}
    for low, high in ranges_by_rows(runs, group_low, group_high, partitions, **bounds):
        here = Groups.between(low, high)
        cut = [Part(p.store, p.generation, slice_of(p.run, here, partitions)) for p in of_node]
        held = [part for part in cut if part.run.rows]
        if is_mixed(held):
            inputs = _by_input(node, held)
            if high - low > 1 or _is_small(held):
                inputs = [merged_parts(parts) if len(parts) >= MERGED_FROM else parts for parts in inputs]
            yield from _mixed(node, 0, inputs[0], inputs)


def owed_at_expiry(node: NodePlan, expiring: Sequence[Part], staying: Sequence[Part]) -> Iterator[Joined]:
    """The owed results of a node that contain an expiring row."""
    first, others = _by_input(node, expiring), _by_input(node, staying)
    if not is_mixed([part for parts in (*first, *others) for part in parts]):
        return
    for i, leaving in enumerate(first):
        targets = [others[j] if j < i else [*others[j], *first[j]] for j in range(len(first))]
        yield from _mixed(node, i, leaving, targets)


def _mixed(node: NodePlan, origin: int, rows: Sequence[Part], targets: Sequence[Sequence[Part]]) -> Iterator[Joined]:
    runs = [[part.run for part in parts] for parts in targets]
    generations = [[part.of_rows for part in parts] for parts in targets]
    for part in rows:
        # Its pairs and matches are not counted: the cost model must not see rows that did not arrive together.
        yield from probe(
            node, origin, part.run, runs, counts=Counter(), generations=Generations(part.of_rows, generations)
        )


def _is_small(parts: Sequence[Part]) -> bool:
    rows, size = sum(part.run.rows for part in parts), sum(part.run.kept_bytes() for part in parts)
    return rows <= ROWS_AT_ONCE and size <= BYTES_AT_ONCE


def _by_input(node: NodePlan, parts: Sequence[Part]) -> list[list[Part]]:
    found: list[list[Part]] = [[] for _ in node.inputs]
    for part in parts:
        if 0 <= part.store - node.first_store < len(node.inputs):
            found[part.store - node.first_store].append(part)
    return found
