"""Every conjunct finds the first place that can evaluate it; what was typed reaches Spark unchanged."""

import re

import pyarrow as pa
import pytest

from watersmeet.errors import QueryError
from watersmeet.observe.explain import explain_text
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.fingerprint import query_marks
from watersmeet.plan.stages import plan_join
from watersmeet.query.expressions import Call, Column, Compare, Literal, Not, Or, to_text
from watersmeet.query.logical import Filter, KeyClass, SparkPredicate, Stream, build_query
from watersmeet.query.registered import registered
from watersmeet.query.relations import Derived
from watersmeet.runtime.inprocess import InProcessQuery

FIELDS = [
    ("id", pa.int64()),
    ("n", pa.int32()),
    ("name", pa.string()),
    ("flag", pa.bool_()),
    ("d", pa.date32()),
    ("info", pa.struct([("city", pa.string())])),
    ("xs", pa.list_(pa.int32())),
    ("end", pa.int32()),
]
STREAMS = (Stream("a", pa.schema(FIELDS)), Stream("b", pa.schema([*FIELDS, ("_D0", pa.int32())])))
NEAR = registered("Near", lambda x, y: None)
FUNCTIONS = {"near": NEAR, "levenshtein": registered("levenshtein", lambda x, y: None)}


class Analysis:
    """Stands for Spark: types by the beginning of the text, and the questions asked."""

    TYPES = (
        ("lower", pa.string()),
        ("`info`.city", pa.string()),
        ("cast(", pa.string()),
        ("length", pa.int32()),
        ("split", pa.list_(pa.string())),
        ("case", pa.bool_()),
        ("get", pa.int32()),
        ("`n` +", pa.int64()),
        ("`name` collate", pa.string()),
    )

    def __init__(self):
        self.asked = []

    def __call__(self, sql, columns):
        self.asked.append((sql, [column.name for column in columns]))
        if sql == "datediff(`a_d`, `b_d`)":
            return pa.int32()
        if "a_" in sql or sql.endswith("'"):  # over joined rows, or a filter
            return pa.bool_()
        if sql.startswith("make_interval"):
            raise QueryError("Arrow cannot carry that", error_class="UNSUPPORTED_TYPE")
        for start, type_ in self.TYPES:
            if sql.lower().startswith(start):
                return type_
        raise QueryError(f"Spark refuses '{sql}'", error_class="INVALID_EXPRESSION")


def build(*where, key="a.id = b.id", analyse=None, functions=None, streams=STREAMS, select=()):
    return build_query(
        streams,
        where=[text for text in (key, *where) if text],
        within=None,
        windows={},
        select=select,
        analyse=analyse or Analysis(),
        functions=functions,
    )


def error(*where, **arguments):
    with pytest.raises(QueryError) as caught:
        build(*where, **arguments)
    return re.sub(r" \(line 1, column \d+\)\n.*\n *\^\n?", ". ", str(caught.value)).rstrip()


def derived(query, stream):
    found = next(s for s in query.streams if s.name == stream)
    return [(d.name, d.sql) for d in found.derived]


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("lower(a.Name) = b.name", "lower(`name`)", None),
        ("lower(a.name) = lower(b.name)", "lower(`name`)", "lower(`name`)"),
        ("a.name = (b.info.city)", None, "`info`.city"),
        ("a.n + 1 = b.id", "`n` + 1", None),
        ("(a.n + a . n) = b.id", "`n` + `n`", None),
        ("CAST(a.n AS STRING) = b.name", "CAST(`n` AS STRING)", None),
        ("a.flag = CASE WHEN b.n > 1 THEN b.flag END", None, "CASE WHEN `n` > 1 THEN `flag` END"),
        ("get(a.xs, a.`end`) = b.n", "get(`xs`, `end`)", None),
        ("a.n = length(concat(b.name, ' = ', b.name))", None, "length(concat(`name`, ' = ', `name`))"),
    ],
)
def test_an_equality_of_two_streams_is_a_key_of_derived_columns(text, left, right):
    query = build(text, key=None)
    assert [sql for _, sql in derived(query, "a")] == ([left] if left else [])
    assert [sql for _, sql in derived(query, "b")] == ([right] if right else [])
    assert len(query.classes) == 1
    assert query.residuals == query.filters == query.spark_residuals == ()


