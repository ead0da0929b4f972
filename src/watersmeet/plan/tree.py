"""The shape of a join: a tree of nodes with two or more inputs each, written as nested parentheses.

(A B C)      one node over three streams (mjoin)
((A B) C)    a binary join tree (bjtree)
((A B C) D)  a hybrid

A stream may stand in a word that says what its store keeps (`plan/weights.py`):

group(A)     rows of A that the query cannot tell apart are one row with a weight
weighted(A)  rows have weights, and arriving ones are kept apart
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from watersmeet.errors import OptionError

Kept: TypeAlias = Literal["rows", "group", "weighted"]
"""What a store of a stream keeps: its rows, combined rows, or rows with weights that are not combined on arrival."""
KEPT: tuple[Kept, ...] = get_args(Kept)
WORDS = KEPT[1:]
_TOKEN = re.compile(r"\s*([()]|[A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A stream, by its ordinal."""

    stream: int
    kept: Kept = "rows"


@dataclass(frozen=True, slots=True)
class Join:
    """A node. A result combines matching rows, one of each input."""

    inputs: tuple[Tree, ...]


Tree: TypeAlias = Leaf | Join


def streams_of(tree: Tree) -> frozenset[int]:
    match tree:
        case Leaf(stream):
            return frozenset([stream])
        case Join(inputs):
            return frozenset().union(*(streams_of(child) for child in inputs))


def nodes_of(tree: Tree) -> Iterator[Join]:
    """The nodes of a tree, children first."""
    if isinstance(tree, Join):
        for child in tree.inputs:
            yield from nodes_of(child)
        yield tree


def leaves_of(tree: Tree) -> Iterator[Leaf]:
    match tree:
        case Leaf():
            yield tree
        case Join(inputs):
            for child in inputs:
                yield from leaves_of(child)


def without_words(tree: Tree) -> Tree:
    """The shape alone: every store keeps rows."""
    match tree:
        case Leaf(stream):
            return Leaf(stream)
        case Join(inputs):
            return Join(tuple(map(without_words, inputs)))


def mjoin(streams: int) -> Join:
    """One node over all streams."""
    return Join(tuple(Leaf(i) for i in range(streams)))


def tree_text(tree: Tree, names: Sequence[str]) -> str:
    match tree:
        case Leaf(stream, kept):
            return names[stream] if kept == "rows" else f"{kept}({names[stream]})"
        case Join(inputs):
            return f"({' '.join(tree_text(child, names) for child in inputs)})"


def parse_tree(text: str, names: Sequence[str]) -> Join:
    """The tree that a text describes. It must name every stream once."""
    tokens = _tokens(text)
    ordinal = {name.lower(): i for i, name in enumerate(names)}
    position = 0

    def parse() -> Tree:
        nonlocal position
        if position == len(tokens):
            raise _bad(text, "a ')' is missing")
        token = tokens[position]
        position += 1
        if token == ")":
            raise _bad(text, "a ')' stands where a stream or '(' should")
        if token.lower() in WORDS and token.lower() not in ordinal and tokens[position : position + 1] == ["("]:
            return stored_as(token.lower())
        if token != "(":
            if token.lower() not in ordinal:
                near = difflib.get_close_matches(token, names, n=1)
                raise _bad(text, f"there is no stream '{token}'" + (f" (did you mean '{near[0]}'?)" if near else ""))
            return Leaf(ordinal[token.lower()])
        inputs: list[Tree] = []
        while position < len(tokens) and tokens[position] != ")":
            inputs.append(parse())
        if position == len(tokens):
            raise _bad(text, "a ')' is missing")
        position += 1
        if len(inputs) < 2:
            raise _bad(text, "a node needs two inputs or more")
        return Join(tuple(inputs))

    def stored_as(word: str) -> Leaf:
        nonlocal position
        found = tokens[position + 1 : position + 3]
        if len(found) < 2 or found[0].lower() not in ordinal or found[1] != ")":
            raise _bad(text, f"'{word}(...)' holds one stream")
        position += 3
        return Leaf(ordinal[found[0].lower()], next(kept for kept in WORDS if kept == word))

    tree = parse()
    if position < len(tokens):
        raise _bad(text, f"nothing can follow at '{tokens[position]}'")
    leaves = sorted(leaf.stream for leaf in leaves_of(tree))
    if isinstance(tree, Leaf) or leaves != list(range(len(names))):
        raise _bad(text, f"every one of the streams {', '.join(names)} must stand in it once")
    return tree


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _bad(text, f"cannot read '{text[position:].strip()[0]}'")
        tokens.append(found[1])
        position = found.end()
    return tokens


def _bad(text: str, reason: str) -> OptionError:
    return OptionError(
        f"option plan '{text}' is not a join tree: {reason}",
        hint="write nested parentheses, such as (a b c) or ((a b) c)",
        error_class="INVALID_PLAN",
    )
