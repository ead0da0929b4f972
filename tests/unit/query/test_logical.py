"""A query is checked as a whole before anything runs; what comes out needs no further checking."""

import pyarrow as pa
import pytest

from watersmeet.errors import OptionError, QueryError
from watersmeet.query.cql import read_sql
from watersmeet.query.expressions import Call, Column, Compare
from watersmeet.query.from_sql import build_sql_query
from watersmeet.query.logical import Filter, KeyClass, SelectItem, Stream, build_query, internal_name
from watersmeet.query.registered import registered

UTC = pa.timestamp("us", "UTC")
INFO = pa.struct([("city", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))])
BANK = pa.schema([("currency", pa.string()), ("price", pa.float64()), ("ts", UTC), ("info", INFO)])
KEY = "bank1.currency = bank2.currency"
MINUTE = 60_000_000


def bank(name, event_time="ts", schema=BANK, delay_us=0):
    return Stream(name, schema, event_time, delay_us)


def build(streams=None, where=(KEY,), within=None, windows=None, select=()):
    streams = [bank("bank2"), bank("bank1")] if streams is None else streams
    return build_query(streams, where=where, within=within, windows=windows or {}, select=select)


def error(kind=QueryError, **arguments):
    with pytest.raises(kind) as caught:
        build(**arguments)
    return str(caught.value)


def plain(stream, name, alias=None):
    column = Column(stream, name)
    return SelectItem(alias or internal_name(column), column, None, (column,))


def test_whole_query():
    query = build(
        where=[KEY + " AND bank1.price < bank2.price", "bank2.price > 0"],
        within="10 minutes",
        select=["bank1.price", "BANK2.Price AS ask", "bank2.price - bank1.price AS `a gain`"],
    )
    one, two = Column("bank1", "price"), Column("bank2", "price")
    assert [stream.name for stream in query.streams] == ["bank1", "bank2"]
    assert query.classes == (KeyClass(("currency", "currency"), pa.string()),)
    assert query.filters == (Filter("bank2", "`price` > 0"),)
    assert query.residuals == (Compare("<", one, two),)
    assert query.windows_us == (10 * MINUTE, 10 * MINUTE)
    assert query.windowed
    assert query.select == (
        plain("bank1", "price"),
        plain("bank2", "price", "ask"),
        SelectItem("a gain", None, "`bank2_price` - `bank1_price`", (two, one)),
    )
    assert hash(query) == hash(query)


def test_windows_per_stream():
    query = build(windows={"BANK2": "1 minute"})
    assert query.windows_us == (None, MINUTE)
    assert query.windowed
    assert not build().windowed


def test_event_time_takes_the_declared_spelling():
    assert build(streams=[bank("bank1", "TS"), bank("bank2")]).streams[0].event_time == "ts"


def test_no_window_needs_no_event_time():
    assert build(streams=[bank("bank1", None), bank("bank2", None)]).windows_us == (None, None)


def test_nothing_selected_is_everything_in_the_order_given():
    names = [item.name for item in build().select]
    assert names == [f"{s}_{c}" for s in ("bank2", "bank1") for c in ("currency", "price", "ts", "info")]
    assert build(select=["*"]).select == build().select


def test_star_of_a_stream():
    query = build(select=["bank1.*", "bank2.price as p"])
    assert [item.name for item in query.select] == [
        *("bank1_currency", "bank1_price", "bank1_ts", "bank1_info"),
        "p",
    ]


def test_fields_are_expressions():
    info = Column("bank1", "info")
    query = build(
        select=["bank1.info.city", "bank1.info.geo.lat", "bank1.info.city AS town", " upper(bank1.info.city) u "]
    )
    assert query.select == (
        SelectItem("bank1_info_city", None, "`bank1_info`.city", (info,)),
        SelectItem("bank1_info_geo_lat", None, "`bank1_info`.geo.lat", (info,)),
        SelectItem("town", None, "`bank1_info`.city", (info,)),
        SelectItem("u", None, "upper(`bank1_info`.city)", (info,)),
    )


def test_deep_fields_get_all_their_names():
    deep = pa.struct([("p", pa.struct([("q", pa.struct([("r", pa.struct([("s", pa.int32())]))]))]))])
    streams = [bank("bank1", schema=BANK.append(pa.field("deep", deep))), bank("bank2")]
    (item,) = build(streams=streams, select=["bank1.deep.p.q.r.s"]).select
    assert (item.name, item.sql) == ("bank1_deep_p_q_r_s", "`bank1_deep`.p.q.r.s")


