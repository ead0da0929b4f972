"""The tree nobody asked for: a node per key class, the largest first, and a stream that no key reaches at the end."""

import pyarrow as pa
import pytest

from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import tree_text
from watersmeet.query.logical import Stream, build_query

SCHEMA = pa.schema([(column, pa.int64()) for column in "wxyz"])


def default(streams: str, where: str) -> tuple[str, int]:
    """The tree and the number of its stages."""
    query = build_query([Stream(name, SCHEMA) for name in streams], where=[where], within=None, windows={}, select=[])
    tree = default_tree(query)
    return tree_text(tree, streams), len(plan_join(query, (tree,), 8).stages)


@pytest.mark.parametrize(
    ("streams", "where", "tree", "stages"),
    [
        ("ABC", "A.x = B.x AND B.x = C.x", "(A B C)", 1),
        ("ABC", "A.x = B.x AND B.x = C.x AND A.y = C.y", "(A B C)", 1),
        ("ABCDE", "A.x = B.x AND B.x = C.x AND C.y = D.x AND D.y = E.x", "(((A B C) D) E)", 3),
        ("ABCD", "A.w = B.w AND B.x = C.x AND B.x = D.x", "((B C D) A)", 2),
        ("ABCD", "A.w = B.w AND A.x = C.x AND A.y = D.y", "(((A B) C) D)", 3),
        ("ABCDE", "A.w = B.w AND B.x = C.x AND C.x = D.x AND B.y = E.y", "(((B C D) E) A)", 3),
        ("ABC", "A.x = B.x AND B.y < C.y", "((A B) C)", 2),
        ("ABCD", "A.x = B.x AND C.x = D.x AND B.y < D.y", "(((C D) B) A)", 3),
        ("ABC", "A.x < B.x AND B.x < C.x", "(A B C)", 1),
    ],
)
def test_default_trees(streams, where, tree, stages):
    assert default(streams, where) == (tree, stages)
