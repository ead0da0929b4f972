"""A young query may get another plan, by what its first micro-batches show together; its results are the same."""

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as F

from tests.oracle import canonical
from tests.spark.helpers import output, read_stream, run, start, until, write_batches
from tests.spark.test_planning import SCHEMA, minutes
from watersmeet import StreamJoin
from watersmeet.adaptation import trial as rule
from watersmeet.errors import CheckpointError
from watersmeet.runtime.spark import trial
from watersmeet.state.checkpoint import Checkpoint

ROWS = {"a": 2400, "b": 300, "c": 15}
A_FIRST, C_FIRST = "((a b) c)", "(a (b c))"
ODD = {"a": 10, "b": 300, "c": 900}
"""Rows of a first minute that is not like the others."""
BATCHES = [*minutes(1, ODD), *minutes(2, ROWS, start=1)]


def linked(spark, base, **options):
    join = StreamJoin(spark)
    for name in ROWS:
        join.stream(name, read_stream(spark, base / name, SCHEMA), eventTime="ts", delay="1 second")
    return join.where("a.x = b.x AND b.y = c.y").within("30 seconds").options(learningBatches=2, slots=2, **options)


def chain(spark, base, **options):
    return linked(spark, base, **options).select(*(f"{name}.v AS {name}v" for name in ROWS))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    write_batches(folder, BATCHES)
    return folder