def test_unqualified_column_is_named_with_its_stream():
    streams = [bank("bank1", schema=BANK.append(pa.field("id", pa.int32()))), bank("bank2")]
    assert build(streams=streams, select=["ID"]).select == (plain("bank1", "id"),)


def test_duplicate_filters_are_kept_once():
    assert build(where=[KEY, "bank1.price > 1", "bank1.price > 1"]).filters == (Filter("bank1", "`price` > 1"),)


NTZ = BANK.set(2, pa.field("ts", pa.timestamp("us")))
LCASE = BANK.append(pa.field("c", pa.string(), metadata={"collation": "UTF8_LCASE"}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"streams": [bank("a")]},
            "[WRONG_STREAM_COUNT] a join takes 2 to 8 streams, not 1. add streams with stream(name, df)",
        ),
        (
            {"streams": [bank(f"s{i}") for i in range(9)]},
            "[WRONG_STREAM_COUNT] a join takes 2 to 8 streams, not 9. join some of them first",
        ),
        (
            {"streams": [bank("bank-1"), bank("bank2")]},
            "[INVALID_STREAM_NAME] 'bank-1' cannot be the name of a stream. "
            "use letters, digits and underscores, and start with no digit",
        ),
        (
            {"streams": [bank("bank"), bank("Bank")]},
            "[DUPLICATE_STREAM] two streams are named 'Bank'. names are compared without case, as in Spark: rename one",
        ),
        (
            {"streams": [bank("bank1", delay_us=-1), bank("bank2")]},
            "[INVALID_DELAY] stream 'bank1' has a negative delay. "
            "the delay says how late its rows may be: '0 seconds' or more",
        ),
        (
            {"streams": [bank("bank1", None, pa.schema([])), bank("bank2")]},
            "[EMPTY_SCHEMA] stream 'bank1' has no columns",
        ),
        (
            {"streams": [bank("bank1", schema=BANK.append(pa.field("PRICE", UTC))), bank("bank2")]},
            "[DUPLICATE_COLUMN] stream 'bank1' has two columns named 'price'. "
            "names are compared without case, as in Spark: rename one with withColumnRenamed",
        ),
        (
            {"within": "1 minute", "windows": {"bank1": "1 minute"}},
            "[CONFLICTING_WINDOWS] within and windows per stream exclude each other. "
            "within gives every stream the same window: use one or the other",
        ),
        (
            {"windows": {"bank1": "1 minute", "BANK1": "2 minutes"}},
            "[CONFLICTING_WINDOWS] stream 'bank1' has two windows",
        ),
        ({"windows": {"bnak1": "1 minute"}}, "[UNKNOWN_STREAM] unknown stream 'bnak1'. did you mean 'bank1'?"),
        (
            {"within": "1 minute", "streams": [bank("bank1"), bank("bank2", None)]},
            "[MISSING_EVENT_TIME] stream 'bank2' has no event time, which a window needs. "
            "name its timestamp column: stream('bank2', df, eventTime='...')",
        ),
        (
            {"streams": [bank("bank1", "tss"), bank("bank2")]},
            "[UNKNOWN_COLUMN] unknown column 'tss' in stream 'bank1'. did you mean 'ts'?",
        ),
        (
            {"streams": [bank("bank1", "price"), bank("bank2")]},
            "[INVALID_EVENT_TIME] event time bank1.price is DOUBLE, not a timestamp. "
            "cast it in the DataFrame with to_timestamp, or name another column",
        ),
        (
            {"within": "1 minute", "streams": [bank("bank1"), bank("bank2", schema=NTZ)]},
            "[INVALID_EVENT_TIME] event times cannot be compared: 'bank1' has TIMESTAMP, 'bank2' has TIMESTAMP_NTZ. "
            "cast one of them in the DataFrame, so that all are TIMESTAMP or all TIMESTAMP_NTZ",
        ),
        (
            {"where": []},
            "[NO_EQUALITY] the join has no predicate between streams. add one with where, like 'bank1.id = bank2.id'",
        ),
        (
            {"streams": [bank("bank1", schema=LCASE), bank("bank2")], "where": [KEY, "bank1.c < bank2.currency"]},
            "[UNSUPPORTED_KEY_TYPE] column bank1.c has collation UTF8_LCASE (line 1, column 1)\n"
            "  bank1.c < bank2.currency\n  ^\n"
            "between streams only strings with COLLATE UTF8_BINARY are compared",
        ),
        (
            {"select": ["bank1.price", "bank2.ts AS bank1_PRICE"]},
            "[DUPLICATE_COLUMN] two result columns are named 'bank1_price' (line 1, column 1)\n"
            "  bank2.ts AS bank1_PRICE\n  ^\n"
            "give one of them another name, like 'bank1.price AS other'",
        ),
        (
            {"select": ["bank1.price + 1"]},
            "[MISSING_ALIAS] result column 'bank1.price + 1' has no name (line 1, column 1)\n"
            "  bank1.price + 1\n  ^\ngive it one: 'bank1.price + 1 AS name'",
        ),
        (
            {"select": ["stddev(bank1.price) AS spread"]},
            "[UNSUPPORTED_FUNCTION] aggregate function stddev() cannot be used in a join (line 1, column 1)\n"
            "  stddev(bank1.price) AS spread\n  ^\n"
            "there are count, count(DISTINCT ...), sum, min, max and avg: compute others from the output of the join",
        ),
        (
            {"select": ["bank1.pirce"]},
            "[UNKNOWN_COLUMN] unknown column 'pirce' in stream 'bank1' (line 1, column 7)\n"
            "  bank1.pirce\n        ^\ndid you mean 'price'?",
        ),
        (
            {"select": ["bank3.*"]},
            "[UNKNOWN_STREAM] unknown stream 'bank3' (line 1, column 1)\n  bank3.*\n  ^\ndid you mean 'bank2'?",
        ),
        (
            {"select": ["* EXCEPT (price)"]},
            "[UNSUPPORTED_SYNTAX] cannot select '* EXCEPT (price)' (line 1, column 1)\n"
            "  * EXCEPT (price)\n  ^\n"
            "a result column is 'stream.column', 'expression AS name', 'stream.*' or '*'",
        ),
        (
            {"select": ["bank1.price, bank2.price"]},
            "[SYNTAX_ERROR] cannot read 'bank1.price, bank2.price': unexpected ',' (line 1, column 12)\n"
            "  bank1.price, bank2.price\n             ^",
        ),
        (
            {"select": ["SELECT 1"]},
            "[UNSUPPORTED_SYNTAX] a subquery cannot be used in a join (line 1, column 1)\n  SELECT 1\n  ^\n"
            "join its rows as a stream of their own",
        ),
        (
            {"select": ["DROP TABLE x"]},
            "[UNSUPPORTED_SYNTAX] cannot select 'DROP TABLE x' (line 1, column 1)\n  DROP TABLE x\n  ^\n"
            "a result column is 'stream.column', 'expression AS name', 'stream.*' or '*'",
        ),
    ],
)
def test_bad_queries_are_named(arguments, message):
    assert error(**arguments) == message


