"""The key classes of a node, and the trail of keys by which a row was partitioned before."""

from __future__ import annotations

from watersmeet.plan.tree import Join, Leaf, Tree, streams_of
from watersmeet.query.logical import JoinQuery, KeyClass

Key = tuple[int, ...]
"""Key classes, by number. The empty key is for nodes that no key covers."""


def node_key(query: JoinQuery, node: Join) -> Key:
    """The key classes that have a column in every input of a node."""
    inputs = [streams_of(child) for child in node.inputs]
    return tuple(i for i, c in enumerate(query.classes) if all(c.streams & streams for streams in inputs))


def trail(query: JoinQuery, tree: Tree) -> tuple[Key, ...]:
    """The keys by which the rows of a tree were partitioned where they were joined, the last one first.

    (A node over several keys has none of its own here: its inputs take different paths.)
    """
    if isinstance(tree, Leaf):
        return ()
    own = node_key(query, tree)
    below = [key for child in tree.inputs for key in trail(query, child)]
    return tuple(dict.fromkeys([*([own] if own else []), *below]))


NO_KEY = "no key"
GROUPS_KEY = "groups"
"""The key of the store of an aggregation: the GROUP BY keys."""


def key_text(query: JoinQuery, key: Key) -> str:
    """A key by its columns, as checkpoints name it."""
    return " AND ".join(class_text(query, query.classes[number]) for number in key) or NO_KEY


def class_text(query: JoinQuery, key_class: KeyClass) -> str:
    pairs = zip(query.streams, key_class.columns, strict=True)
    return " = ".join(f"{stream.name}.{column}" for stream, column in pairs if column is not None)


def key_name(key: Key) -> str:
    return "+".join(map(str, key))
