"""A changed query is exact: every row of the table in `plan/query_change.py`, against an oracle of its own."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.catching import is_caught
from tests.change_mutants import CHANGE_MUTANTS
from tests.changing import Asked, Story, batch_of, check_story, stream_of, told
from tests.effort import examples
from tests.mutants import Mutant
from watersmeet.errors import CheckpointError
from watersmeet.plan.query_change import carry

A, B, C, D = (stream_of(name) for name in "abcd")
KEYS = ("a.k = b.k", "b.k = c.k")


def windows(a: int | None = None, b: int | None = None, c: int | None = None, d: int | None = None) -> dict[str, str]:
    given = {"a": a, "b": b, "c": c, "d": d}
    return {name: f"{seconds} seconds" for name, seconds in given.items() if seconds is not None}


BASE = Asked((A, B, C), KEYS, ("a.x", "b.y", "c.z"), windows(10, 10, 10), "((a b) c)")
PAIR = Asked((A, B), KEYS[:1], ("a.x", "b.y"), windows(10, 10), "(a b)")
CHANGES = {
    "a predicate between streams": replace(BASE, where=(*KEYS, "a.x < b.y + 3")),
    "a predicate of one stream": replace(BASE, where=(*KEYS, "a.x > 2")),
    "predicates of several streams": replace(BASE, where=(*KEYS, "a.x > 1 AND c.z IS NOT NULL AND b.y < 2")),
    "another key": replace(BASE, where=(*KEYS, "a.x = c.z")),
    "fewer columns": replace(BASE, select=("c.z",)),
    "the event time": replace(BASE, select=("a.ts", "a.k", "b.y")),
    "longer windows": replace(BASE, windows=windows(16, 16, 16)),
    "shorter windows": replace(BASE, windows=windows(4, 4, 4)),
    "one longer and one shorter window": replace(BASE, windows=windows(3, 17, 10)),
    "a stream less": PAIR,
    "a stream more": replace(
        BASE, streams=(A, B, C, D), where=(*KEYS, "c.k = d.k"), windows=windows(10, 10, 10, 10), tree="((a d) (b c))"
    ),
    "another stream": replace(
        BASE,
        streams=(A, B, D),
        where=(*KEYS[:1], "b.k = d.k", "a.x < d.y + 2"),
        select=("a.x", "d.z"),
        windows=windows(10, 12, d=8),
        tree="((a b) d)",
    ),
    "other streams": Asked((C, D), ("c.k = d.k",), ("c.x", "d.z"), windows(c=9, d=11), "(c d)"),
    "another tree and another predicate": replace(BASE, tree="(a (b c))", where=(*KEYS, "a.x < b.y + 3")),
    "one node": replace(BASE, tree="(a b c)", windows=windows(16, 5, 16)),
}


def rows(number: int, count: int = 2) -> dict[str, list[tuple]]:
    """Rows of a batch whose times overlap those of its neighbours."""
    first = number * 3
    return {
        name: [
            (i % 2, (number + i + shift) % 5, (number * i) % 4, (number + shift) % 5, first + i) for i in range(count)
        ]
        for shift, name in enumerate("abcd")
    }


BATCHES = tuple({s.name: batch_of(s, rows(n)[s.name]) for s in (A, B, C, D)} for n in range(8))
SPILLED = ((0, -1), (1, -1))


def stories(name: str) -> list[Story]:
    """There and back, with owed results and in the middle of a migration."""
    one, other = BASE, CHANGES[name]
    plain = Story((one, other, one), (0, 3, 6), BATCHES, slots=2)
    return [plain, replace(plain, spill=SPILLED), replace(plain, asked=(other, one, other))]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_exact_there_and_back(name: str) -> None:
    made = [check_story(story) for story in stories(name)]
    assert all(made), "some first change was refused"


@pytest.mark.parametrize("strategy", ["backfill", "just-in-time", "parallel-track"])
def test_a_migration_that_is_under_way_is_given_up(strategy: str) -> None:
    story = Story((BASE, CHANGES["a predicate between streams"]), (0, 4), BATCHES, slots=2)
    assert check_story(replace(story, migrate=f"(a (b c)) {strategy}")) == 1


@pytest.mark.parametrize("crashes", range(1, 18, 2))
def test_a_driver_may_die_in_a_change(crashes: int) -> None:
    story = Story((BASE, CHANGES["one longer and one shorter window"]), (0, 4), BATCHES, slots=2, spill=SPILLED)
    check_story(replace(story, crashes=crashes))


STUFFED = replace(BASE, select=("a.x", "a.y", "c.z"))


def test_a_column_that_was_not_kept_is_refused_or_stuffed() -> None:
    story = Story((BASE, STUFFED), (0, 4), BATCHES, slots=2)
    assert check_story(story) == 0
    assert check_story(replace(story, stuffs=True)) == 1


REFUSED = {
    "key column a.y was not kept": replace(BASE, where=(*KEYS, "a.y = b.y")),
    "column b.x was not kept": replace(BASE, where=(*KEYS, "a.x < b.x")),
    "column b.x was not kept; column c.x was not kept": replace(
        BASE,
        streams=(A, B, C, D),
        where=(*KEYS, "c.k = d.k", "b.x < d.x", "c.x < d.x"),
        windows=windows(10, 10, 10, 10),
        tree="(a b c d)",
    ),
    "column a.y was not kept, and `y` > 2 needs it": replace(BASE, where=(*KEYS, "a.y > 2")),
    "only Spark can evaluate length": replace(BASE, where=(*KEYS, "length(a.x) > 2")),
    "without a window they would be needed": replace(BASE, windows={"a": "10 seconds", "b": "10 seconds"}),
    "the query before has windows": replace(BASE, windows={}),
    "results so far were not aggregated": replace(BASE, select=("a.x", "count(*) AS n"), group_by=("a.x",)),
}


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.parametrize("stuffs", [False, True])
def test_what_cannot_be_had_is_refused_by_name(words: str, stuffs: bool) -> None:
    with pytest.raises(CheckpointError, match=words.replace("(", r"\(")) as raised:
        carry(BASE.posed(), REFUSED[words].posed(), stuffs=stuffs)
    assert raised.value.error_class == "CANNOT_CHANGE_QUERY"


def test_a_filter_may_be_dropped_only_where_rows_expire() -> None:
    filtered = CHANGES["a predicate of one stream"]
    assert carry(filtered.posed(), BASE.posed()).kept
    with pytest.raises(CheckpointError, match="rows of a were filtered away"):
        carry(replace(filtered, windows={}).posed(), replace(BASE, windows={}).posed())


SUMS = replace(PAIR, select=("a.x", "sum(b.y) AS s", "count(b.y) AS n"), group_by=("a.x",), mode="update")


def test_aggregates_go_on_where_the_join_below_them_changes() -> None:
    narrower = replace(SUMS, where=(*SUMS.where, "a.x < 3"), windows=windows(5, 5))
    plan = narrower.posed().plan
    assert plan.aggregate.layout.name in carry(SUMS.posed(), narrower.posed()).kept
    same = replace(SUMS, select=("a.x", "avg(b.y) AS m"))
    assert carry(SUMS.posed(), same.posed()).kept, "an average is made of the same accumulators"


def test_groups_go_on_where_streams_are_added_and_dropped() -> None:
    """A group has the results of all three queries."""
    pair = replace(PAIR, select=("a.x", "b.y"))
    asked = (pair, replace(BASE, select=pair.select, tree="(a b c)"), pair)
    grouped = tuple(replace(one, select=SUMS.select, group_by=SUMS.group_by, mode=SUMS.mode) for one in asked)
    sums, counts = Counter(), Counter()
    for row in (row for epoch in told(Story(asked, (0, 3, 6), BATCHES, slots=2)) for row in epoch.to_pylist()):
        sums[row["a_x"]] += row["b_y"]
        counts[row["a_x"]] += 1
    epochs = told(Story(grouped, (0, 3, 6), BATCHES, slots=2, spill=SPILLED))
    found = {row["_k0"]: (row["_a0"], row["_a1"]) for epoch in epochs for row in epoch.to_pylist()}
    assert found == {x: (sums[x], counts[x]) for x in counts}


@pytest.mark.parametrize(
    ("select", "words"),
    [
        (("a.x", "sum(a.x) AS s", "count(a.x) AS n"), "have not accumulated sum of known `a_x`"),
        (("a.x", "max(b.y) AS m"), "have not accumulated max"),
        (("a.x", "count(b.y) AS n"), "have accumulated more"),
        (("b.y", "sum(b.y) AS s", "count(b.y) AS n"), "have other keys"),
    ],
)
def test_other_aggregates_are_refused(select: tuple[str, ...], words: str) -> None:
    other = replace(SUMS, select=select, group_by=select[:1])
    with pytest.raises(CheckpointError, match=words):
        carry(SUMS.posed(), other.posed())


def check_made(story: Story) -> None:
    assert check_story(story), "refused"


def check_refused(old: Asked, new: Asked) -> None:
    is_refused = False
    try:
        carry(old.posed(), new.posed(), stuffs=True)
    except CheckpointError:
        is_refused = True
    assert is_refused, "not refused"


def timed(**seconds: list[int]) -> dict:
    """A batch of rows with equal keys and values, at these times."""
    return {name: batch_of(stream_of(name), [(0, 1, 1, 1, time) for time in times]) for name, times in seconds.items()}


LINGERING = Story(
    (replace(PAIR, windows=windows(16, 16)), replace(PAIR, windows=windows(40, 40))),
    (0, 2),
    (timed(a=[0, 1], b=[0, 1]), timed(a=[16], b=[16]), timed(a=[17], b=[17])),
)
"""When the window grows, rows of time 0 have expired, but their extent has not."""
AHEAD = Story(
    (BASE, Asked((B, C), ("b.k = c.k",), ("b.y", "c.z"), {"b": "10 seconds", "c": "10 seconds"}, "(b c)")),
    (0, 1),
    (timed(a=[50], b=[10], c=[10]), timed(b=[12], c=[60]), timed(b=[15, 55])),
)
"""A stream that is ahead of the others is dropped."""
BEHIND = Story(
    (PAIR, replace(BASE, tree="(a b c)")),
    (0, 2),
    (timed(a=[50], b=[45]), timed(a=[60], b=[50]), timed(a=[61], b=[61]), timed(a=[62, 30], b=[62, 31], c=[55, 31])),
)
"""A stream that is added begins behind the others: they wait for it, but not for its rows that are late."""
LACKING = Story(
    (replace(BASE, tree="(a (b c))"), replace(BASE, windows=windows(10, 10, 14))),
    (0, 4),
    BATCHES,
    migrate="((a b) c) just-in-time",
)
"""Stores that a migration has not completed yet would be shared."""
FOR_MUTANTS = {
    "a filter that is added is forgotten in stored rows": "a predicate of one stream",
    "stored results that pass an old predicate are kept": "a predicate between streams",
    "stores of rows that are filtered now are kept": "a predicate of one stream",
    "the old window is kept in stored rows and intervals": "shorter windows",
    "rows that have expired come back when a window grows": LINGERING,
    "old stores are added to those that are built": "shorter windows",
    "a column that was not kept gets another one's values": Story((BASE, STUFFED), (0, 4), BATCHES, stuffs=True),
    "owed results are not emitted before the query changes": "a predicate between streams",
    "a change begins in the middle of a migration": LACKING,
    "the times of streams keep their places when a stream goes": AHEAD,
    "the others do not wait for a stream that is added": BEHIND,
    "the watermark begins again with a stream that is added": BEHIND,
    "stored rows of a stream become those of another": "another stream",
}


def checks_for(name: str) -> list:
    match FOR_MUTANTS.get(name):
        case str(change):
            return [partial(check_made, story) for story in reversed(stories(change))]
        case Story() as story:
            return [partial(check_made, story)]
    sums = replace(SUMS, select=("a.x", "sum(a.x) AS s", "count(a.x) AS n"))
    tested = replace(BASE, where=(*KEYS, "a.x < b.x"))
    return [partial(check_refused, SUMS, sums), partial(check_refused, BASE, tested)]


@pytest.mark.parametrize("story", [LINGERING, AHEAD, BEHIND, LACKING], ids=["lingering", "ahead", "behind", "lacking"])
def test_a_change_is_exact_where_state_is_odd(story: Story) -> None:
    check_made(story)


@pytest.mark.parametrize("mutant", CHANGE_MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_of_changes_are_caught(mutant: Mutant) -> None:
    assert is_caught(mutant, checks_for(mutant.name))


SECONDS = st.integers(2, 12)
PREDICATES = (
    *("a.x < b.y + 2", "a.x > 1", "b.y < 3", "c.z <> 2", "a.x = c.z", "b.y <= c.z"),
    *("d.x <> 3", "a.x = d.x", "d.y <= c.z + 1", "b.x IS NOT NULL"),
)


@st.composite
def trees_of(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    """A tree over the streams, of nodes with two inputs or more."""
    parts = list(draw(st.permutations(names)))
    while len(parts) > 1:
        count = draw(st.integers(2, len(parts)))
        parts = [*parts[count:], f"({' '.join(parts[:count])})"]
    return parts[0]


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    streams = tuple(draw(st.lists(st.sampled_from((A, B, C, D)), min_size=2, unique_by=lambda stream: stream.name)))
    names = [stream.name for stream in streams]
    keys = [f"{left}.k = {right}.k" for left, right in pairwise(names)]
    more = [text for text in PREDICATES if set(re.findall(r"(\w)\.", text)) <= set(names)]
    where = (*keys, *draw(st.lists(st.sampled_from(more), max_size=2, unique=True)))
    columns = [f"{name}.{column}" for name in names for column in ("x", "y", "z", "ts")]
    select = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=5, unique=True))
    windows = {name: f"{draw(SECONDS)} seconds" for name in names}
    return Asked(streams, where, tuple(select), windows, draw(trees_of(tuple(names))))


@st.composite
def drawn_stories(draw: st.DrawFn) -> Story:
    queries = draw(st.lists(asked(), min_size=2, max_size=4))
    values = st.tuples(st.integers(0, 1), *[st.integers(0, 4)] * 3, st.integers(-2, 3))
    batches = []
    for number in range(2 * len(queries)):
        batch = {}
        for stream in (A, B, C, D):
            found = draw(st.lists(values, max_size=4))
            batch[stream.name] = batch_of(stream, [(*row[:4], max(0, row[4] + number * 3)) for row in found])
        batches.append(batch)
    return Story(
        tuple(queries),
        tuple(range(0, len(batches), 2)),
        tuple(batches),
        slots=draw(st.integers(1, 3)),
        spill=draw(st.sampled_from(((), SPILLED))),
        stuffs=draw(st.booleans()),
        crashes=draw(st.integers(0, 14)),
    )


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_stories())
def test_any_change_is_exact_or_refused(story: Story) -> None:
    check_story(story)
