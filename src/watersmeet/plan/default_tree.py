"""The default tree: as few exchanges and as little intermediate state as the keys allow.

Streams that share a key class are joined by one node. Its results are joined with all streams that another class
connects to them, and so on. One class over all streams gives a single node.
"""

from __future__ import annotations

from watersmeet.plan.tree import Join, Leaf, Tree, mjoin, streams_of
from watersmeet.query.expressions import columns_of
from watersmeet.query.logical import JoinQuery


def default_tree(query: JoinQuery) -> Join:
    """A node per key class, greedily, the class with most streams first."""
    everyone = frozenset(range(len(query.streams)))
    if not query.classes:
        return mjoin(len(everyone))
    first = max(query.classes, key=lambda c: len(c.streams))
    tree: Tree = Join(tuple(Leaf(i) for i in sorted(first.streams)))
    while rest := everyone - streams_of(tree):
        bound = streams_of(tree)
        reach = [c.streams - bound for c in query.classes if c.streams & bound and c.streams - bound]
        more = max(reach, key=len) if reach else _linked(query, bound, rest)
        tree = Join((tree, *(Leaf(i) for i in sorted(more))))
    assert isinstance(tree, Join)
    return tree


def _linked(query: JoinQuery, bound: frozenset[int], rest: frozenset[int]) -> frozenset[int]:
    """A remaining stream that a residual predicate connects; if there is none, the first remaining stream."""
    ordinal = {stream.name: i for i, stream in enumerate(query.streams)}
    for residual in query.residuals:
        streams = frozenset(ordinal[column.stream] for column in columns_of(residual))
        if streams & bound and len(streams & rest) == 1:
            return streams & rest
    return frozenset([min(rest)])
