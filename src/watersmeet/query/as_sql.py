"""An expression as SQL, the way a person would write it: for explain and for messages.

Parentheses only where they change the meaning, names quoted only where they must be. What it says is read back as the
same expression, but for the exact type of a number. `expressions.to_text` is the canonical text, for fingerprints.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.query.expressions import (
    Abs,
    And,
    Arithmetic,
    Call,
    Column,
    Compare,
    Expression,
    InList,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
    quote,
)
from watersmeet.units import format_duration

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CANONICAL = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<name>`(?:[^`]|``)*`)|(?P<end>;\ )|(?P<bool>True|False)"""
    r"""|(?P<duration>-?\d+):duration\[us\]|Decimal\('(?P<decimal>[^']*)'\)"""
    r"""|datetime\.(?P<kind>datetime|date)\((?P<moment>[^()]*)\)"""
    r"""|(?P<type>:[a-z]\w*(?:\[[^\]]*\])?(?:\(\d+(?:,\ -?\d+)?\))?)|.""",
    re.DOTALL,
)
# How tightly operators bind, loosest first.
_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _NEGATE, _WHOLE = range(8)


def to_sql(expr: Expression) -> str:
    return _rendered(expr)[0]


def canonical_as_sql(text: str) -> str:
    """Predicates in canonical text (`expressions.to_text`), joined with `; `, in nearly the words of `to_sql`: for
    messages about a query of which only that text is known."""
    shown = [""]
    for piece in _CANONICAL.finditer(text):
        if piece["end"]:
            shown.append("")
        elif not piece["type"]:
            shown[-1] += _piece(piece)
    return "; ".join(each[1:-1] if each.startswith("(") else each for each in shown)


def _piece(piece: re.Match[str]) -> str:
    if piece["name"]:
        return _name(piece["name"][1:-1].replace("``", "`"))
    if piece["duration"]:
        return _literal(int(piece["duration"]), pa.duration("us"))
    if piece["kind"]:
        kind: Any = datetime.date if piece["kind"] == "date" else datetime.datetime
        moment = kind(*map(int, re.findall(r"\b\d+\b", piece["moment"])))
        if "tzinfo" in piece["moment"]:
            moment = moment.replace(tzinfo=datetime.UTC)
        return _literal(moment, pa.null())
    return piece["decimal"] or (piece[0].lower() if piece["bool"] else piece[0])


def _rendered(expr: Expression) -> tuple[str, int]:
    """The text, and how tightly its outermost operator binds."""
    match expr:
        case Column(stream, name):
            return f"{_name(stream)}.{_name(name)}", _WHOLE
        case Literal(value, type_):
            return _literal(value, type_), _WHOLE
        case Or(left, right):
            return f"{_inside(left, _OR)} OR {_inside(right, _AND)}", _OR
        case And(left, right):
            return f"{_inside(left, _AND)} AND {_inside(right, _NOT)}", _AND
        case Not(operand):
            return f"NOT {_inside(operand, _NOT)}", _NOT
        case Compare(op, left, right):
            return f"{_inside(left, _ADD)} {op} {_inside(right, _ADD)}", _COMPARE
        case IsNull(operand, negated):
            return f"{_inside(operand, _ADD)} IS {'NOT ' if negated else ''}NULL", _COMPARE
        case InList(operand, options):
            return f"{_inside(operand, _ADD)} IN ({', '.join(map(to_sql, options))})", _COMPARE
        case Arithmetic(op, left, right):
            level = _ADD if op in "+-" else _MULTIPLY
            return f"{_inside(left, level)} {op} {_inside(right, level + 1)}", level
        case Negate(operand):
            return f"- {_inside(operand, _NEGATE)}", _NEGATE
        case Abs(operand):
            return f"abs({to_sql(operand)})", _WHOLE
        case Call(name, operands):
            return f"{name}({', '.join(map(to_sql, operands))})", _WHOLE


def _inside(expr: Expression, level: int) -> str:
    """As an operand of something that binds as tightly as `level`."""
    text, own = _rendered(expr)
    return text if own >= level else f"({text})"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def _literal(value: Any, type_: pa.DataType) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() if pa.types.is_duration(type_):
            return f"INTERVAL {format_duration(value).upper()}"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return f"{kind} '{value.isoformat(' ')}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)