def test_derived_columns_are_columns_of_their_stream_that_nobody_can_name():
    query = build("lower(a.name) = lower(b.name)")
    assert query.streams[0].derived == (Derived("_d0", "lower(`name`)"),)
    assert query.streams[1].derived == (Derived("_d1", "lower(`name`)"),)  # b has a column _D0
    assert query.streams[0].schema.field("_d0").type == pa.string()
    assert query.classes == (KeyClass(("_d0", "_d1"), pa.string()), KeyClass(("id", "id"), pa.int64()))
    assert [item.name for item in query.select] == [f"{s.name}_{c}" for s in STREAMS for c in s.schema.names]
    found = error("lower(a.name) = lower(b.name)", "b._d1 > 1")
    assert found == "[UNKNOWN_COLUMN] unknown column '_d1' in stream 'b'. did you mean '_D0'?"
    assert "unknown column '_d0' in stream 'a'" in error("lower(a.name) = lower(b.name)", select=["a._d0"])


def test_equal_texts_share_a_derived_column():
    query = build("lower(a.name) = b.name AND lower( a.name ) <> b.info.city", "lower(a.NAME) < b.name")
    assert derived(query, "a") == [("_d0", "lower(`name`)"), ("_d1", "lower( `name` )")]
    assert derived(query, "b") == [("_d1", "`info`.city")]


def test_a_second_column_of_a_class_may_be_derived():
    query = build("lower(a.name) = b.name AND a.name = b.name", key=None)
    assert query.classes == (KeyClass(("name", "name"), pa.string()),)
    assert query.filters == (Filter("a", "`name` = `_d0`"),)


def test_operands_over_one_stream_that_the_engine_cannot_hold_are_derived_whole():
    query = build("length(a.name) + a.n < b.n * 2 OR lower(b.name) < a.name")
    assert derived(query, "a") == [("_d0", "length(`name`) + `n`")]
    assert derived(query, "b") == [("_d1", "lower(`name`)")]
    assert [to_text(e) for e in query.residuals] == ["((`a`.`_d0` < (`b`.`n` * 2:int32)) OR (`b`.`_d1` < `a`.`name`))"]


def test_what_may_fail_is_not_derived_out_of_the_reach_of_its_guard():
    """Spark computes the right side of AND and OR only where the left one leaves the answer open."""
    for condition in ("a.n = 0 OR length(10 / a.n) > b.n", "NOT (a.n <> 0 AND (b.flag OR length(10 / a.n) > b.n))"):
        query = build(condition)
        assert derived(query, "a") == []
        assert len(query.spark_residuals) == 1
    query = build("length(10 / a.n) > b.n OR a.n = 0")
    assert derived(query, "a") == [("_d0", "length(10 / `n`)")]
    query = build(
        "near(a.id, b.id) OR near(length(10 / a.n), b.n)", functions=FUNCTIONS
    )  # by the engine, or not at all
    assert derived(query, "a") == [("_d0", "length(10 / `n`)")]


@pytest.mark.parametrize(
    "condition",
    [
        "a.flag = b.flag < a.flag",
        "a.flag = b.n < 3",
        "a.flag <> b.flag IN (true)",
        "a.flag = b.n BETWEEN 1 AND 2",
        "a.flag = b.n NOT BETWEEN 1 AND 2",
        "a.flag = b.name LIKE 'x%'",
        "a.n BETWEEN 1 AND b.n = a.flag",
        "a.flag OR a.flag = b.flag < a.flag",
    ],
)
def test_what_spark_groups_otherwise_is_left_to_spark(condition):
    """To Spark `f = x < y` is `(f = x) < y`, and BETWEEN, IN and LIKE test all that stands before them."""
    query = build(condition)
    assert (len(query.classes), query.residuals, query.filters) == (1, (), ())
    assert len(query.spark_residuals) == 1
    assert derived(query, "a") == derived(query, "b") == []


def test_a_filter_must_be_a_condition_to_spark():
    assert error("lower(a.name)").startswith("[TYPE_MISMATCH] 'lower(a.name)' is STRING, not a condition")
    assert error("no_such(a.name) = 1") == "[INVALID_EXPRESSION] Spark refuses 'no_such(`name`) = 1'."
    analyse = Analysis()
    build("a.info.city = 'x' AND b.name = 'y'", analyse=analyse)
    assert analyse.asked == [("`info`.city = 'x'", ["info"]), ("`name` = 'y'", ["name"])]


def test_a_selected_expression_must_be_one_to_spark():
    assert error(select=["a.n", "no_such(b.n) AS x"]) == "[INVALID_EXPRESSION] Spark refuses 'no_such(`b_n`)'."
    build(select=["make_interval(b.n) AS x"])  # nobody but the sink needs its type


def test_what_the_engine_holds_is_not_derived():
    query = build("a.n + 1 < b.n", "a.n BETWEEN b.n - 1 AND b.n + 1", "a.n - b.n = 3")
    assert derived(query, "a") == derived(query, "b") == []
    assert len(query.residuals) == 3


