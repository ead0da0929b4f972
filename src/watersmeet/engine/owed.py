"""What generations of a group owe each other: results whose rows are not all of one generation (S3, equations 3 and 4).

A node has emitted the combinations within single generations, and no others. So its clean-up is a join of all its rows
that yields mixed results only: every row of the first input, of whatever generation, probes all rows of the others.
That is what the papers' repeated merging of two generations yields in the end, in one pass and for any number of them.
Before that, the rows of a store are merged, each with its generation: or every generation would probe every other one,
and the time would grow with the square of their number. One group that has more than is merged at once is probed in
the files as it lies there.

Windowed queries cannot wait: when rows expire, the results they still owe are emitted first. A result over several
generations is found when the first of its rows expires, with the others still there:

    rows of input i that expire  x  rows of j < i that stay  x  all rows of j > i

What a node owes is an ordinary arrival for its parent, which joins it with active rows and stores it with them. So
nodes are cleaned up children first, and nothing here knows of the tree above.
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
"""Rows and bytes of a node that are cleaned up at once, unless one group has more."""
MERGED_FROM = 12
"""So many parts of an input are merged before they are probed; fewer are as fast as they are."""


def owed_in_groups(
    node: NodePlan, parts: Sequence[Part], group_low: int, group_high: int, partitions: int
) -> Iterator[Joined]:
    """What the groups of a range owe at a node, given all rows of its stores."""
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
    """What is owed at a node that some of its rows take part in which expire."""
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
        # Its pairs and matches would tell the cost model of rows that did not arrive together.
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
