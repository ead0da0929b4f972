"""The words of an expression, for comparing texts: columns resolved, names without case, strings unchanged. Two texts
with the same words mean the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from watersmeet.query.aggregates import WINDOW
from watersmeet.query.expressions import Column
from watersmeet.query.relations import Stream
from watersmeet.query.sqltext import locate, parse, tokenize

Word = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A word and its position. A name is a column of a stream, or one of the caller's own names: `apart`."""

    start: int
    end: int
    word: Word
    column: Column | None = None
    apart: str | None = None


def parsed(text: str) -> Any:
    return parse(text, aggregates=True)


def entries_of(text: str, streams: Sequence[Stream], apart: Collection[str] = ()) -> list[Entry]:
    """The words of an expression. Names in `apart` (lower case) are not resolved as columns."""
    names = {entry.start: entry for entry in _names(parsed(text), streams, apart)}
    entries: list[Entry] = []
    end = 0
    for token in tokenize(text, text):
        if token.start in names:
            entries.append(names[token.start])
            end = entries[-1].end
        elif token.start >= end:
            kind = token.token_type.name
            word = (kind, token.text) if kind.endswith("STRING") else (token.text.lower(),)
            entries.append(Entry(token.start, token.end + 1, word))
    return entries


def _names(tree: Any, streams: Sequence[Stream], apart: Collection[str]) -> list[Entry]:
    found = []
    for node in tree.find_all(exp.Column):
        first, name = node.parts[0], node.parts[0].name.lower()
        if name in apart and (len(node.parts) == 1 or name == WINDOW):
            start, end = first.meta["start"], first.meta["end"] + 1
            found.append(Entry(start, end, ("apart", name), apart=name))
        elif not isinstance(node.this, exp.Star):
            start, end, reference = locate(node, streams)
            found.append(Entry(start, end, ("column", reference.column), column=reference.column))
    return found


def is_part(text: str, start: int, end: int) -> bool:
    """Whether a part of an expression is a subexpression: parentheses around it change nothing."""
    wrapped = f"{text[:start]}({text[start:end]}){text[end:]}"
    try:
        return bool(_bare(wrapped) == _bare(text))
    except sqlglot.errors.ParseError:
        return False


def _bare(text: str) -> Any:
    """The tree of an expression without its parentheses, inside a tuple node."""
    holder = exp.Tuple(expressions=[sqlglot.parse_one(text, dialect="spark")])
    while (paren := holder.find(exp.Paren)) is not None:
        paren.replace(paren.this)
    return holder


def without_parentheses(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The words without the parentheses around all of them."""
    words = [entry.word for entry in entries]
    if len(words) > 2 and words[0] == ("(",) and closing(words, 0) == len(words) - 1:
        return without_parentheses(entries[1:-1])
    return entries


def closing(words: Sequence[Word], opening: int) -> int | None:
    """Where the parenthesis at `opening` is closed."""
    depth = 0
    for i in range(opening, len(words)):
        depth += (words[i] == ("(",)) - (words[i] == (")",))
        if depth == 0:
            return i
    return None
