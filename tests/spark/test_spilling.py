"""State larger than memory, on Spark: what was spilled is owed, and comes out exactly once, whatever happens meanwhile.

An outside observer looks at the memory tier; none of the figures that bound it are our own.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from tests.observer import Observer
from tests.oracle import canonical, duckdb_join
from tests.spark.driver_program import few_at_once
from tests.spark.helpers import (
    READINGS,
    expected,
    join_of,
    output,
    random_batches,
    read_stream,
    run,
    start,
    write_batches,
)
from watersmeet import StreamJoin
from watersmeet.adaptation import coordinator
from watersmeet.adaptation.spill_policies import POLICIES
from watersmeet.epoch.owing import is_owing
from watersmeet.errors import CheckpointError, OptionError, WatersmeetError
from watersmeet.runtime.spark.coordination import spill_settings
from watersmeet.runtime.spark.query import JoinQueryHandle, epochs_of
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.measures import OWED

pytestmark = pytest.mark.slow

SMALL = {"slots": 2, "memoryBudget": "6k"}


def metrics(progress) -> dict:
    return progress["stateOperators"][0]["customMetrics"]


def kinds(query) -> Counter:
    """How often each kind of adaptation was made, as the query's progress tells."""
    return Counter(event["kind"] for progress in query.recentProgress for event in progress["adaptations"])


def owes(spark, base) -> bool:
    return is_owing(pieces_of(join_of(spark, base)).build()[1], Checkpoint(base / "ck").latest())


# --- exactness, and the promise of memory ----------------------------------------------------------------------------

BUDGET, SLOTS, ROWS, BATCHES = 16 << 10, 2, 1_500, 3


