"""The windows in a query text, found among its tokens: `s [RANGE 10 MINUTES]`, `s [UNBOUNDED]`, `WITHIN 10 MINUTES`.

A bracket after a stream in the FROM clause is a window. In a condition it is a subscript. The other windows of CQL are
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokens import TokenType

from watersmeet.errors import OptionError, QueryError
from watersmeet.units import parse_duration_us

UNBOUNDED = None
_HINT = "write [RANGE 10 MINUTES] or [UNBOUNDED]"
_STREAM_EXPECTED = (TokenType.FROM, TokenType.COMMA, TokenType.JOIN)
_AFTER_FROM = (TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows by the position of the stream's name, the window for all streams, and the spans of text that hold
    them."""

    by_stream: dict[int, str | None]
    within: str | None
    spans: tuple[tuple[int, int], ...]

    def covers(self, token: Any) -> bool:
        return any(start <= token.start < end for start, end in self.spans)

    def blanked(self, text: str) -> str:
        """The text with spaces in place of the windows."""
        for start, end in self.spans:
            blank = "".join(char if char == "\n" else " " for char in text[start:end])
            text = text[:start] + blank + text[end:]
        return text


def find_windows(text: str, tokens: Sequence[Any]) -> Windows:
    """All windows of a query; QueryError, with its position, for one that is not supported."""
    by_stream: dict[int, str | None] = {}
    withins: list[tuple[int, str]] = []
    spans: list[tuple[int, int]] = []
    for index, stream in _after_from(tokens):
        token = tokens[index]
        if stream is not None and token.token_type == TokenType.L_BRACKET:
            if stream in by_stream:
                raise _refused("the stream has two windows", "leave one out", token.start, "CONFLICTING_WINDOWS")
            last = _closing(tokens, index)
            by_stream[stream] = _window(text, tokens[index : last + 1])
            spans.append((token.start, tokens[last].end + 1))
        elif _is_within(tokens, index):
            length = _duration_tokens(tokens, index + 1)
            withins.append((token.start, _duration(text, length, token)))
            spans.append((token.start, length[-1].end + 1))
    if withins and by_stream:
        hint = "WITHIN gives every stream the same window: use one or the other"
        message = "WITHIN and windows per stream exclude each other"
        raise _refused(message, hint, withins[0][0], "CONFLICTING_WINDOWS")
    return Windows(by_stream, _one_within(withins), tuple(spans))


def _after_from(tokens: Sequence[Any]) -> Iterator[tuple[int, int | None]]:
    """The tokens after FROM outside of parentheses, each with the position of the stream that it belongs to."""
    stream: int | None = None
    depth, seen_from, in_from = 0, False, False
    for index, token in enumerate(tokens):
        kind = token.token_type
        depth -= kind in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if depth == 0:
            if starts_clause(tokens, index):
                seen_from = seen_from or kind == TokenType.FROM
                in_from = (in_from or kind == TokenType.FROM) and kind not in _AFTER_FROM
                if not in_from or kind in (TokenType.ON, TokenType.USING):
                    stream = None
                elif kind in _STREAM_EXPECTED and index + 1 < len(tokens):
                    stream = tokens[index + 1].start
            if seen_from:
                yield index, stream
        depth += kind in (TokenType.L_PAREN, TokenType.L_BRACKET)


def starts_clause(tokens: Sequence[Any], index: int) -> bool:
    """Whether a word like FROM starts a clause. It can also name a field, or end IS [NOT] DISTINCT FROM."""
    before = [token.token_type for token in tokens[max(index - 2, 0) : index]]
    if before[-1:] == [TokenType.DOT]:
        return False
    return not (before[1:] == [TokenType.DISTINCT] and before[0] in (TokenType.IS, TokenType.NOT))


def _closing(tokens: Sequence[Any], opening: int) -> int:
    for index in range(opening + 1, len(tokens)):
        if tokens[index].token_type == TokenType.R_BRACKET:
            return index
    raise _refused("the window is not closed", _HINT, tokens[opening].start, "INVALID_WINDOW")


