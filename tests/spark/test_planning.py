"""Which plan a query runs: chosen by hints or by its first micro-batch, kept by its checkpoint, told with its costs.

A first micro-batch of a thousand rows counts as large here. `test_reoptimizing.py` has those that do not.
"""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.dying import dying_before
from tests.spark.helpers import output, read_stream, run, write_batches
from watersmeet import StreamJoin
from watersmeet.epoch import protocol
from watersmeet.errors import OptionError
from watersmeet.observe.terminal import epoch_line
from watersmeet.plan.fingerprint import hops_text
from watersmeet.plan.tree import tree_text
from watersmeet.planning.first_rows import SAMPLE_BYTES
from watersmeet.planning.learned import learned
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.spark import learning
from watersmeet.runtime.spark.learning import sample_of
from watersmeet.runtime.spark.query import epochs_of
from watersmeet.runtime.spark.source import unite
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import PlanText

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC"))])
ROWS = {"a": 900, "b": 300, "c": 60, "d": 15}
CHAIN = "a.x = b.x AND b.y = c.y AND c.x = d.x AND a.v < d.v"
SMALL_FIRST = "(a (b (c d)))"


def minutes(count, rows=ROWS, start=0):
    """Batches of a minute: d is rare and selective, so it is best to begin there."""
    made = []
    for number in range(start, start + count):
        rng = np.random.default_rng(number)
        batch = {}
        for name, size in rows.items():
            times = np.sort(rng.integers(number * 60_000_000, (number + 1) * 60_000_000, size))
            columns = [rng.integers(0, 40, size), rng.integers(0, 200, size), rng.random(size), times]
            batch[name] = pa.table([pa.array(c) for c in columns], names=SCHEMA.names).cast(SCHEMA)
        made.append(batch)
    return made


def chain(spark, base, **options):
    join = StreamJoin(spark)
    for name in ROWS:
        join = join.stream(name, read_stream(spark, base / name, SCHEMA), eventTime="ts", delay="1 second")
    join = join.where(CHAIN).within("30 seconds").options(**options)
    return join.select(*(f"{name}.v AS {name}v" for name in ROWS))


def kept(checkpoint) -> PlanText:
    """The plan that the state of a checkpoint is for."""
    return Checkpoint(checkpoint).latest().plan


@pytest.fixture(autouse=True)
def a_thousand_rows_are_many(monkeypatch):
    monkeypatch.setattr(learning, "LARGE_BYTES", 0)
    monkeypatch.setattr(learning, "LARGE_ROWS", 1000)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minutes")
    write_batches(folder, minutes(2))
    return folder


@pytest.fixture(scope="module")
def right(spark, base, tmp_path_factory):
    """The results of a plan that was asked for."""
    folder = tmp_path_factory.mktemp("asked")
    run(chain(spark, base, plan="(((a b) c) d)", slots=2), folder / "out", folder / "ck")
    found = output(spark, folder / "out")
    assert found.total() > 50
    return found


def test_a_large_first_micro_batch_decides_and_a_restart_keeps_the_plan(spark, base, right, tmp_path, capsys):
    join = chain(spark, base, slots=2)
    join.explain()
    said = capsys.readouterr().out
    assert "(the fallback plan, until the data is known;\n" in said
    assert SMALL_FIRST not in said
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert kept(tmp_path / "ck").trees == SMALL_FIRST
    query.explain()
    assert f"== Plan {SMALL_FIRST} ==" in capsys.readouterr().out
    told = query.recentProgress[0]["adaptations"][0]
    assert (told["kind"], told["epoch"], told["slot"], told["plan"]) == ("plan", 0, None, SMALL_FIRST)
    assert "within the budgets" in told["reason"]
    assert told["stateBytes"] > 0
    assert told["cpuSecondsPerSecond"] > 0
    logged = (tmp_path / "ck" / "watersmeet" / "events.jsonl").read_text().splitlines()
    assert json.loads(logged[0]) == told
    # The plan stays, though hints would now choose another; one that is asked for by its tree is migrated to.
    again = chain(spark, base, slots=1)
    for name, rate in {"a": 0.1, "b": 1, "c": 5000, "d": 50000}.items():
        again = again.hint(name, rowsPerSecond=rate)
    assert f"== Plan {SMALL_FIRST} ==" not in _explained(again, capsys)
    run(again, tmp_path / "out", tmp_path / "ck").explain()
    assert f"== Plan {SMALL_FIRST} ==" in capsys.readouterr().out
    assert output(spark, tmp_path / "out") == right
    run(chain(spark, base, plan="(((a b) c) d)"), tmp_path / "out", tmp_path / "ck")
    assert kept(tmp_path / "ck").trees == "(((a b) c) d)"
    assert output(spark, tmp_path / "out") == right