def wide_batch(rng: np.random.Generator, number: int) -> dict[str, pa.Table]:
    """Rows of five streams: about two of each meet in the first key, and one in the others."""

    def table() -> pa.Table:
        columns = [
            pa.array(rng.integers(0, ROWS * BATCHES // 2, ROWS), pa.int32()),
            pa.array(np.full(ROWS, number)).cast(READINGS.field("ts").type),
            pa.array(rng.integers(0, ROWS * BATCHES, ROWS)),
            pa.array([f"name {n}" for n in rng.integers(0, ROWS * BATCHES, ROWS)]),
        ]
        return pa.Table.from_arrays(columns, schema=READINGS)

    return {name: table() for name in "abcde"}


def wide_join(spark, base, **options):
    join = StreamJoin(spark)
    for name in "abcde":
        join = join.stream(name, read_stream(spark, base / name, READINGS, **options))
    join = join.where("a.k = b.k AND b.k = c.k AND c.name = d.name AND d.v = e.v")
    join = join.select("a.k AS k", *(f"{name}.v" for name in "abcde"))
    return join.options(plan="(((a b c) d) e)", slots=SLOTS)


def test_a_tree_over_three_keys_with_ten_times_the_state_that_memory_may_hold(spark, tmp_path):
    rng = np.random.default_rng(3)
    batches = [wide_batch(rng, number) for number in range(BATCHES)]
    write_batches(tmp_path, batches)
    run(wide_join(spark, tmp_path, maxFilesPerTrigger=None), tmp_path / "plain", tmp_path / "plain-ck")
    memory = tmp_path / "memory"
    memory.mkdir()
    join = wide_join(spark, tmp_path).options(memoryBudget=BUDGET, memoryLocation=memory)
    with Observer(memory) as seen:
        query = run(join, tmp_path / "out", tmp_path / "ck")
    found = output(spark, tmp_path / "out")
    assert found == output(spark, tmp_path / "plain")
    everything = {name: pa.concat_tables(batch[name] for batch in batches) for name in "abcde"}
    assert found == canonical(duckdb_join(pieces_of(join).build()[0], everything))
    assert found.total() > 1_000
    last = metrics(query.lastProgress)
    assert last["stateBytes"] >= 10 * SLOTS * BUDGET
    assert 0 < seen.most() <= SLOTS * BUDGET
    assert kinds(query)["spill"] > 0
    cleaning = [event for event in query.lastProgress["adaptations"] if event["kind"] == "cleanUp"]
    assert sum(event["results"] for event in cleaning) > 0
    assert {event["reason"] for event in cleaning} == {"the stream has ended"}
    logged = (tmp_path / "ck" / "watersmeet" / "events.jsonl").read_text().splitlines()
    assert Counter(json.loads(line)["kind"] for line in logged) == kinds(query)
    assert last["owedGroups"] == 0


def test_rows_that_expire_pay_what_they_owe_before(spark, tmp_path):
    batches = random_batches(seed=31, streams="abc", batches=5, rows=20, keys=8)
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path).options(**SMALL)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    assert kinds(query)["spill"] > 0
    before_the_end = [epoch.count(OWED) for epoch in epochs_of(query) if not epoch.is_cleaning]
    assert len(before_the_end) == 5
    assert sum(before_the_end) > 0


# --- clean-up when asked for -----------------------------------------------------------------------------------------


def test_clean_up_of_a_running_query(spark, tmp_path):
    batches = random_batches(seed=32, streams="abc", batches=4, rows=20, keys=8)
    write_batches(tmp_path, batches[:3])
    join = join_of(spark, tmp_path).options(**SMALL)
    query = join.writeStream.format("memory").queryName("cleaned").trigger(processingTime="0 seconds").start()
    for done in (3, 4):
        write_batches(tmp_path, batches[3:done], start=3)
        query.processAllAvailable()
        before = spark.table("cleaned").count()
        right = expected(join, batches[:done])
        assert before < right.total()
        assert metrics(query.lastProgress)["owedGroups"] > 0
        assert query.cleanUp() == right.total() - before
        assert canonical(spark.table("cleaned").toArrow()) == right
        assert metrics(query.lastProgress)["owedGroups"] == 0
        assert query.lastProgress["adaptations"][-1]["kind"] == "cleanUp"
        assert query.cleanUp() == 0
    query.stop()
    with pytest.raises(WatersmeetError, match="the query has ended"):
        query.cleanUp()


# --- restarts --------------------------------------------------------------------------------------------------------


def begin(join, base):
    """The query without an end: what it owes when it is stopped stays owed."""
    writer = join.writeStream.option("path", base / "out").option("checkpointLocation", base / "ck")
    return writer.trigger(processingTime="0 seconds").start()


def owing_query(spark, base, batches, **options):
    """Run a query over some batches, and stop it while it owes results."""
    write_batches(base, batches)
    query = begin(join_of(spark, base).options(**SMALL, **options), base)
    query.processAllAvailable()
    query.stop()
    assert owes(spark, base)


def test_what_is_owed_survives_restarts_with_other_slots_and_budgets(spark, tmp_path):
    batches = random_batches(seed=33, streams="abc", batches=5, rows=20, keys=8)
    owing_query(spark, tmp_path, batches[:2])
    write_batches(tmp_path, batches[2:4], start=2)
    query = begin(join_of(spark, tmp_path).options(slots=3, memoryBudget="9k"), tmp_path)
    query.processAllAvailable()
    query.stop()
    assert owes(spark, tmp_path)
    right = expected(join_of(spark, tmp_path), batches[:4])
    assert output(spark, tmp_path / "out") != right
    # Nothing has arrived: this run does nothing but clean up, on slots that the state was not dealt out to.
    run(join_of(spark, tmp_path).options(slots=1, memoryBudget="4k"), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert not owes(spark, tmp_path)
    write_batches(tmp_path, batches[4:], start=4)
    run(join_of(spark, tmp_path).options(slots=2, spill="off"), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join_of(spark, tmp_path), batches)


# --- sinks that fail, and queries that are stopped -------------------------------------------------------------------


class Told:
    """A foreachBatch function that remembers what each epoch brought, unless there is trouble before."""

    def __init__(self) -> None:
        self.epochs: dict[int, Counter] = {}
        self.trouble: Callable[[DataFrame, int], None] | None = None

    def __call__(self, results: DataFrame, epoch: int) -> None:
        if self.trouble is not None:
            self.trouble(results, epoch)
        rows = canonical(results.toArrow())
        assert self.epochs.setdefault(epoch, rows) == rows

    def start(self, join: StreamJoin, base: Path, **trigger: object) -> JoinQueryHandle:
        writer = join.writeStream.foreachBatch(self).option("checkpointLocation", base / "ck")
        return writer.trigger(**trigger).start()

    @property
    def rows(self) -> Counter:
        assert list(self.epochs) == sorted(self.epochs)
        return sum(self.epochs.values(), Counter())


def gone(results: DataFrame, epoch: int) -> None:
    raise RuntimeError("the sink is gone")


def test_a_clean_up_that_is_stopped_ends_at_once_and_goes_on_where_it_was(spark, tmp_path, monkeypatch):
    batches = random_batches(seed=34, streams="abc", batches=3, rows=20, keys=8)
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path).options(**SMALL, partitions=8)
    monkeypatch.setattr(coordinator, "cleaning_orders", few_at_once(1))  # group by group
    told, entered = Told(), threading.Event()

    def takes_for_ever(results, epoch):
        if epoch == 4:  # the second of four groups on each of two slots
            entered.set()
            results.sparkSession.range(1 << 50).selectExpr("max(rand())").collect()

    told.trouble = takes_for_ever
    query = told.start(join, tmp_path, availableNow=True)
    assert entered.wait(120)
    assert query.isActive
    query.stop()
    assert query.exception() is None
    assert list(told.epochs) == [0, 1, 2, 3]
    assert owes(spark, tmp_path)
    told.trouble = None
    # The epoch that was not acknowledged ran on two slots, and is sent again as it was.
    told.start(join_of(spark, tmp_path).options(slots=1, partitions=8), tmp_path, availableNow=True).awaitTermination()
    assert told.rows == expected(join, batches)
    assert len(told.epochs) > 6
    assert not owes(spark, tmp_path)


def test_a_sink_that_fails_while_it_is_given_what_was_owed(spark, tmp_path):
    batches = random_batches(seed=35, streams="abc", batches=4, rows=20, keys=8)
    write_batches(tmp_path, batches[:2])
    join = join_of(spark, tmp_path).options(**SMALL)
    told = Told()
    told.trouble = lambda results, epoch: gone(results, epoch) if epoch == 2 else None
    query = told.start(join, tmp_path, availableNow=True)
    with pytest.raises(RuntimeError, match="the sink is gone"):
        query.awaitTermination()
    told.trouble = None
    write_batches(tmp_path, batches[2:], start=2)
    query = told.start(join, tmp_path, processingTime="0 seconds")
    query.processAllAvailable()  # sends epoch 2 before anything else
    told.trouble = gone
    with pytest.raises(RuntimeError, match="the sink is gone"):
        query.cleanUp()
    told.trouble = None
    assert query.isActive
    query.cleanUp()
    assert told.rows == expected(join, batches)
    query.stop()
    assert query.exception() is None


def test_no_clean_up_hides_a_batch_whose_results_the_sink_does_not_have(spark, tmp_path):
    batches = random_batches(seed=36, streams="abc", batches=3, rows=20, keys=8)
    write_batches(tmp_path, batches)
    join = join_of(spark, tmp_path).options(**SMALL)
    told = Told()
    told.trouble = lambda results, epoch: gone(results, epoch) if epoch == 2 else None
    query = told.start(join, tmp_path, processingTime="0 seconds")
    with pytest.raises(Exception, match="the sink is gone"):
        query.awaitTermination()
    told.trouble = None
    query = told.start(join, tmp_path, processingTime="0 seconds")
    with suppress(CheckpointError):  # unless Spark was quicker, and has repeated the batch
        query.cleanUp()
    query.processAllAvailable()
    query.cleanUp()
    query.stop()
    assert told.rows == expected(join, batches)


# --- faults of disks -------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(spark, tmp_path):
    """A join that is built and never started."""
    return join_of(spark, tmp_path, "ab")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_be_asked_for(pair, policy, capsys):
    join = pair.options(spill=policy.upper(), spillFraction=0.5, memoryBudget="1m")
    settings = spill_settings(pieces_of(join).build()[2])
    assert (settings.policy, settings.fraction) == (POLICIES[policy], 0.5)
    pair.explain()
    assert "a.k = b.k" in capsys.readouterr().out


def test_spilling_can_be_turned_off(pair):
    for off in ("off", "none", False):
        assert pieces_of(pair.option("spill", off)).build()[2].spill is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spill": "globaloutput"}, "unknown spill policy 'globaloutput'. did you mean 'global-output'?"),
        ({"spill": "xyz"}, "unknown spill policy 'xyz'. known policies: bottom-up, "),
        ({"spillFraction": 0}, "spillFraction must be a number more than 0 and at most 1, not '0'. such as 0.3"),
        ({"spillFraction": 2}, "spillFraction must be a number more than 0 and at most 1, not '2'"),
        ({"spillFraction": "abc"}, "spillFraction must be a number more than 0 and at most 1, not 'abc'"),
        ({"spillFraction": "nan"}, "spillFraction must be a number more than 0 and at most 1, not 'nan'"),
        ({"spillUpkeep": "foo"}, "'foo'"),
        ({"confidence": 0.95, "spill": "random"}, "options confidence and spill exclude each other"),
    ],
)
def test_an_option_of_spilling_that_cannot_be_used(pair, tmp_path, options, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        start(pair.options(**options), tmp_path / "out", tmp_path / "ck")
    assert not (tmp_path / "ck").exists()
