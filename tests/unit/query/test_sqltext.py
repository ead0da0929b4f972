"""A join condition is taken apart without changing what was typed; every mistake is named."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet.errors import QueryError
from watersmeet.query.expressions import (
    Abs,
    And,
    Arithmetic,
    Column,
    Compare,
    InList,
    IsNull,
    Literal,
    Negate,
    Not,
    Or,
    columns_of,
    to_text,
)
from watersmeet.query.fragments import Fragment
from watersmeet.query.relations import Equality, Filter, Stream
from watersmeet.query.sqltext import parse_condition, split_conjuncts

FIELDS = [
    ("id", pa.int64()),
    ("n", pa.int32()),
    ("price", pa.float64()),
    ("amount", pa.decimal128(28, 2)),
    ("name", pa.string()),
    ("flag", pa.bool_()),
    ("d", pa.date32()),
    ("ts", pa.timestamp("us", "UTC")),
    ("ntz", pa.timestamp("us")),
    ("info", pa.struct([("city", pa.string())])),
    ("xs", pa.list_(pa.int32())),
    ("odd name", pa.int32()),
    ("end", pa.int32()),
]
STREAMS = (
    Stream("a", pa.schema(FIELDS)),
    Stream("b", pa.schema([*FIELDS, ("onlyB", pa.int32())])),
)


def col(text):
    return Column(*text.split(".", 1))


def filters(text):
    return [(item.stream, item.sql) for item in parse_condition(text, STREAMS).filters]


def residual(text):
    (expr,) = parse_condition(text, STREAMS).residuals
    return expr


def error(text):
    with pytest.raises(QueryError) as caught:
        parse_condition(text, STREAMS)
    return str(caught.value)


def test_conjuncts_find_their_place():
    condition = parse_condition("A.ID = b.id AND lower(a.Name) = 'oslo' AND (a.n < b.n AND b.onlyb > 1)", STREAMS)
    assert condition.equalities == (Equality(col("a.id"), col("b.id")),)
    assert condition.filters == (Filter("a", "lower(`name`) = 'oslo'"), Filter("b", "`onlyB` > 1"))
    assert condition.residuals == (Compare("<", col("a.n"), col("b.n")),)


def test_equality_within_a_stream_is_a_filter_and_an_equality():
    condition = parse_condition("a.id = a.n", STREAMS)
    assert condition.filters == (Filter("a", "`id` = `n`"),)
    assert condition.equalities == (Equality(col("a.id"), col("a.n")),)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x", ["x"]),
        ("x AND y", ["x", "y"]),
        ("x AND y OR z", ["x AND y OR z"]),
        ("(x AND (y AND z))", ["x", "y", "z"]),
        ("(x OR y) AND z", ["x OR y", "z"]),
        ("(x) AND (y)", ["x", "y"]),
        ("x BETWEEN 1 AND 2 AND y", ["x BETWEEN 1 AND 2", "y"]),
        ("CASE WHEN x AND y THEN z ELSE w END AND v", ["CASE WHEN x AND y THEN z ELSE w END", "v"]),
        ("a.end AND b.end", ["a.end", "b.end"]),
        ("f(x AND y) AND NOT z", ["f(x AND y)", "NOT z"]),
        ("x = ' AND ' AND y -- AND z", ["x = ' AND '", "y"]),
    ],
)
def test_split_on_and(text, parts):
    assert split_conjuncts(text) == parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.info.city = 'x'", ("a", "`info`.city = 'x'")),
        ("onlyB = 3", ("b", "`onlyB` = 3")),
        ("a.`odd name` + a . n > 3", ("a", "`odd name` + `n` > 3")),
        ("exists(a.xs, x -> x > a.n)", ("a", "exists(`xs`, x -> x > `n`)")),
        ("a.xs[0] = 1", ("a", "`xs`[0] = 1")),
        ("a.name LIKE ANY ('é%', 'b.name')", ("a", "`name` LIKE ANY ('é%', 'b.name')")),
        ("date_add(a.d, 1) > DATE'2024-01-01'", ("a", "date_add(`d`, 1) > DATE'2024-01-01'")),
        ("a.ts > TIMESTAMP '2024-01-01'", ("a", "`ts` > TIMESTAMP '2024-01-01'")),
        ("a.name = 'é' OR a.n = 1", ("a", "`name` = 'é' OR `n` = 1")),
        ("unix_timestamp(a.ts) > 0", ("a", "unix_timestamp(`ts`) > 0")),
        ("a.n\n  > 1", ("a", "`n`\n  > 1")),
        ("my_udf(a.name)", ("a", "my_udf(`name`)")),
    ],
)
def test_filters_keep_the_text_and_bare_the_columns(text, expected):
    assert filters(text) == [expected]


N, M = col("a.n"), col("b.n")
ONE = Literal(1, pa.int32())
HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.n <= b.n + 1", Compare("<=", N, Arithmetic("+", M, ONE))),
        ("a.n != b.n", Compare("<>", N, M)),
        ("a.n <=> b.n", Compare("<=>", N, M)),
        ("a.n IS DISTINCT FROM b.n", Not(Compare("<=>", N, M))),
        ("a.n = -b.n", Compare("=", N, Negate(M))),
        ("a.n = b.n % -1", Compare("=", N, Arithmetic("%", M, Literal(-1, pa.int32())))),
        ("abs(a.n - b.n) < 1", Compare("<", Abs(Arithmetic("-", N, M)), ONE)),
        ("a.n BETWEEN b.n AND 1", And(Compare(">=", N, M), Compare("<=", N, ONE))),
        ("a.n IN (b.n, 1)", InList(N, (M, ONE))),
        ("a.n NOT IN (b.n)", Not(InList(N, (M,)))),
        ("a.n IS NULL OR b.n IS NOT NULL", Or(IsNull(N), IsNull(M, True))),
        ("a.flag OR b.flag IS TRUE", Or(col("a.flag"), Compare("<=>", col("b.flag"), Literal(True, pa.bool_())))),
        ("NOT (a.n = b.n)", Not(Compare("=", N, M))),
        ("a.n = NULL OR b.n = 1", Or(Compare("=", N, Literal(None, pa.null())), Compare("=", M, ONE))),
    ],
)
def test_residuals(text, expected):
    assert residual(text) == expected


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("2147483648", 2147483648, pa.int64()),
        ("-2147483648", -2147483648, pa.int32()),
        ("-9223372036854775808", -(2**63), pa.int64()),
        ("2L", 2, pa.int64()),
        ("-128Y", -128, pa.int8()),
        ("3S", 3, pa.int16()),
        ("1.50", Decimal("1.50"), pa.decimal128(3, 2)),
        ("0.10", Decimal("0.10"), pa.decimal128(2, 2)),
        ("-1.5", Decimal("-1.5"), pa.decimal128(2, 1)),
        ("1e3", 1000.0, pa.float64()),
        ("1.5D", 1.5, pa.float64()),
        ("1.5BD", Decimal("1.5"), pa.decimal128(2, 1)),
        ("9223372036854775808", Decimal(2**63), pa.decimal128(19, 0)),
    ],
)
def test_number_literals_have_sparks_types(text, value, type_):
    assert residual(f"a.n = b.n OR a.n > {text}") == Or(Compare("=", N, M), Compare(">", N, Literal(value, type_)))


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("INTERVAL 1 HOUR", HOUR_US),
        ("INTERVAL '1' HOUR", HOUR_US),
        ("INTERVAL '1 hour 30 minutes'", HOUR_US * 3 // 2),
        ("INTERVAL 1 HOUR 30 MINUTES", HOUR_US * 3 // 2),
        ("-INTERVAL 1 HOUR", -HOUR_US),
        ("INTERVAL -1 HOUR", -HOUR_US),
    ],
)
def test_intervals(text, us):
    duration = Literal(us, pa.duration("us"))
    difference = Arithmetic("-", col("a.ts"), col("b.ts"))
    assert residual(f"a.ts - b.ts < {text}") == Compare("<", difference, duration)
    assert residual(f"a.ts < b.ts + {text}") == Compare("<", col("a.ts"), Arithmetic("+", col("b.ts"), duration))


def test_dates_move_by_days():
    day = Literal(24 * HOUR_US, pa.duration("us"))
    assert residual("a.d > b.d + INTERVAL 1 DAY") == Compare(">", col("a.d"), Arithmetic("+", col("b.d"), day))
    assert residual("a.d > b.d - 1") == Compare(">", col("a.d"), Arithmetic("-", col("b.d"), ONE))
    assert "a date moves by whole days" in error("a.d > b.d + INTERVAL 24 HOURS")


def test_dated_literals():
    assert columns_of(residual("a.d = b.d OR a.d = DATE '2024-01-31'")) == (col("a.d"), col("b.d"))
    instant = residual("a.ts < b.ts OR a.ts < TIMESTAMP '2024-01-31 01:00:00+01:00'").right.right
    assert instant.value == datetime.datetime(2024, 1, 31, tzinfo=datetime.UTC)
    assert residual("a.ntz < b.ntz OR a.ntz < TIMESTAMP_NTZ '2024-01-31 01:00:00'").right.right.type == pa.timestamp(
        "us"
    )


def test_integer_literals_next_to_decimals_are_short():
    product = residual("a.amount < b.amount * 2").right
    assert product == Arithmetic("*", col("b.amount"), Literal(Decimal(2), pa.decimal128(1, 0)))


def test_text_is_canonical():
    assert to_text(residual("a.n<b.n  +1")) == to_text(residual("( A.N < (b.`n` + 1) )"))
    assert to_text(residual("a.n < b.n + 1")) == "(`a`.`n` < (`b`.`n` + 1:int32))"
    assert to_text(residual("a.n - (b.n - 1) > 1")) != to_text(residual("(a.n - b.n) - 1 > 1"))
    assert to_text(residual("a.name < b.name OR a.name = '1'")) != to_text(residual("a.name < b.name OR a.name = 'x'"))


SYNTAX = "[SYNTAX_ERROR] cannot read "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.n = = b.n", "'a.n = = b.n': unexpected '=' (line 1, column 7)\n  a.n = = b.n\n        ^"),
        ("a.n = (1", "'a.n = (1': expecting ) (line 1, column 9)\n  a.n = (1\n          ^"),
        ("a.n = b.n AND", "'a.n = b.n AND': it ends too early (line 1, column 14)\n  a.n = b.n AND\n" + " " * 15 + "^"),
        (
            "a.n = 1\n AND b.n b",
            "'a.n = 1 AND b.n b': unexpected 'b' (line 2, column 10)\n   AND b.n b\n" + " " * 11 + "^",
        ),
        ("a.name = 'x", "'a.name = 'x': a quote is not closed (line 1, column 10)\n  a.name = 'x\n" + " " * 11 + "^"),
        (
            "a.n = 1; b.n = 2",
            "'a.n = 1; b.n = 2': unexpected ';' (line 1, column 8)\n  a.n = 1; b.n = 2\n" + " " * 9 + "^",
        ),
        ("SELECT 1", "'SELECT 1': unexpected 'SELECT' (line 1, column 1)\n  SELECT 1\n  ^"),
        ("", "'': it is empty (line 1, column 1)\n  \n  ^"),
    ],
)
def test_syntax_errors_point_at_the_place(text, message):
    with pytest.raises(QueryError) as caught, Fragment.of(text).drawn():
        parse_condition(text, STREAMS)
    assert str(caught.value) == SYNTAX + message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.pirce > 1", "[UNKNOWN_COLUMN] unknown column 'pirce' in stream 'a'. did you mean 'price'?"),
        ("pirce > 1", "[UNKNOWN_COLUMN] unknown column 'pirce': no stream has it. did you mean 'b.price'?"),
        ("qqqq > 1", "[UNKNOWN_COLUMN] unknown column 'qqqq': no stream has it. write it as stream.column"),
        ("c.n > 1", "[UNKNOWN_STREAM] unknown stream 'c'. there are 'a', 'b'"),
        ("n > 1", "[AMBIGUOUS_COLUMN] column 'n' is ambiguous: 'a', 'b' have it. write a.n or b.n"),
        (
            "1 = 1 AND a.n = b.n",
            "[CONSTANT_CONDITION] condition '1 = 1' refers to no stream. "
            "leave it out, or name a column as stream.column",
        ),
    ],
)
def test_names_that_lead_nowhere(text, message):
    assert error(text) == message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rand() < 0.1 AND a.n = 1", "non-deterministic function rand()"),
        ("a.name = UUID()", "non-deterministic function uuid()"),
        ("a.ts < current_timestamp()", "non-deterministic function current_timestamp()"),
        ("a.ts < current_timestamp", "non-deterministic function current_timestamp()"),
        ("a.ts < now()", "non-deterministic function now()"),
        ("a.id < unix_timestamp()", "non-deterministic function unix_timestamp()"),
        ("bool_and(a.flag)", "aggregate function bool_and()"),
        ("row_number() OVER (ORDER BY a.n) = 1", "window function row_number()"),
        ("my(a.n) OVER (ORDER BY a.n) = 1", "OVER (...)"),
        ("explode(a.xs) = 1", "generator explode()"),
    ],
)
def test_unfit_functions_are_refused_by_name(text, name):
    assert error(text).startswith(f"[UNSUPPORTED_FUNCTION] {name} cannot be used in a join. ")


def test_aggregates_are_refused_in_conditions():
    hint = "aggregates belong in the select list and in HAVING, and not inside one another"
    assert error("a.n = sum(a.n)") == f"[UNSUPPORTED_FUNCTION] aggregate function sum() cannot be used here. {hint}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a.n = 1 AND b.pirce > 1", "pirce"),
        ("a.n = 1 AND c.price > 1", "c.price"),
        ("a.n = 1 AND (b.n = 1 AND nn = 2)", "nn"),
        ("a.n = 1 AND b.n IN (SELECT 1)", "SELECT"),
        ("a.n = 1 AND b.n > rand()", "rand"),
        ("a.n = 1 AND a.name < lower(b.name)", "lower"),
        ("a.n = 1 AND a.name = b.n", "a.name"),
        ("a.n = 1 AND 'é' = 'é' AND b.n = 1", "'é'"),
    ],
)
def test_errors_know_their_place(text, place):
    with pytest.raises(QueryError) as caught:
        parse_condition(text, STREAMS)
    assert caught.value.position == text.index(place)


def test_column_named_like_a_function_is_a_column():
    stream = Stream("c", pa.schema([("current_date", pa.date32()), ("rank", pa.int32()), ("first", pa.int32())]))
    condition = parse_condition("c.current_date = c.`current_date` AND rank > (c.first)", (*STREAMS, stream))
    assert [item.sql for item in condition.filters] == ["`current_date` = `current_date`", "`rank` > (`first`)"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a.n IN (SELECT 1)", "a subquery"),
        ("EXISTS (SELECT 1) AND a.n = 1", "a subquery"),
        ("a.n = :limit", "a parameter"),
    ],
)
def test_unfit_syntax_is_refused_by_name(text, what):
    assert error(text).startswith(f"[UNSUPPORTED_SYNTAX] {what} cannot be used in a join. ")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("lower(a.name) = lower(b.name)", "LOWER(a.name)"),
        ("a.name LIKE b.name", "a.name LIKE b.name"),
        ("a.info.city = b.name", "a.info.city"),
        ("a.xs[0] = b.n", "a.xs[0]"),
        ("CAST(a.n AS STRING) = b.name", "CAST(a.n AS STRING)"),
        ("datediff(a.d, b.d) < 3", "DATEDIFF(a.d, b.d)"),
        ("my_udf(a.n, b.n)", "MY_UDF(a.n, b.n)"),
        ("a.n IN (b.n, coalesce(a.n, 1))", "COALESCE(a.n, 1)"),
        ("a.n DIV b.n = 1", "a.n DIV b.n"),
        ("a.ts - b.ts < INTERVAL '1:30' HOUR TO MINUTE", "INTERVAL '1:30' HOUR TO MINUTE"),
    ],
)
def test_what_the_engine_cannot_evaluate_is_refused_with_the_way_out(text, what):
    message = error(text)
    assert what.lower() in message.lower()
    assert message.startswith("[UNSUPPORTED_PREDICATE] cannot evaluate '")
    assert "between streams" in message
    assert message.endswith("compute anything else as a column first, with withColumn on the stream's DataFrame")


CAST = "cast one of them in the DataFrame first, with withColumn"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.name < b.n", f"cannot compare a.name (STRING) with b.n (INT). {CAST}"),
        ("a.n < b.n OR a.n = '1'", f"cannot compare a.n (INT) with '1' (STRING). {CAST}"),
        ("a.ts < b.ntz", f"cannot compare a.ts (TIMESTAMP) with b.ntz (TIMESTAMP_NTZ). {CAST}"),
        ("a.d < b.ts", f"cannot compare a.d (DATE) with b.ts (TIMESTAMP). {CAST}"),
        ("a.xs < b.xs", f"cannot compare a.xs (ARRAY) with b.xs (ARRAY). {CAST}"),
        ("a.ts - b.ts < 5", f"cannot compare a.ts - b.ts (INTERVAL DAY TO SECOND) with 5 (INT). {CAST}"),
        ("a.ts + b.ts > 5", f"cannot compute a.ts + b.ts (TIMESTAMP + TIMESTAMP). {CAST}"),
        ("a.name + b.n > 5", f"cannot compute a.name + b.n (STRING + INT). {CAST}"),
        (
            "a.amount * b.amount > 5",
            "cannot compute a.amount * b.amount (DECIMAL(28,2) * DECIMAL(28,2)). "
            "between streams a decimal result must be exact and fit 38 digits: cast to DOUBLE first",
        ),
        ("a.n + b.n", "a.n + b.n is INT, not a condition. compare it with something"),
        ("a.flag OR b.n", "b.n is INT, not a condition. compare it with something"),
        ("NOT (a.n * b.n)", "a.n * b.n is INT, not a condition. compare it with something"),
        ("abs(a.name) = b.n", f"a.name is STRING, not a number. {CAST}"),
    ],
)
def test_types_that_do_not_go_together(text, message):
    assert error(text) == f"[TYPE_MISMATCH] {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.ts - b.ts < INTERVAL 1 MONTH", "cannot use '1 MONTH' as a duration: a month has no fixed length, use days"),
        ("a.d = b.d OR a.d = DATE '2024-13-01'", "cannot read '2024-13-01' as a literal of type DATE"),
        ("a.n = b.n OR a.n = 300Y", "cannot read '300' as a literal of type TINYINT"),
        ("a.ts < b.ts OR a.ts < TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 00:00:00' has no time zone"),
    ],
)
def test_bad_literals(text, message):
    assert message in error(text)
