"""Joins by a schedule (`runtime/execution_models.py`): cases, generated and by hand, and what is checked of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import strategies as st

from tests.drawn_trees import trees
from tests.oracle import canonical, nested_loop_join
from tests.scenarios import UTC, table_of
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.execution_models import Model, QueuedJoin, Schedule
from watersmeet.runtime.queued_nodes import QueuedNode

Row = tuple[str, tuple[int | None, ...]]
"""A stream, and the values of its columns: event time, then keys. The number of the row is added."""


@dataclass(frozen=True)
class Case:
    """`migrations` are numbers of rows, each with the tree that the query migrates to before that row arrives."""

    query: JoinQuery
    tree: str
    rows: tuple[Row, ...]
    schedule: Schedule
    migrations: tuple[tuple[int, str], ...] = ()
    disorder_us: int = 0
    at_once: bool = False
    """Whether neighbouring rows of one stream arrive together."""

    def plan(self, tree: str) -> JoinPlan:
        return plan_of(self.query, tree)

    def arrivals(self) -> list[tuple[int, str, pa.Table]]:
        """Rows that arrive together, with the number of the first and the stream."""
        schemas = {stream.name: stream.schema for stream in self.query.streams}
        numbered = [(n, name, (n, *row)) for n, (name, row) in enumerate(self.rows)]
        found = [list(rows) for _, rows in groupby(numbered, lambda row: row[1] if self.at_once else row[0])]
        return [(rows[0][0], name := rows[0][1], table_of(schemas[name], [row for *_, row in rows])) for rows in found]


def plan_of(query: JoinQuery, tree: str) -> JoinPlan:
    names = [stream.name for stream in query.streams]
    return plan_join(query, (parse_tree(tree, names) if tree else default_tree(query),), partitions=4)


def query_of(links: Sequence[Sequence[str]], residuals: Sequence[str] = (), **windows: int) -> JoinQuery:
    """A query over streams with their windows, in microseconds; 0: unbounded. All streams of a link have an equal
    column."""
    schemas = {
        name: pa.schema(
            [("v", pa.int64()), ("ts", UTC), *((f"k{i}", pa.int64()) for i, link in enumerate(links) if name in link)]
        )
        for name in windows
    }
    equal = [f"{one}.k{i} = {other}.k{i}" for i, link in enumerate(links) for one, other in pairwise(link)]
    return build_query(
        [Stream(name, schema, "ts") for name, schema in schemas.items()],
        where=[*equal, *residuals],
        within=None,
        windows={name: f"{window} microseconds" for name, window in windows.items() if window},
        select=[f"{name}.v" for name in windows],
    )


def check(case: Case) -> None:
    """The results are the oracle's, and all migrations have been made."""
    join = QueuedJoin(case.query, case.plan(case.tree), case.schedule, case.disorder_us)
    with taken() as arrivals:
        _act(case, join)
    found, expected = canonical(join.results), right(case)
    assert found == expected, f"lost {expected - found}, added {found - expected}"
    assert join.matches == 1 + len(case.migrations), "a migration has not ended"
    if case.schedule.model is Model.TOTALLY:
        assert is_ascending([arrival for _, arrival in arrivals]), "some row was joined before an earlier one"
    if case.schedule.model is not Model.UN:
        nodes = {id(node): node for node, _ in arrivals}.values()
        orders = ([arrival for other, arrival in arrivals if other is node] for node in nodes)
        assert all(map(is_ascending, orders)), "some node took a row before an earlier one"


@contextmanager
def taken() -> Iterator[list[tuple[QueuedNode, int]]]:
    """The rows that nodes take, by the number of their arrival."""
    take, found = QueuedNode.take, []

    def noted(node: QueuedNode, i: int, disorder_us: int):
        result = take(node, i, disorder_us)
        found.append((node, result[0]))
        return result

    with patch.object(QueuedNode, "take", noted):
        yield found


def is_ascending(numbers: Sequence[int]) -> bool:
    return all(one <= other for one, other in pairwise(numbers))


def _act(case: Case, join: QueuedJoin) -> None:
    waiting = list(case.migrations)
    for number, name, table in case.arrivals():
        while waiting and waiting[0][0] <= number:
            join.migrate(case.plan(waiting.pop(0)[1]))
        join.arrive(name, table)
    for _, tree in waiting:
        join.migrate(case.plan(tree))
    join.finish()


def right(case: Case) -> Counter:
    """The oracle's results. No row is late."""
    names = {name for name, _ in case.rows}
    batch = {name: pa.concat_tables([table for _, of, table in case.arrivals() if of == name]) for name in names}
    return nested_loop_join(case.query, [batch]).results


# Worked examples. `a3` is a row of stream a with time 3 and key 0, `a3:1` one with key 1.


def case_of(windows: int, tree: str, rows: str, model: Model, turns: str = "", **how: Any) -> Case:
    """A case over the streams that the rows name, all under one key. `turns` follow the rows, a digit for each turn."""
    parts = (row.partition(":") for row in rows.split())
    read = tuple((head[0], (int(head[1:]), int(key or 0))) for head, _, key in parts)
    names = "".join(sorted({name for name, _ in read}))
    per_row = tuple(tuple(map(int, digits.strip("-"))) for digits in turns.split())
    return Case(query_of([names], **dict.fromkeys(names, windows)), tree, read, Schedule(model, per_row), **how)