def _window(text: str, tokens: Sequence[Any]) -> str | None:
    """The duration between brackets; None is unbounded."""
    inner = tokens[1:-1]
    words = [token.text.upper() for token in inner]
    match words:
        case ["UNBOUNDED"] | ["RANGE", "UNBOUNDED"]:
            return UNBOUNDED
        case ["RANGE", *rest] if "SLIDE" in rest:
            place = inner[words.index("SLIDE")].start
            raise _refused("a window with SLIDE is not supported", "leave SLIDE out: results come at once", place)
        case ["RANGE", *_]:
            return _duration(text, inner[1:], inner[0])
        case ["ROWS", *_]:
            raise _refused("a window of ROWS is not supported", f"windows are of time: {_HINT}", inner[0].start)
        case ["NOW"]:
            raise _refused("the window NOW is not supported", "write [RANGE 1 MICROSECOND]", inner[0].start)
        case ["PARTITION" | "PARTITION BY", *_]:
            raise _refused("a window with PARTITION BY is not supported", _HINT, inner[0].start)
    raise _refused("this is no window", _HINT, tokens[0].start, "INVALID_WINDOW")


def _is_within(tokens: Sequence[Any], index: int) -> bool:
    """Whether the word WITHIN starts a clause: it can also be a name, or belong to an aggregate."""
    if tokens[index].text.upper() != "WITHIN" or tokens[index].token_type == TokenType.IDENTIFIER:
        return False
    if tokens[index - 1].token_type in (TokenType.DOT, TokenType.ALIAS, *_STREAM_EXPECTED):
        return False
    if index + 1 == len(tokens):
        return True
    following = tokens[index + 1]
    starts = (TokenType.NUMBER, TokenType.STRING, TokenType.INTERVAL, TokenType.VAR, TokenType.DASH, TokenType.WHERE)
    return following.token_type in starts


def _duration_tokens(tokens: Sequence[Any], first: int) -> Sequence[Any]:
    """The tokens of a duration: numbers with units, or a string and perhaps its unit."""
    parts = (TokenType.NUMBER, TokenType.STRING, TokenType.INTERVAL, TokenType.DASH, TokenType.VAR)
    end = first
    while end < len(tokens) and tokens[end].text.upper() != "WITHIN":
        # 30s is three tokens in one place
        if tokens[end].token_type not in parts and tokens[end].start != tokens[end - 1].start:
            break
        end += 1
    if end == first:
        hint = "write it like WITHIN 10 MINUTES"
        raise _refused("WITHIN has no length", hint, tokens[first - 1].start, "INVALID_WINDOW")
    return tokens[first:end]


def _duration(text: str, tokens: Sequence[Any], before: Any) -> str:
    """The duration as `units` reads it, checked."""
    if not tokens:
        raise _refused("the window has no length", "write it like RANGE 10 MINUTES", before.start, "INVALID_WINDOW")
    if tokens[0].token_type == TokenType.INTERVAL:
        tokens = tokens[1:]
    if tokens and tokens[0].token_type == TokenType.STRING:
        duration = " ".join(token.text for token in tokens)
    else:
        duration = text[tokens[0].start : tokens[-1].end + 1] if tokens else ""
    try:
        parse_duration_us(duration)
    except OptionError as error:
        place = tokens[0].start if tokens else before.start
        raise QueryError(
            error.message, hint="write it like 10 MINUTES", error_class=error.error_class, position=place
        ) from None
    return duration


def _one_within(withins: Sequence[tuple[int, str]]) -> str | None:
    if not withins:
        return None
    _, duration = withins[0]
    for other_start, other in withins[1:]:
        if parse_duration_us(other) != parse_duration_us(duration):
            raise _refused(
                f"WITHIN {' '.join(other.split())} differs from WITHIN {' '.join(duration.split())} before it",
                "one WITHIN holds for the whole query: give streams their own windows with [RANGE ...]",
                other_start,
                "CONFLICTING_WINDOWS",
            )
    return duration


def _refused(message: str, hint: str, position: int, error_class: str = "UNSUPPORTED_WINDOW") -> QueryError:
    return QueryError(message, hint=hint, error_class=error_class, position=position)
