"""A group that has come to a slot of another shape: what is counted, and where its rows are."""

import pyarrow as pa

from watersmeet.plan.placement import Move
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import BUILT_ROWS, INSERTED, INTERMEDIATE, RESULTS, STATE_ROWS

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
KEY = "a.k = b.k = c.k"
KEYS = 40


def started(folder, *, shapes=("(a b c)", "((a b) c)")) -> InProcessQuery:
    streams = [Stream(name, SCHEMA) for name in "abc"]
    query = build_query(
        streams, where=["a.k = b.k", "b.k = c.k"], within=None, windows={}, select=["a.v", "b.v", "c.v"]
    )
    return InProcessQuery(query, folder, slots=2, partitions=8, trees=[parse_tree(text, "abc") for text in shapes])


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": keys, "v": keys}, schema=SCHEMA)


def moved_to(engine: InProcessQuery, receiver: int) -> None:
    """All groups go there with the next batch."""
    owners = engine.manifest.placement.owners[KEY]
    groups = tuple(group for group, slot in enumerate(owners) if slot != receiver)
    engine.order((), [Move(KEY, 1 - receiver, receiver, groups)] if groups else ())


def test_what_is_made_counts_neither_as_arrived_nor_as_found(tmp_path):
    engine = started(tmp_path)
    keys = range(KEYS)
    engine.run({name: rows(*keys) for name in "ab"})
    before = engine.manifest.totals
    moved_to(engine, 1)
    assert engine.run({"c": rows(3)}).num_rows == 1
    after = engine.manifest.totals
    lacking = KEYS - before.of(STATE_ROWS, "(a b)")
    assert lacking > 0
    assert after.of(STATE_ROWS, "(a b)") == KEYS
    assert after.of(BUILT_ROWS) - before.of(BUILT_ROWS) == lacking
    assert after.of(INSERTED) - before.of(INSERTED) == 1
    assert after.of(INTERMEDIATE) == before.of(INTERMEDIATE)
    assert after.of(RESULTS) == 1


def test_figures_of_stores_follow_their_names(tmp_path):
    """On the first slot the third store is c, on the second it is (a b)."""
    engine = started(tmp_path)
    engine.run({name: rows(*range(KEYS)) for name in "abc"})
    ledger = engine.coordinator.ledger
    owners = engine.manifest.placement.owners[KEY]
    mine = [group for group, slot in enumerate(owners) if slot == 0]
    first = ledger._arrived[0][:3, mine].copy()
    ledger.moved([Move(KEY, 0, 1, tuple(mine))])
    numbers = [layout.label for layout in engine.plan.layouts(0, 1)]
    assert (ledger._arrived[0][numbers.index("c"), mine] == first[2]).all()
    assert (ledger._arrived[0][numbers.index("(a b)"), mine] == 0).all()
    assert first.sum() > 0


def test_files_do_not_stay_shared(tmp_path):
    engine = started(tmp_path)
    engine.run({name: rows(*range(KEYS)) for name in "abc"})
    for number in range(4):
        owners = engine.manifest.placement.owners[KEY]
        group = owners.index(number % 2)
        engine.order((), [Move(KEY, number % 2, 1 - number % 2, (group,))])
        engine.run({"a": rows(*range(KEYS))})
        engine.run({"b": rows(1)})
        used = [{e.segment for mine in state.values() for e in mine} for state in engine.manifest.extents]
        assert all(used)
        assert not used[0] & used[1]