def test_what_only_spark_can_evaluate_is_left_for_the_results():
    analyse = Analysis()
    query = build(
        "levenshtein(a.name, b.Name) < 3 AND a.n < b.n AND concat(a.name, b.info.city) LIKE '%z'",
        select=["a.n"],
        analyse=analyse,
    )
    names = (Column("a", "name"), Column("b", "name"))
    assert query.spark_residuals == (
        SparkPredicate("levenshtein(`a_name`, `b_name`) < 3", names),
        SparkPredicate("concat(`a_name`, `b_info`.city) LIKE '%z'", (names[0], Column("b", "info"))),
    )
    assert query.residuals == (Compare("<", Column("a", "n"), Column("b", "n")),)
    assert derived(query, "a") == derived(query, "b") == []
    assert analyse.asked[0] == ("levenshtein(`a_name`, `b_name`) < 3", ["a_name", "b_name"])
    assert query.read_columns == (Column("a", "n"), *names, Column("b", "info"))


@pytest.mark.parametrize(
    "text",
    [
        "split(a.name, ',') = split(b.name, ',')",  # arrays
        "split(a.name, ',') <> split(b.name, ',')",
        "a.xs = split(b.name, ',')",
        "a.name COLLATE UTF8_LCASE = b.name",
        "make_interval(a.n) = make_interval(b.n)",
        "lower(a.name) = 'x' OR levenshtein(a.name, b.name) < 3",
        "a.n - b.n < pi()",
    ],
)
def test_a_predicate_that_is_left_to_spark_leaves_no_derived_columns(text):
    query = build(text)
    assert len(query.spark_residuals) == 1
    assert derived(query, "a") == derived(query, "b") == []


def test_an_equality_that_becomes_a_residual_keeps_what_it_uses():
    big = Stream("c", pa.schema([("id", pa.int64()), ("amount", pa.decimal128(38, 20))]))
    query = build("c.amount = a.n + 1", key="a.id = c.id", streams=(STREAMS[0], big))
    assert [to_text(e) for e in query.residuals] == ["(`c`.`amount` = `a`.`_d0`)"]
    assert derived(query, "a") == [("_d0", "`n` + 1")]


def test_a_predicate_on_the_results_connects_streams():
    assert build("levenshtein(a.name, b.name) < 3", key=None).classes == ()


LCASE = Stream(
    "c",
    pa.schema([("id", pa.int64()), ("s", pa.string(), True)]).set(
        1, pa.field("s", pa.string(), metadata={"collation": "UTF8_LCASE"})
    ),
)


@pytest.mark.parametrize("text", ["lower(c.s) = a.name", "levenshtein(c.s, a.name) < 3"])
def test_collated_strings_are_refused_between_streams(text):
    found = error(text, key="a.id = c.id", streams=(STREAMS[0], LCASE))
    assert found.startswith("[UNSUPPORTED_KEY_TYPE] column c.s has collation UTF8_LCASE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "lower(a.name) = b.n",
            "[TYPE_MISMATCH] cannot compare lower(a.name) (STRING) with b.n (INT): they have no common type. "
            "CAST one of them",
        ),
        (
            "lower(a.name) < b.n",
            "[TYPE_MISMATCH] cannot compare a: lower(`name`) (STRING) with b.n (INT). "
            "cast one of them in the DataFrame first, with withColumn",
        ),
        ("lowr(a.name) = b.name", "[INVALID_EXPRESSION] Spark refuses 'lowr(`name`)'"),
        (
            "datediff(a.d, b.d)",
            "[TYPE_MISMATCH] 'datediff(a.d, b.d)' is INT, not a condition. compare it with something",
        ),
        ("rand(a.n) < b.n", "[UNSUPPORTED_FUNCTION] non-deterministic function rand() cannot be used in a join"),
        ("max(a.n) < b.n", "[UNSUPPORTED_FUNCTION] aggregate function max() cannot be used here"),
        ("a.n < b.name", "[TYPE_MISMATCH] cannot compare a.n (INT) with b.name (STRING)"),
    ],
)
def test_mistakes_are_named_in_the_users_words(text, message):
    assert error(text).startswith(message)


def test_classes_without_a_common_type_are_named_in_the_users_words():
    found = error("lower(a.name) = b.name AND c.n = b.name", streams=(*STREAMS, Stream("c", pa.schema(FIELDS))))
    assert "_d0" not in found
    assert found.startswith("[TYPE_MISMATCH] cannot compare")