CLOSURE = "b2 a3 c3 b4:1 a4:1 c5 a7:2 b7 c7"
CLOSURE_TURNS = {Model.TOTALLY: "", Model.SEMI: "- - - - - - - 00000 - 0 - -", Model.UN: "0 0 00 0 0 0 0 0 - 0 - -"}


def closure(model: Model) -> Case:
    """Figure 15.2. When ((a b) c) becomes (a (b c)), a7 has purged b2, and c5 is still in its queue. It joins a3 and
    b2, which only the store (a b) has. Further rows come before c5 is joined."""
    rows, turns = f"{CLOSURE} a8 b9 c9", CLOSURE_TURNS[model]
    return case_of(4, "((a b) c)", rows, model, turns, migrations=((9, "(a (b c))"),))


EXAMPLES = {
    "closure, semi-synchronised": closure(Model.SEMI),
    "closure, un-synchronised": closure(Model.UN),
    # a11 makes a11 b15 and a11 b20, and a12 makes a12 b15 afterwards: it joins c7, the last moment of which is 18.
    "a joined row is as old as its oldest part": case_of(
        12, "((a b) c)", "c7 a11 a12 b15 b20", Model.UN, "0 - - 1 101"
    ),
    "b is behind a": case_of(4, "(a b c)", "b1 c1 b2 a3 a9", Model.UN, "0 0 - 0 0"),
    "b has not begun": case_of(4, "(a b c)", "c1 b2 a3 a9", Model.UN, "0 - 0 0"),
    "streams are not in order": case_of(4, "(a b)", "b5 a9 a6", Model.TOTALLY, disorder_us=3),
    "an empty queue may get an earlier row": case_of(4, "((a b) c)", "a1 b2 c3", Model.SEMI, "- - 1"),
}


# Generated cases

GRAPHS = ("common", "common", "chain", "star", "partial")


@st.composite
def cases(draw: st.DrawFn, model: Model) -> Case:
    """Rows of many results, and migrations in their second half, between trees of any shape."""
    query = draw(_queries())
    disorder, distinct = draw(st.sampled_from((0, 0, 1, 3))), draw(st.sampled_from((1, 1, 2)))
    rng = Random(draw(st.integers(0, 1 << 32)))
    rows = tuple(_rows(query, draw(st.sampled_from((24, 28, 16, 10))), disorder, distinct, rng))
    most, reach = draw(st.sampled_from((2, 1, 3, 4))), draw(st.sampled_from((1, 2, 12)))
    turns = () if model is Model.TOTALLY else tuple(_turns(len(rows), most, reach, rng))
    plans = [draw(_trees(query).filter(lambda tree: tree.count("(") > 1))]
    for _ in range(draw(st.sampled_from((1, 1, 2)))):
        plans.append(draw(_trees(query).filter(lambda tree: tree != plans[-1])))
    at = sorted(draw(st.integers(len(rows) // 2, len(rows))) for _ in plans[1:])
    migrations = tuple(zip(at, plans[1:], strict=True))
    return Case(
        query,
        plans[0],
        rows,
        Schedule(model, turns),
        migrations,
        disorder,
        at_once=draw(st.sampled_from((False, False, True))),
    )


def _turns(arrivals: int, most: int, reach: int, rng: Random) -> Iterator[tuple[int, ...]]:
    """Often too few, and often of the first queue that has rows: so one node is far ahead of another."""
    for _ in range(arrivals):
        yield tuple(rng.randrange(reach) for _ in range(rng.randint(0, most)))


@st.composite
def _queries(draw: st.DrawFn) -> JoinQuery:
    names = draw(st.sampled_from(("abc", "abc", "abcd")))
    links = {
        "common": [names],
        "chain": ["".join(pair) for pair in pairwise(names)],
        "star": [names[0] + other for other in names[1:]],
        "partial": [names, names[1:]],
    }[draw(st.sampled_from(GRAPHS))]
    window = draw(st.sampled_from((3, 5, 8)))
    longer = draw(st.sampled_from((0, 0, 0, 1, window, -window)))
    residuals = draw(st.sampled_from(((), (), (f"a.v < {names[-1]}.v + 2",))))
    return query_of(links, residuals, **{name: window + longer * (i % 2) for i, name in enumerate(names)})


def _rows(query: JoinQuery, rows: int, disorder: int, distinct: int, rng: Random) -> Iterator[Row]:
    """Rows whose times advance, each earlier by up to the disorder."""
    clock = 0
    for _ in range(rows):
        stream = rng.choice(query.streams)
        clock += rng.choice((0, 1, 1))
        keys = (rng.randrange(distinct) for _ in stream.schema.names[2:])
        yield stream.name, (clock - rng.randint(0, disorder), *keys)


def _trees(query: JoinQuery) -> st.SearchStrategy[str]:
    """Trees whose nodes have one key each."""
    drawn = trees(query).map(lambda texts: texts[0] if texts else "")
    return drawn.filter(lambda text: not any(stage.hops for stage in plan_of(query, text).stages))
