"""From parsed SQL to the residual tree: the fixed set of operations the engine evaluates between streams.

Everything else is refused by name, unless `derive` gives a derived column for it: a value of one stream that Spark
computes at the source. A predicate that is refused here may still get another place (`query/placing.py`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import OptionError, QueryError
from watersmeet.query.coercion import ColumnType, type_of
from watersmeet.query.expressions import (
    Abs,
    And,
    Arithmetic,
    ArithmeticOp,
    Call,
    Column,
    Compare,
    CompareOp,
    Expression,
    InList,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
    between,
)
from watersmeet.query.fragments import start_of
from watersmeet.query.names import Reference
from watersmeet.query.registered import OWN, RegisteredFunction, own_call, require_arity
from watersmeet.query.types import is_decimal, is_duration, is_integer
from watersmeet.units import parse_duration_us

References = Callable[[Any], Reference]
Derive = Callable[[Any], Column | None]
"""Gives the derived column of a node, or None if the engine is to evaluate the node."""

SUPPORTED = (
    "between streams these are supported: columns, literals, = <> < <= > >= <=>, + - * / %, abs, AND, OR, NOT, IN, "
    "BETWEEN, IS NULL, intervals; compute anything else as a column first, with withColumn on the stream's DataFrame"
)

_COMPARISONS: dict[Any, CompareOp] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: dict[Any, ArithmeticOp] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
# A literal with a suffix (2L) or a prefix (DATE '...') is parsed as a cast of a plain literal.
_INTEGER_SUFFIXES = {"TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64()}


def to_expression(
    tree: Any,
    reference: References,
    column_type: ColumnType,
    *,
    functions: Mapping[str, RegisteredFunction] | None = None,
    derive: Derive = lambda node: None,
) -> Expression:
    """The residual tree of a parsed predicate; QueryError for what the engine cannot evaluate."""

    def convert(node: Any) -> Expression:
        if (column := derive(node)) is not None:
            return column
        if functions and (name := own_call(node)) is not None:
            require_arity(functions[name], len(node.expressions))
            return Call(name, tuple(convert(argument) for argument in node.expressions), functions[name])
        match node:
            case exp.Paren():
                return convert(node.this)
            case exp.Column():
                found = reference(node)
                if found.fields:
                    raise refused(node)
                return found.column
            case exp.Is():
                return _is(convert(node.this), node)
            case exp.Between() if not node.args.get("symmetric"):
                return between(convert(node.this), convert(node.args["low"]), convert(node.args["high"]))
            case exp.In() if node.expressions and not node.args.get("query"):
                return InList(convert(node.this), tuple(convert(option) for option in node.expressions))
            case exp.NullSafeNEQ():
                return Not(Compare("<=>", convert(node.left), convert(node.right)))
            case exp.Not():
                inner = convert(node.this)
                return IsNull(inner.operand, True) if isinstance(inner, IsNull) and not inner.negated else Not(inner)
            case exp.And():
                return And(convert(node.left), convert(node.right))
            case exp.Or():
                return Or(convert(node.left), convert(node.right))
            case exp.Abs():
                return Abs(convert(node.this))
            case exp.Neg():
                literal = to_literal(node.this, negative=True)
                return Negate(convert(node.this)) if literal is None else literal
        if groups_otherwise(node):
            raise refused(node)
        if type(node) in _COMPARISONS:
            return Compare(_COMPARISONS[type(node)], convert(node.left), convert(node.right))
        if type(node) in _ARITHMETIC:
            return _arithmetic(node, convert(node.left), convert(node.right), column_type)
        literal = to_literal(node)
        if literal is None:
            raise refused(node)
        return literal

    return convert(tree)


def groups_otherwise(node: Any) -> bool:
    """Whether Spark groups a comparison in another way than the parser. To Spark, `f = x < y` is `(f = x) < y`;
    BETWEEN, IN and LIKE apply to everything before them; and `x BETWEEN y AND z = f` ends in `z = f`."""
    if type(node) not in _COMPARISONS:
        return False
    tests = (exp.Predicate, exp.Not, exp.RegexpLike, exp.Escape)
    reads_left = (*_COMPARISONS, exp.NullSafeNEQ, exp.Is)
    return isinstance(node.right, tests) or (isinstance(node.left, tests) and not isinstance(node.left, reads_left))


def refused(node: Any) -> QueryError:
    return QueryError(
        f"cannot evaluate '{node.sql(dialect='spark').replace(OWN.upper(), '')}' between streams",
        hint=SUPPORTED,
        error_class="UNSUPPORTED_PREDICATE",
        position=start_of(node),
    )


def _is(operand: Expression, node: Any) -> Expression:
    match node.expression:
        case exp.Null():
            return IsNull(operand)
        case exp.Boolean():
            return Compare("<=>", operand, Literal(bool(node.expression.this), pa.bool_()))
    raise refused(node)


def _arithmetic(node: Any, left: Expression, right: Expression, column_type: ColumnType) -> Expression:
    op = _ARITHMETIC[type(node)]
    types = type_of(left, column_type), type_of(right, column_type)
    if isinstance(left, Literal) and isinstance(right, Literal) and all(is_duration(type_) for type_ in types):
        # INTERVAL 1 HOUR 30 MINUTES is parsed as a sum
        return Literal(left.value + right.value if op == "+" else left.value - right.value, pa.duration("us"))
    if pa.date32() in types and any(is_duration(type_) for type_ in types) and not _in_days(node):
        raise QueryError(
            f"cannot compute '{node.sql(dialect='spark')}': a date moves by whole days",
            hint="write the interval in days, or cast the date to TIMESTAMP in the DataFrame first",
            error_class="TYPE_MISMATCH",
        )
    if is_decimal(types[0]) or is_decimal(types[1]):
        left, right = _shortest_decimal(left), _shortest_decimal(right)
    return Arithmetic(op, left, right)


def _in_days(node: Any) -> bool:
    """Whether every interval in it is written in days or weeks: Spark makes a timestamp of the others."""
    spellings = " ".join(
        f"{interval.this.name} {interval.args.get('unit') or ''}" for interval in node.find_all(exp.Interval)
    )
    return all(word.lower().rstrip("s") in ("day", "week") for word in re.findall("[A-Za-z]+", spellings))


def _shortest_decimal(expr: Expression) -> Expression:
    """As Spark: an integer literal next to a decimal has as many digits as it shows, not those of its type."""
    if isinstance(expr, Literal) and is_integer(expr.type):
        return Literal(Decimal(expr.value), pa.decimal128(len(str(abs(expr.value))), 0))
    return expr


def to_literal(node: Any, *, negative: bool = False) -> Literal | None:
    """The constant of a literal node; None for other nodes."""
    sign = -1 if negative else 1
    match node:
        case exp.Paren():
            return to_literal(node.this, negative=negative)
        case exp.Null() if not negative:
            return Literal(None, pa.null())
        case exp.Boolean() if not negative:
            return Literal(bool(node.this), pa.bool_())
        case exp.Literal() if not node.is_string:
            return _number(("-" if negative else "") + node.this)
        case exp.Literal() if not negative:
            return Literal(str(node.this), pa.string())
        case exp.Interval():
            return Literal(sign * _interval_us(node), pa.duration("us"))
        case exp.Cast() if isinstance(node.this, exp.Literal):
            return _typed_literal(node, "-" if negative else "")
    return None


def _number(text: str) -> Literal:
    if "e" in text.lower():
        return Literal(float(text), pa.float64())
    if "." in text:
        return _decimal(text)
    value = int(text)
    for bits, type_ in ((31, pa.int32()), (63, pa.int64())):
        if -(2**bits) <= value < 2**bits:
            return Literal(value, type_)
    return _decimal(text)


def _decimal(text: str) -> Literal:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits), scale, 1)
    if precision > 38:
        raise QueryError(f"number {text} has more than 38 digits", hint="write it as a double, like 1e40")
    return Literal(value, pa.decimal128(precision, scale))


def _typed_literal(node: Any, sign: str) -> Literal | None:
    text, kind = str(node.this.this), node.to.this.name
    try:
        match kind:
            case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
                type_ = _INTEGER_SUFFIXES[kind]
                return Literal(pa.scalar(int(sign + text), type_).as_py(), type_)
            case "FLOAT" | "DOUBLE":
                type_ = pa.float32() if kind == "FLOAT" else pa.float64()
                return Literal(pa.scalar(float(sign + text), type_).as_py(), type_)
            case "DECIMAL":
                number = _decimal(sign + text)
                declared = tuple(int(size.this.name) for size in node.to.expressions)
                return number if declared == (number.type.precision, number.type.scale) else None
            case "DATE" if not sign:
                return Literal(datetime.date.fromisoformat(text), pa.date32())
            case "TIMESTAMPNTZ" if not sign:
                return Literal(_wall_clock(text), pa.timestamp("us"))
            case "TIMESTAMPTZ" if not sign:
                return Literal(_instant(text), pa.timestamp("us", "UTC"))
    except (ValueError, OverflowError, pa.ArrowInvalid):
        raise QueryError(
            f"cannot read '{text}' as a literal of type {kind}",
            hint="write dates like DATE '2024-01-31' and timestamps like TIMESTAMP '2024-01-31 12:00:00Z'",
            error_class="INVALID_LITERAL",
        ) from None
    return None


def _wall_clock(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError("a wall clock has no zone")
    return moment


def _instant(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise QueryError(
            f"TIMESTAMP '{text}' has no time zone",
            hint=f"between streams a timestamp must not depend on the session: write TIMESTAMP '{text}Z', or an offset",
            error_class="INVALID_LITERAL",
        )
    return moment.astimezone(datetime.UTC)


def _interval_us(node: Any) -> int:
    unit = node.args.get("unit")
    try:
        if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
            raise refused(node)
        return parse_duration_us(f"{node.this.this} {unit.name if unit else ''}", allow_negative=True, allow_zero=True)
    except OptionError as error:
        raise QueryError(error.message, hint=error.hint, error_class=error.error_class) from None