def _explained(join, capsys, *mode):
    capsys.readouterr()
    join.explain(*mode)
    return capsys.readouterr().out


@pytest.mark.long
def test_a_crash_between_the_commit_and_progress_loses_no_event(spark, base, tmp_path):
    with dying_before(protocol.Tell), pytest.raises(Exception, match="before Tell"):
        run(chain(spark, base), tmp_path / "out", tmp_path / "ck")
    log = Checkpoint(tmp_path / "ck").events
    assert log.read()[1] == []
    run(chain(spark, base), tmp_path / "out", tmp_path / "ck")
    assert [(event["epoch"], event["kind"]) for event in log.read()[1]] == [(0, "plan")]


def test_what_a_micro_batch_shows(spark, tmp_path):
    batch = minutes(1)[0]
    join = chain(spark, tmp_path).where("a.v >= 0.5")
    query = pieces_of(join).build()[0]
    rows = unite(query, {name: spark.createDataFrame(table.to_pandas()) for name, table in batch.items()})
    found = learned(query, sample_of(query, rows, 1))
    numbers = {name: table.set_column(3, "ts", table["ts"].cast(pa.int64())) for name, table in batch.items()}
    columns = {name: {c: table[c].to_numpy() for c in table.column_names} for name, table in numbers.items()}
    kept_a = columns["a"]["v"] >= 0.5
    seconds = (max(c["ts"].max() for c in columns.values()) - min(c["ts"].min() for c in columns.values())) / 1e6
    assert found.rates["a"] == pytest.approx(kept_a.sum() / seconds, rel=0.01)
    assert found.rates["d"] == pytest.approx(15 / seconds, rel=0.01)
    # key 0 is c.x = d.x, key 1 is b.y = c.y, key 2 is a.x = b.x
    pairs = [("c", "d", "x"), ("b", "c", "y"), ("a", "b", "x")]
    for number, (left, right, column) in enumerate(pairs):
        one, other = columns[left][column], columns[right][column]
        one = one[kept_a] if left == "a" else one
        assert found.keys[number] == pytest.approx((one[:, None] == other[None, :]).mean(), rel=1e-9)
    less = columns["a"]["v"][kept_a][:, None] < columns["d"]["v"][None, :]
    assert found.residuals[0] == pytest.approx(less.mean(), rel=1e-9)
    assert sample_of(query, rows, 10_000) is None


def test_a_part_of_a_large_micro_batch_shows_few_keys_and_few_values(spark):
    """Three keys, and four values, of which one is less than another in 6 of 16 pairs."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    streams = [Stream(name, schema) for name in "ab"]
    where = ["a.k = b.k AND a.v < b.v"]
    query = build_query(streams, where=where, within=None, windows={}, select=["a.v"])
    numbers = spark.range(200_000, numPartitions=2)
    made = {name: numbers.selectExpr("id % 3 AS k", "id div 7 % 4 AS v") for name in "ab"}
    found = learned(query, sample_of(query, unite(query, made), 1))
    assert found.keys[0] == pytest.approx(1 / 3, rel=0.02)
    assert found.residuals[0] == pytest.approx(6 / 16, rel=0.05)


@pytest.mark.long
def test_few_wide_values_are_brought_to_the_driver(spark):
    """2,500 rows of 60,000 bytes a stream: 150 MB, of which at most SAMPLE_BYTES are looked at."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
    where = ["a.k = b.k AND a.s < b.s AND a.v < b.v"]
    query = build_query([Stream(name, schema) for name in "ab"], where=where, within=None, windows={}, select=["a.v"])
    numbers = spark.range(2500, numPartitions=2)
    columns = ["id % 3 AS k", "id div 7 % 4 AS v", "repeat(cast(id div 3 % 4 AS string), 60000) AS s"]
    sample = sample_of(query, unite(query, {name: numbers.selectExpr(*columns) for name in "ab"}), 1)
    assert all(0.8 * SAMPLE_BYTES < rows.nbytes < 1.2 * SAMPLE_BYTES for rows in sample.tested.values())
    found = learned(query, sample)
    assert found.residuals == {0: pytest.approx(6 / 16, rel=0.1), 1: pytest.approx(6 / 16, rel=0.1)}


