"""Intervals as asked: which columns they add, where they are refused, and that the engine makes them alike anyhow."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import OptionError, QueryError
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.fingerprint import query_marks
from watersmeet.plan.stages import plan_join
from watersmeet.query.confidence import with_confidence
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
ROWS = {"a": 400, "b": 400, "c": 400}


def asked(*select: str, streams: str = "abc", within: str | None = None, group_by: tuple[str, ...] = ()) -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts") for name in streams],
        where=[f"{streams[0]}.k = {other}.k" for other in streams[1:]],
        within=within,
        windows={},
        select=select,
        group_by=group_by,
    )


def test_every_plain_aggregate_is_followed_by_its_interval():
    query = with_confidence(asked("sum(a.v) AS total", "max(b.v) AS top", "sum(a.v) / count(*) AS mean"), 0.9, ROWS)
    assert [item.name for item in query.select] == [
        "total", "total_estimate", "total_low", "total_high", "top", "mean",
    ]  # fmt: skip
    assert [stream.derived[-1].sql for stream in query.streams] == ["xxhash64(`id`, `k`, `v`, `ts`)"] * 3


@pytest.mark.parametrize(
    ("query", "rows", "message"),
    [
        (asked("a.v"), ROWS, "no result column is a SUM, COUNT or AVG"),
        (asked("min(a.v) AS x"), ROWS, "no result column is a SUM, COUNT or AVG"),
        (asked("sum(a.v) AS x", within="1 hour"), ROWS, "the join has windows"),
        (asked("sum(a.v) AS x"), {"a": 1}, r"needs to know how many rows b, c will have.*expectedRows"),
        (asked("sum(a.v) AS x"), {**ROWS, "d": 1}, "expectedRows names 'd'. the streams are a, b, c"),
        (asked("sum(a.v) AS x", streams="abcdef"), dict.fromkeys("abcdef", 9), "there are 6 streams, and at most 5"),
    ],
)
def test_where_intervals_mean_nothing_they_are_refused(query, rows, message):
    with pytest.raises(OptionError, match=message):
        with_confidence(query, 0.95, rows)


def test_no_map_is_hashed_however_deep():
    words = pa.map_(pa.int8(), pa.int8())
    fields = {"k": pa.int8(), "m": words, "l": pa.list_(words), "s": pa.struct({"in": words}), "x": pa.list_(pa.int8())}
    streams = [Stream(name, pa.schema(fields)) for name in "ab"]
    query = build_query(streams, where=["a.k = b.k"], within=None, windows={}, select=["count(*) AS n"])
    found = with_confidence(query, 0.95, {"a": 1, "b": 1})
    assert [stream.derived[-1].sql for stream in found.streams] == ["xxhash64(`k`, `x`)"] * 2


def test_a_checkpoint_knows_which_aggregates_have_intervals():
    """They have accumulators of their own; the aggregates are the same in both."""
    marks = []
    for select in (("count(*) AS n", "sum(a.v) AS s"), ("count(*) AS n", "sum(a.v) + 1 AS s")):
        query = with_confidence(asked(*select), 0.95, ROWS)
        marks.append(query_marks(query, plan_join(query, (default_tree(query),), 8)))
    assert {name for name in marks[0] if marks[0][name] != marks[1].get(name)} == {"intervals"}


def test_long_integers_are_doubles_in_an_interval(tmp_path):
    query = with_confidence(asked("sum(a.v) AS s", "avg(b.v) AS m", streams="ab"), 0.95, {"a": 4, "b": 4})
    row = {"id": [1, 2], "k": [1, 1], "v": [2**60 + 1, -(2**62) - 1], "ts": pa.nulls(2, SCHEMA.field("ts").type)}
    (shown,) = InProcessQuery(query, tmp_path).run({"a": pa.table(row), "b": pa.table(row)}).to_pylist()
    assert shown["_a0"] == 2 * (2**60 - 2**62)
    assert shown["_a0_estimate"] == pytest.approx(4 * shown["_a0"])


def test_names_must_stay_different():
    with pytest.raises(QueryError, match="two result columns are named 'x_low'"):
        with_confidence(asked("sum(a.v) AS x", "min(a.v) AS x_low"), 0.95, ROWS)


@pytest.fixture(scope="module")
def batches():
    rng = np.random.default_rng(2)
    tables = {
        name: pa.table([rng.permutation(400), rng.integers(0, 40, 400), rng.integers(-5, 50, 400)], SCHEMA.names[:3])
        for name in ROWS
    }
    untimed = pa.nulls(400, SCHEMA.field("ts").type)
    tables = {name: table.append_column("ts", untimed) for name, table in tables.items()}
    return [{name: table.slice(start, 100) for name, table in tables.items()} for start in range(0, 400, 100)]


def intervals(folder, batches, *, restart: bool = False, **setting):
    query = asked("sum(a.v * b.v) AS s", "avg(c.v) AS m", "count(*) AS n", group_by=("a.v % 2",))
    query = with_confidence(query, 0.95, ROWS)
    engine = InProcessQuery(query, folder, **setting)
    shown = []
    for batch in batches:
        if restart:
            engine = InProcessQuery(query, folder, **setting)
        shown.append(sorted(engine.run(batch).to_pylist(), key=lambda row: row["_k0"]))
    return shown


def test_intervals_do_not_depend_on_slots_chunks_or_restarts(tmp_path, batches):
    plain = intervals(tmp_path / "plain", batches)
    split = intervals(tmp_path / "split", batches, slots=3, restart=True, memory=tmp_path / "memory")
    for ours, theirs in zip(plain, split, strict=True):
        assert len(ours) == 3
        for one, other in zip(ours, theirs, strict=True):
            assert one == pytest.approx(other)


def test_intervals_close_in_on_the_exact_value(tmp_path, batches):
    shown = intervals(tmp_path, batches)
    for group in range(3):
        widths = [rows[group]["_a0_high"] - rows[group]["_a0_low"] for rows in shown]
        assert widths[0] > widths[2] > widths[3] == 0
        last = shown[-1][group]
        assert last["_a0"] == last["_a0_estimate"] == last["_a0_low"] == last["_a0_high"]
        assert last["_a1"] == pytest.approx(last["_a1_estimate"])