@pytest.fixture(scope="module")
def right(spark, base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    run(chain(spark, base, plan=A_FIRST), folder / "out", folder / "ck")
    found = output(spark, folder / "out")
    assert found.total() > 100
    return found


def plans(query):
    return [(event.epoch, event.details["plan"]) for epoch in query.epochs for event in epoch.events]


def files(checkpoint):
    folder = checkpoint / "watersmeet" / "trial"
    return sorted(path.suffix for path in folder.iterdir()) if folder.exists() else []


def test_the_first_micro_batches_together_decide_also_over_a_restart(spark, right, tmp_path, capsys):
    base = tmp_path / "in"
    write_batches(base, BATCHES[:1])
    query = run(chain(spark, base), tmp_path / "out", tmp_path / "ck")
    assert plans(query) == [(0, A_FIRST)]
    assert files(tmp_path / "ck") == [".arrow"]
    write_batches(base, BATCHES[1:], start=1)
    query = run(chain(spark, base), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert plans(query) == [(1, C_FIRST)]
    told = query.recentProgress[0]["adaptations"][0]
    assert (told["previousPlan"], told["rowsJoinedAgain"]) == (A_FIRST, sum(ODD.values()))
    assert told["reason"].endswith(", by the first 2 micro-batches")
    # A restart goes on with it.
    run(chain(spark, base), tmp_path / "out", tmp_path / "ck").explain()
    assert f"== Plan {C_FIRST} ==" in capsys.readouterr().out
    assert output(spark, tmp_path / "out") == right
    (kept,) = (tmp_path / "ck" / "watersmeet" / "trial").iterdir()  # rows, and the state it began with, are gone
    assert json.loads(kept.read_text())["fingerprint"]["plan"] == C_FIRST
    kept.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        run(chain(spark, base), tmp_path / "out", tmp_path / "ck")


def test_a_restart_may_be_in_another_time_zone(spark, right, tmp_path):
    base, zone = tmp_path / "in", spark.conf.get("spark.sql.session.timeZone")
    write_batches(base, BATCHES[:1])
    run(chain(spark, base), tmp_path / "out", tmp_path / "ck")
    write_batches(base, BATCHES[1:], start=1)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        query = run(chain(spark, base), tmp_path / "out", tmp_path / "ck")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert plans(query) == [(1, C_FIRST)]
    assert output(spark, tmp_path / "out") == right


def test_probe_orders_of_a_node_over_several_keys_are_a_plan_of_their_own(spark, base, right, tmp_path):
    query = run(chain(spark, base, plan="mjoin"), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert plans(query) == [(0, "(a b c)"), (1, "(a b c)")]
    told = query.recentProgress[1]["adaptations"][0]
    assert told["rowsJoinedAgain"] == sum(ODD.values())
    assert told["hops"] != told["previousHops"]
    run(chain(spark, base), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right


def test_the_first_micro_batch_alone_may_be_asked_for(spark, base, right, tmp_path):
    query = run(chain(spark, base).option("learningBatches", 1), tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == right
    assert plans(query) == [(0, A_FIRST)]
    assert files(tmp_path / "ck") == []


def test_a_large_micro_batch_ends_the_trial_and_a_plan_that_is_still_the_best_stays(spark, tmp_path, monkeypatch):
    for module in (trial, rule):
        monkeypatch.setattr(module, "ROWS_ENOUGH", 1500)
    half = {name: rows // 2 for name, rows in ROWS.items()}
    write_batches(tmp_path, [*minutes(1, half), *minutes(1, ROWS, start=1)])
    join = chain(spark, tmp_path).option("learningBatches", 9)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert plans(query) == [(0, C_FIRST)]
    assert ".arrow" not in files(tmp_path / "ck")


def test_small_micro_batches_are_put_together(spark, tmp_path):
    """Two have 900 rows, which says nothing; three have enough."""
    few = {name: rows // 6 for name, rows in ROWS.items()}
    write_batches(tmp_path, minutes(4, few))
    query = run(chain(spark, tmp_path), tmp_path / "out", tmp_path / "ck")
    assert [epoch for epoch, _ in plans(query)] == [0, 2]
    run(chain(spark, tmp_path, plan=A_FIRST), tmp_path / "out1", tmp_path / "ck1")
    assert output(spark, tmp_path / "out") == output(spark, tmp_path / "out1")


def test_rows_that_filters_drop_do_not_count(spark, tmp_path):
    """A minute has 1,357 rows, of which some 450 are kept: it takes three to say something."""
    write_batches(tmp_path, minutes(4, {name: rows // 2 for name, rows in ROWS.items()}))
    join = chain(spark, tmp_path).where("a.v < 0.3 AND b.v < 0.5")
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert [epoch for epoch, _ in plans(query)] == [0, 2]
    assert files(tmp_path / "ck") == [".json"]


def test_a_spill_ends_the_trial_and_leaves_no_file(spark, base, right, tmp_path):
    join = chain(spark, base, memoryBudget="8k").option("learningBatches", 9)
    query = run(join, tmp_path / "out", tmp_path / "ck")
    assert [event.kind for epoch in query.epochs for event in epoch.events][:2] == ["plan", "spill"]
    assert output(spark, tmp_path / "out") == right
    assert files(tmp_path / "ck") == []


class Broken(Exception):
    pass


def with_chance(spark, base):
    """A join whose b has a value that is drawn anew whenever it is read."""
    draw = F.udf(lambda _: random.getrandbits(60), "bigint").asNondeterministic()
    join = StreamJoin(spark)
    for name in ROWS:
        df = read_stream(spark, base / name, SCHEMA)
        df = df.withColumn("drawn", draw("v")) if name == "b" else df
        join.stream(name, df, eventTime="ts", delay="1 second")
    join.where("a.x = b.x AND b.y = c.y").within("2 minutes").select("b.v AS v", "b.drawn AS drawn")
    return join.options(learningBatches=2, slots=2)


def values_by_row(pairs):
    return Counter(v for v, _ in set(pairs))


def test_a_source_that_is_read_again_need_not_give_the_same(spark, base, tmp_path):
    """Rows that were joined are those that are joined again."""
    query = run(with_chance(spark, base), tmp_path / "out", tmp_path / "ck")
    assert [epoch for epoch, _ in plans(query)] == [0, 1]
    assert query.recentProgress[0]["numInputRows"] == sum(ODD.values())
    found = values_by_row(output(spark, tmp_path / "out"))
    assert len(found) > 50
    assert set(found.values()) == {1}


def test_results_that_are_sent_again_are_of_the_rows_that_were_joined(spark, base, tmp_path):
    sent: dict[int, Counter] = {}
    broken = []

    def send(results, epoch):
        if not broken:
            broken.append(epoch)
            raise Broken
        sent[epoch] = canonical(results.toArrow())

    writer = with_chance(spark, base).writeStream.foreachBatch(send).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "ck"))
    with pytest.raises(Exception, match="Broken"):
        writer.start().awaitTermination()
    writer.start().awaitTermination()
    assert broken == [0]
    found = values_by_row(sum(sent.values(), Counter()))
    assert values_by_row(sent[0]).keys() & values_by_row(sent[1]).keys()  # rows of the first batch count in the second
    assert set(found.values()) == {1}


def test_a_change_of_plan_that_fails_is_made_again(spark, base, right, tmp_path, monkeypatch):
    sent: dict[int, Counter] = {}
    broken = []
    replayed = trial.replayed

    def once(where):
        if where not in broken:
            broken.append(where)
            raise Broken

    def send(results, epoch):
        if epoch == 1:
            once("before it reaches the sink")
        found = canonical(results.toArrow())
        assert sent.setdefault(epoch, found) == found

    def replayed_in_vain(*given):
        found = replayed(*given)
        once("after the change")
        return found

    monkeypatch.setattr(trial, "replayed", replayed_in_vain)
    writer = chain(spark, base).writeStream.foreachBatch(send).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "ck"))
    for epoch in (0, 1):
        with pytest.raises(Exception, match="Broken"):
            writer.start().awaitTermination()
        last = Checkpoint(tmp_path / "ck").latest()
        assert last.epoch == epoch
        assert (last.base is not None) == (epoch == 1)
    writer.start().awaitTermination()
    assert broken == ["after the change", "before it reaches the sink"]
    assert sum(sent.values(), Counter()) == right
    assert files(tmp_path / "ck") == [".json"]
    assert Checkpoint(tmp_path / "ck").remembered_plan()[0] == C_FIRST


def test_a_clean_up_that_waited_for_a_change_of_plan_in_vain_is_refused(spark, base, tmp_path, monkeypatch):
    """The plan is one that the state is not made for."""
    handles, asked = [], []

    def fail(*_):
        until(lambda: handles, what="the handle")
        asked.append(pool.submit(handles[0].cleanUp))
        until(asked[0].running, what="the clean-up")
        raise Broken

    monkeypatch.setattr(trial, "replayed", fail)
    with ThreadPoolExecutor(1) as pool:
        handles.append(start(chain(spark, base), tmp_path / "out", tmp_path / "ck"))
        with pytest.raises(Exception, match="Broken"):
            handles[0].awaitTermination()
        assert "the query ended" in str(asked[0].exception())


def test_windows_of_results_are_as_if_the_plan_had_always_been_this(spark, base, tmp_path):
    def grouped(**options):
        join = linked(spark, base, **options).where("a.v >= 0.1").where("b.v < 0.95")
        return join.groupBy("window(result_time, '20 seconds')").select("count(*) AS n", "sum(a.v) AS s")

    def shown(join, checkpoint):
        found = []

        def send(results, epoch):
            found.append(Counter((row.n, round(row.s, 6)) for row in results.collect()))

        writer = join.writeStream.foreachBatch(send).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        return found, query

    expected, _ = shown(grouped(plan=A_FIRST), tmp_path / "asked")
    found, query = shown(grouped(), tmp_path / "ck")
    assert found == expected
    assert sum(map(bool, found)) > 1
    assert plans(query) == [(0, A_FIRST), (2, C_FIRST)]  # epoch 1 has closed windows, and so it does again