def test_a_small_first_micro_batch_decides_nothing(spark, tmp_path):
    write_batches(tmp_path, minutes(1, dict.fromkeys(ROWS, 20)))
    join = chain(spark, tmp_path)
    standing_for_it = tree_text(pieces_of(join).build()[1].trees[0], list(ROWS))
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert kept(tmp_path / "ck").trees == standing_for_it != SMALL_FIRST
    assert "the first micro-batch is small: the fallback plan runs" in epoch_line(epochs_of(query)[0])


def test_hints_on_all_rates_decide_at_once(spark, base, right, tmp_path, capsys):
    join = chain(spark, base, slots=2)
    for name, rows in ROWS.items():
        join = join.hint(name, rowsPerSecond=rows / 60)
    join = (
        join.hint("b.y = c.y", selectivity=1 / 200).hint("key 0", selectivity=1 / 40).hint("key 2", selectivity=1 / 40)
    )
    said = _explained(join, capsys, "cost")
    assert f"== Plan {SMALL_FIRST} ==" in said
    assert "fallback" not in said
    assert f"* {SMALL_FIRST}" in said
    assert re.search(r"^  \(a b c d\) +5 +\S+ +\d\.\d\dx .* mjoin$", said, re.MULTILINE)
    assert "\n* chosen: least CPU" in said
    assert "\nsearch (auto): all trees; " in said
    assert "known: steady a 15 rows/s, b 5 rows/s, c 1 rows/s, d 0.25 rows/s" in said
    assert "known: key 1 lets pass 0.005 of the pairs\n" in said
    assert "assumed: residual 0 lets pass 0.3333 of what it tests (hint('residual 0', selectivity=...))" in " ".join(
        said.split()
    )
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert kept(tmp_path / "ck").orders.keys() == {"(c d)", "(b (c d))", SMALL_FIRST}


def test_a_query_that_has_run_shows_what_plans_would_cost_by_what_it_has_seen(spark, base, right, tmp_path, capsys):
    query = run(chain(spark, base, plan="(((a b) c) d)", memoryBudget="1k"), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    capsys.readouterr()
    query.explain("cost")
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if line.startswith("known: steady"))
    rates = [float(word.split()[1]) for word in line.removeprefix("known: steady ").split(", ")]
    assert rates == pytest.approx([15, 5, 1, 0.25], rel=0.2)
    told = [line.split() for line in said.splitlines() if line.startswith("known: key ")]
    assert [float(words[5]) for words in told] == pytest.approx([1 / 40, 1 / 200, 1 / 40], rel=0.4)
    assert "prices: measured by this query: storing a row " in said
    assert "x the default; exchanges and stages: default" in " ".join(said.split())
    assert re.search(r"^  \(\(\(a b\) c\) d\) .*\n    over budget: state \S+x; runs now$", said, re.MULTILINE)
    assert "* would be chosen now: no plan fits; this one is nearest its budgets: state " in " ".join(said.split())


def test_a_plan_that_is_asked_for_is_compared_with_the_one_that_would_be_chosen(spark, base, capsys):
    join = chain(spark, base, slots=2, plan="(((a b) c) d)")
    for name, rows in ROWS.items():
        join = join.hint(name, rowsPerSecond=rows / 60)
    said = _explained(join, capsys, "cost")
    assert "== Plan (((a b) c) d) ==" in said
    assert re.search(r"^  \(\(\(a b\) c\) d\) .* asked for$", said, re.MULTILINE)
    assert "\n* would be chosen if no plan were asked for: " in said