@pytest.mark.parametrize("window", ["0 seconds", "-1 minute", "soon"])
def test_windows_must_be_positive_durations(window):
    assert f"cannot use '{window}' as a duration" in error(OptionError, within=window)
    assert f"cannot use '{window}' as a duration" in error(OptionError, windows={"bank1": window})


def test_names_that_meet_after_the_join_are_refused():
    left = Stream("a", pa.schema([("b_c", pa.int32()), ("k", pa.int32())]))
    right = Stream("a_b", pa.schema([("c", pa.int32()), ("k", pa.int32())]))
    select = ["a.b_c AS one", "a_b.c AS two"]
    with pytest.raises(QueryError) as caught:
        build_query([left, right], where=["a.k = a_b.k"], within=None, windows={}, select=select)
    assert str(caught.value) == (
        "[DUPLICATE_COLUMN] columns a.b_c and a_b.c are both named 'a_b_c' after the join (line 1, column 1)\n"
        "  a_b.c AS two\n  ^\nrename one of the streams"
    )


def test_a_query_text_can_call_registered_predicates():
    text = f"SELECT bank1.price FROM bank1 JOIN bank2 ON {KEY} AND near(bank1.price, bank2.price)"
    near = registered("near", lambda x, y: x)
    found = build_sql_query(read_sql(text), [bank("bank1"), bank("bank2")], functions={"near": near})
    assert found.residuals == (Call("near", (Column("bank1", "price"), Column("bank2", "price")), near),)
