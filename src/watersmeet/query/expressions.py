"""Residual predicates: the part of a join condition that the engine itself evaluates on joined rows.

A predicate over one stream is left to Spark, and equalities become keys. All others (`a.price < b.price * 2`,
`a.ts - b.ts < INTERVAL 5 SECONDS`, calls of registered predicates) are these frozen trees.
`watersmeet.query.residual` makes them, `watersmeet.query.coercion` checks them, `watersmeet.engine.expressions`
evaluates them. `watersmeet.query.placing` decides which predicates are residual.

`to_text` is canonical: equal trees have equal texts and different trees different ones. Fingerprints hash it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from typing import Literal as OneOf

import pyarrow as pa

from watersmeet.query.registered import RegisteredFunction

CompareOp: TypeAlias = OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]
ArithmeticOp: TypeAlias = OneOf["+", "-", "*", "/", "%"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream, both spelled as declared. Also known as `ColumnRef`."""

    stream: str
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: a Python value that `pyarrow.scalar(value, type)` takes. NULL is `Literal(None, pa.null())`."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Compare:
    op: CompareOp
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    op: ArithmeticOp
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Expression


@dataclass(frozen=True, slots=True)
class Abs:
    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Or:
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class InList:
    operand: Expression
    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A registered predicate. Calls of one name with equal operands are equal, whatever the function does."""

    name: str
    operands: tuple[Expression, ...]
    function: RegisteredFunction = field(compare=False, repr=False)


Expression: TypeAlias = Column | Literal | Compare | Arithmetic | Negate | Abs | And | Or | Not | IsNull | InList | Call


def between(operand: Expression, low: Expression, high: Expression) -> Expression:
    return And(Compare(">=", operand, low), Compare("<=", operand, high))


def children(expr: Expression) -> tuple[Expression, ...]:
    match expr:
        case Column() | Literal():
            return ()
        case Compare(_, left, right) | Arithmetic(_, left, right) | And(left, right) | Or(left, right):
            return (left, right)
        case Negate(operand) | Abs(operand) | Not(operand) | IsNull(operand, _):
            return (operand,)
        case InList(operand, options):
            return (operand, *options)
        case Call(_, operands):
            return operands


def walk(expr: Expression) -> Iterator[Expression]:
    yield expr
    for child in children(expr):
        yield from walk(child)


def columns_of(expr: Expression) -> tuple[Column, ...]:
    """The distinct columns an expression reads, in order of first use."""
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, Column)))


def to_text(expr: Expression) -> str:
    """The canonical text of an expression, fully parenthesised."""
    match expr:
        case Column(stream, name):
            return f"{quote(stream)}.{quote(name)}"
        case Literal(None, _):
            return "NULL"
        case Literal(value, type_):
            return f"{value!r}:{type_}"
        case Compare(op, left, right) | Arithmetic(op, left, right):
            return f"({to_text(left)} {op} {to_text(right)})"
        case Negate(operand):
            return f"(- {to_text(operand)})"
        case Abs(operand):
            return f"abs({to_text(operand)})"
        case And(left, right):
            return f"({to_text(left)} AND {to_text(right)})"
        case Or(left, right):
            return f"({to_text(left)} OR {to_text(right)})"
        case Not(operand):
            return f"(NOT {to_text(operand)})"
        case IsNull(operand, negated):
            return f"({to_text(operand)} IS {'NOT ' if negated else ''}NULL)"
        case InList(operand, options):
            return f"({to_text(operand)} IN ({', '.join(to_text(option) for option in options)}))"
        case Call(name, operands):
            return f"{name}({', '.join(to_text(operand) for operand in operands)})"


def quote(name: str) -> str:
    """A name as Spark SQL reads it back whatever it contains."""
    return "`" + name.replace("`", "``") + "`"