@pytest.mark.long
def test_probe_orders_of_a_node_over_several_keys_are_chosen_by_cost_and_kept(spark, base, right, tmp_path):
    """b goes to c first and not to a, which would make more of it. Its hops follow, and a restart keeps them."""
    query = run(chain(spark, base, plan="mjoin", slots=2), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert kept(tmp_path / "ck").orders == {"(a b c d)": [[1, 2, 3], [2, 3, 0], [3, 1, 0], [2, 1, 0]]}
    assert query.recentProgress[0]["adaptations"][0]["plan"] == "(a b c d)"
    assert "(c d) → b" in hops(spark, base, tmp_path / "ck")
    run(chain(spark, base, plan="(a b c d)", slots=2), tmp_path / "out2", tmp_path / "ck2")
    assert output(spark, tmp_path / "out2") == right
    assert hops(spark, base, tmp_path / "ck2") != hops(spark, base, tmp_path / "ck")
    before = kept(tmp_path / "ck")
    # A tree that is asked for is no other plan than the one that runs.
    run(chain(spark, base, plan="(a b c d)", slots=1), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert kept(tmp_path / "ck") == before


def hops(spark, base, checkpoint) -> str:
    plan = pieces_of(chain(spark, base, plan="mjoin")).planner()[0].remembered_plan(kept(checkpoint))
    return "; ".join(hops_text(stage) for stage in plan.stages)


VARIANTS = ("bjtree", "mjoin-init", "bjtree-init")


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param("Exhaustive", marks=pytest.mark.long),
        "mjoin",
        *(pytest.param(name, marks=pytest.mark.long) for name in VARIANTS),
    ],
)
def test_other_ways_to_find_a_plan(spark, base, right, tmp_path, plan):
    run(
        chain(spark, base, plan=plan, slots=2, cpuBudget=0.5, explorationTime="10 ms"),
        tmp_path / "out",
        tmp_path / "ck",
    )
    assert output(spark, tmp_path / "out") == right
    assert (kept(tmp_path / "ck").trees == "(a b c d)") == (plan == "mjoin")


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (("e", {"rowsPerSecond": 1}), "unknown stream 'e'"),
        (("a", {}), "hint 'a' says nothing"),
        (("a", {"rowsPerSecond": 1, "selectivity": 1}), "hint 'a' says two things"),
        (("a", {"rowsPerSecond": -1}), "must be a number from 0 to 1e+12, not -1"),
        (("a", {"rowsPerSecond": 1e300}), "must be a number from 0 to 1e+12, not 1e+300"),
        (("a.x = b.x", {"selectivity": 2}), "must be a share from 0 to 1, not 2"),
        (("a.x = d.x", {"selectivity": 0.1}), "hint: the query has no predicate 'a.x = d.x'"),
        (("a.z = d.x", {"selectivity": 0.1}), "hint 'a.z = d.x': "),
    ],
)
def test_hints_that_cannot_be_meant(spark, base, hint, message):
    with pytest.raises(OptionError) as error:
        pieces_of(chain(spark, base).hint(hint[0], **hint[1])).build()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plan": "best"}, "option plan 'best' is neither a join tree nor a way to find one"),
        ({"cpuBudget": "much"}, "option cpuBudget must be a number more than 0, not 'much'"),
        ({"cpuBudget": 0}, "option cpuBudget must be a number more than 0, not '0'"),
        ({"explorationTime": "a while"}, "a while"),
    ],
)
def test_options_that_cannot_be_meant(spark, base, options, message):
    with pytest.raises(OptionError) as error:
        pieces_of(chain(spark, base, **options)).build()
    assert message in str(error.value)


def test_an_explain_mode_that_there_is_not(spark, base):
    with pytest.raises(OptionError, match=r"unknown explain mode 'costs'.*did you mean 'cost'"):
        chain(spark, base).explain("costs")


def test_the_default_memory_budget_reaches_the_planner(spark, base, tmp_path):
    free = shutil.disk_usage(tmp_path).free
    planner, options = pieces_of(chain(spark, base, slots=2, memoryLocation=str(tmp_path))).planner()
    assert planner.budget.memory_bytes == options.memory_budget_bytes == pytest.approx(free / 2 / 2, rel=0.05)
    assert pieces_of(chain(spark, base, memoryBudget="0")).planner()[0].budget.memory_bytes == 0