# --- registered predicates -------------------------------------------------------------------------------------------


def test_a_registered_predicate_is_a_residual():
    query = build("NEAR(a.n + 1, b.n) OR NOT near(1, b.n)", "near(a.n, a.id)", functions=FUNCTIONS)
    n, m, one = Column("a", "n"), Column("b", "n"), Literal(1, pa.int32())
    assert [to_text(e) for e in query.residuals] == [
        "(near((`a`.`n` + 1:int32), `b`.`n`) OR (NOT near(1:int32, `b`.`n`)))",
        "near(`a`.`n`, `a`.`id`)",
    ]
    assert isinstance(query.residuals[0], Or)
    assert query.residuals[0].right == Not(Call("near", (one, m), registered("near", print)))
    assert query.residuals[1] == Call("near", (n, Column("a", "id")), NEAR)
    assert query.filters == query.spark_residuals == ()


def test_it_wins_over_a_function_of_spark():
    assert build("levenshtein(a.name, b.name)", functions=FUNCTIONS).spark_residuals == ()
    assert build("levenshtein(a.name, b.name) < 3").residuals == ()


def test_its_arguments_may_be_derived_of_any_type():
    query = build("near(split(a.name, ','), lower(b.name)) AND near(a.xs, b.info)", functions=FUNCTIONS)
    assert derived(query, "a") == [("_d0", "split(`name`, ',')")]
    assert derived(query, "b") == [("_d1", "lower(`name`)")]
    assert to_text(query.residuals[0]) == "near(`a`.`_d0`, `b`.`_d1`)"


def test_a_column_or_text_of_its_name_is_no_call():
    stream = Stream("c", pa.schema([("near", pa.int64()), ("s", pa.string())]))
    query = build("c.near = a.id AND c.s = 'near(a.n, b.n)'", functions=FUNCTIONS, streams=(*STREAMS, stream))
    assert query.residuals == ()
    assert query.filters == (Filter("c", "`s` = 'near(a.n, b.n)'"),)


def test_nobody_can_evaluate_a_mix_of_both():
    found = error("near(a.n, b.n) OR concat(a.name, b.name) LIKE 'x'", functions=FUNCTIONS)
    assert found == (
        "[UNSUPPORTED_PREDICATE] cannot evaluate 'CONCAT(a.name, b.name) LIKE 'x'' between streams. only Spark can "
        "evaluate that, and only the engine can call near(): put AND between the two, or compute it inside the "
        "registered function"
    )


@pytest.mark.parametrize("name", ["", "1st", "a b", "abs", "Case", "x.y"])
def test_names_that_are_none(name):
    with pytest.raises(QueryError, match="cannot be the name of a predicate"):
        registered(name, print)


def test_a_predicate_must_be_callable():
    with pytest.raises(QueryError, match="predicate 'near' must be a function, not int"):
        registered("near", 3)


# --- what others see of it -------------------------------------------------------------------------------------------


def test_fingerprint_and_explain_name_them():
    query = build(
        "lower(a.name) = b.name AND levenshtein(a.name, b.name) < 3", "near(a.n, b.n)", functions={"near": NEAR}
    )
    plan = plan_join(query, (default_tree(query),), 8)
    marks = query_marks(query, plan)
    assert marks["derived columns"] == "a._d0: lower(`name`)"
    assert marks["schema of a"].endswith("end INT, _d0 STRING")
    assert marks["predicates on the results"] == "levenshtein(`a_name`, `b_name`) < 3"
    assert marks["residual predicates"] == "near(`a`.`n`, `b`.`n`)"
    lines = explain_text(query, plan, slots=1).splitlines()
    assert "derived   a._d0: lower(`name`)  (by Spark, at the source)" in lines
    assert "residual  levenshtein(`a_name`, `b_name`) < 3  (by Spark, on the results)" in lines
    assert "residual  near(a.n, b.n)" in lines


def test_other_queries_have_the_fingerprint_they_had():
    query = build("a.n < b.n")
    marks = query_marks(query, plan_join(query, (default_tree(query),), 8))
    assert not marks.keys() & {"derived columns", "predicates on the results"}


@pytest.mark.parametrize("text", ["lower(a.name) = b.name", "levenshtein(a.name, b.name) < 3"])
def test_without_spark_both_are_refused(text, tmp_path):
    with pytest.raises(QueryError, match="evaluated by Spark"):
        InProcessQuery(build(text, select=["a.n"]), tmp_path)
    with pytest.raises(QueryError, match="cannot evaluate"):
        build_query(STREAMS, where=["a.id = b.id", text], within=None, windows={}, select=[])
