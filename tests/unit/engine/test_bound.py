"""Columns are gathered when they are read, and only for rows that are left."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.predicates import FUNCTIONS
from watersmeet.engine import bound, mjoin
from watersmeet.engine.bound import Bound
from watersmeet.engine.mjoin import probe
from watersmeet.plan.nodes import plan_node
from watersmeet.plan.tree import parse_tree
from watersmeet.query.expressions import Column
from watersmeet.query.logical import Stream, build_query
from watersmeet.query.registered import registered
from watersmeet.state.measures import PASSED, TESTED, Figure
from watersmeet.state.run import build_runs

WIDTH = 10_000
KEYS = 20
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("wide", pa.string())])


def planned(where, names="ab", functions=FUNCTIONS):
    equal = [f"{names[0]}.k = {name}.k" for name in names[1:]]
    query = build_query(
        [Stream(name, SCHEMA) for name in names],
        where=[*equal, *where],
        within=None,
        windows={},
        select=[f"{name}.{column}" for name in names for column in ("n", "wide")],
        functions=functions,
    )
    tree = parse_tree(f"({' '.join(names)})", names)
    count = len(names)
    return plan_node(query, tree, (0,), children=[None] * count, stage_inputs=[None] * count, first_store=0)


def run_of(node, number, keys, n):
    """One run: a row per key and n, whose wide column says which it is."""
    values = {"n": pa.array(n), "wide": pa.array([f"{k}.{i}".rjust(WIDTH, "-") for k, i in zip(keys, n, strict=True)])}
    payload = node.inputs[number].payload
    columns = [values[field.name.partition(".")[2]] for field in payload]
    batch = pa.RecordBatch.from_arrays(columns, schema=payload)
    (run,) = build_runs(
        np.asarray(keys, dtype=np.uint64), pa.RecordBatch.from_arrays([pa.array(keys)], names=["k"]), None, batch
    )
    return run


@pytest.fixture
def gathered(monkeypatch):
    """Rows of the wide columns that are gathered."""
    counts = Counter()
    real = mjoin.take

    def counting(column, rows):
        counts["wide" if pa.types.is_string(column.type) else "narrow"] += len(rows)
        return real(column, rows)

    for module in (mjoin, bound):
        monkeypatch.setattr(module, "take", counting)
    return counts


def values(joined, *names):
    return sorted(zip(*(joined.column(Column(*name.split("."))).to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("runs", [1, 3])
def test_a_selective_predicate_spares_the_rows_that_it_drops(gathered, runs):
    node = planned(["a.n + b.n = 7"])
    keys = list(range(KEYS))
    delta = run_of(node, 0, keys, [0] * KEYS)
    store = [run_of(node, 1, keys * 10, [10 * r + i // KEYS for i in range(10 * KEYS)]) for r in range(runs)]
    (joined,) = probe(node, 0, delta, [[], store])
    assert gathered["narrow"] >= 2 * 10 * KEYS * runs
    assert gathered["wide"] == 0
    found = values(joined, "a.n", "b.n", "b.wide")
    assert found == sorted((0, 7, f"{k}.7".rjust(WIDTH, "-")) for k in keys)
    assert gathered["wide"] == KEYS


@pytest.mark.parametrize("runs", [1, 3])
def test_rows_dropped_by_a_later_hop_are_not_gathered_either(gathered, runs):
    node = planned(["b.n + c.n = 0"], "abc")
    keys = list(range(KEYS))
    one = [run_of(node, 0, keys, [0] * KEYS)]
    # One run of b per number; c has four rows of every key, and one key's -1 meets b's 1 only.
    b = [run_of(node, 1, keys, [r] * KEYS) for r in range(1, 1 + runs)]
    c = [run_of(node, 2, keys[::-1] * 4, [-1 if i < 3 else 5 for i in range(4 * KEYS)])]
    (joined,) = probe(node, 0, one[0], [[], b, c])
    assert gathered["wide"] == 0
    found = values(joined, "b.n", "b.wide", "c.n")
    assert found == sorted((1, f"{k}.1".rjust(WIDTH, "-"), -1) for k in (17, 18, 19))
    assert gathered["wide"] <= 3 * 2


def test_a_predicate_on_the_wide_column_gathers_what_earlier_ones_left(gathered):
    node = planned(["a.wide <> b.wide", "a.n + b.n = 7"])
    keys = list(range(KEYS))
    delta = run_of(node, 0, keys, [0] * KEYS)
    store = [run_of(node, 1, keys * 10, [i // KEYS for i in range(10 * KEYS)])]
    assert [r.number for r in node.residuals] == [0, 1]  # integers may overflow: the order of the text
    list(probe(node, 0, delta, [[], store]))
    assert gathered["wide"] == 2 * 10 * KEYS
    gathered.clear()
    node = planned(["a.wide <> b.wide", "b.n = a.n OR b.n = 7"])
    assert [r.number for r in node.residuals] == [1, 0]
    list(probe(node, 0, delta, [[], store]))
    assert gathered["wide"] == 2 * 2 * KEYS


def test_a_registered_predicate_sees_what_a_cheap_one_leaves():
    seen, counts = [], Counter()
    slow = registered("slow", lambda a, b: seen.append((a, b)) or b != 4, vectorized=False)
    node = planned(["slow(a.n, b.n)", "b.n <> a.n"], functions={"slow": slow})
    delta = run_of(node, 0, [1], [3])
    store = [run_of(node, 1, [1] * 5, [1, 2, 3, 4, 3])]
    (joined,) = probe(node, 0, delta, [[], store], counts=counts)
    assert values(joined, "b.n") == [(1,), (2,)]
    assert seen == [(3, 1), (3, 2), (3, 4)]
    assert [counts[Figure(what, f"residual {i}")] for i in (0, 1) for what in (TESTED, PASSED)] == [3, 2, 5, 3]


def test_a_guard_comes_first_though_it_is_dear():
    node = planned(["NOT alike(a.n, b.n)", "10 / (b.n - a.n) > 1"])
    delta = run_of(node, 0, [1], [3])
    store = [run_of(node, 1, [1] * 3, [3, 5, 99])]
    (joined,) = probe(node, 0, delta, [[], store])
    assert values(joined, "b.n") == [(5,)]


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=4),
    st.lists(st.integers(0, 15), max_size=12),
    st.booleans(),
)
def test_a_column_is_that_of_the_rows_bound(rows, wanted, in_order):
    """Pieces are rows of one batch each; the batch of piece p holds 100 p + row."""
    count = sum(map(len, rows))
    index = np.array([i % count for i in wanted] if count else [], dtype=np.int64)
    index = np.sort(index) if in_order else index
    batches = [pa.RecordBatch.from_arrays([pa.array(np.arange(10) + 100 * p)], names=["x"]) for p in range(len(rows))]
    pieces = [(batch, np.array(of_run, dtype=np.int64)) for batch, of_run in zip(batches, rows, strict=True)]
    bound_values = [100 * p + row for p, of_run in enumerate(rows) for row in of_run]
    found = Bound(pieces, None, index)
    assert found.column(0).to_pylist() == [bound_values[i] for i in index]
    assert found.narrowed(slice(None, None, -2)).column(0).to_pylist() == [bound_values[i] for i in index[::-2]]
