"""Join trees over several keys, on Spark: stages, exchanges inside a micro-batch, shapes per slot, restarts."""

import pytest

from tests.spark.helpers import READINGS, expected, output, random_batches, read_stream, run, write_batches
from watersmeet import StreamJoin
from watersmeet.runtime.spark.stream_join import pieces_of

pytestmark = pytest.mark.slow

# Row S5 of the papers in small: three streams on one key, the fourth and fifth on keys of their own.
CHAIN = "a.k = b.k AND b.k = c.k AND c.name = d.name AND d.v = e.v"


def chain(spark, base, streams="abcde", where=CHAIN, **options):
    join = StreamJoin(spark)
    for name in streams:
        join = join.stream(name, read_stream(spark, base / name, READINGS), eventTime="ts", delay="30 seconds")
    join = join.where(where).within("2 minutes").options(**options)
    return join.select(*(f"{name}.{column}" for name in streams for column in ("ts", "v")))


@pytest.mark.parametrize(
    ("plan", "stages"),
    [
        ("auto", 5),
        pytest.param("((a b c) (d e))", 3, marks=pytest.mark.long),
        pytest.param("((((a b) c) d) e)", 3, marks=pytest.mark.long),
    ],
    ids=["fallback", "bushy", "chain"],
)
def test_a_chain_over_three_keys_gives_the_same_results_in_any_shape(spark, tmp_path, plan, stages):
    batches = random_batches(seed=5, streams="abcde", batches=3, rows=6, keys=3, batch_seconds=30)
    write_batches(tmp_path, batches)
    join = chain(spark, tmp_path, plan=plan, slots=2)
    assert len(pieces_of(join).build()[1].stages) == stages
    run(join, tmp_path / "out", tmp_path / "ck")
    right = expected(join, batches)
    assert output(spark, tmp_path / "out") == right
    assert len(right) > 20


def test_a_tree_goes_on_after_a_restart_with_other_slots_and_budget(spark, tmp_path):
    batches = random_batches(seed=6, streams="abcd", batches=4, rows=6, keys=3, batch_seconds=40)
    where = "a.k = b.k AND b.k = c.k AND c.name = d.name AND a.v <= d.v + 100"
    for number, (slots, budget) in enumerate([(2, "1m"), (1, "20k"), (3, "1m"), (2, "10k")]):
        write_batches(tmp_path, [batches[number]], start=number)
        join = chain(spark, tmp_path, "abcd", where, plan="(((a b) c) d)", slots=slots, memoryBudget=budget)
        run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)


def test_slots_may_run_different_shapes_of_one_key(spark, tmp_path):
    batches = random_batches(seed=7, streams="abc", batches=3, rows=30, keys=9, batch_seconds=40)
    write_batches(tmp_path, batches)
    where = "a.k = b.k AND b.k = c.k"
    join = chain(spark, tmp_path, "abc", where, plan="(a b c) | ((a b) c) | (a (b c))", slots=3)
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)


def test_what_no_key_covers_runs_on_one_slot_and_explain_says_so(spark, tmp_path, capsys):
    batches = random_batches(seed=8, streams="ab", batches=2, rows=20, keys=6, batch_seconds=40)
    write_batches(tmp_path, batches)
    join = chain(spark, tmp_path, "ab", "a.v < b.v")
    join.explain()
    assert "stage 0 on no key: one slot" in capsys.readouterr().out
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)


@pytest.mark.parametrize("plan", ["(a b c d e)", pytest.param("(a b (c d) e)", marks=pytest.mark.long)])
def test_a_node_over_several_keys_is_probed_hop_by_hop(spark, tmp_path, capsys, plan):
    batches = random_batches(seed=9, streams="abcde", batches=3, rows=6, keys=3, batch_seconds=30)
    write_batches(tmp_path, batches)
    join = chain(spark, tmp_path, plan=plan, slots=2)
    join.explain()
    shown = capsys.readouterr().out
    assert "hop by hop" in shown
    assert "one slot" not in shown
    run(join, tmp_path / "out", tmp_path / "ck")
    right = expected(join, batches)
    assert output(spark, tmp_path / "out") == right
    assert len(right) > 20


def test_hops_go_on_after_a_restart_and_write_to_any_sink(spark, tmp_path):
    batches = random_batches(seed=10, streams="abc", batches=3, rows=12, keys=4, batch_seconds=40)
    where = "a.k = b.k AND b.name = c.name"
    for number, (slots, budget) in enumerate([(2, "1m"), (1, "20k"), (3, "10k")]):
        write_batches(tmp_path, [batches[number]], start=number)
        join = chain(spark, tmp_path, "abc", where, plan="mjoin", slots=slots, memoryBudget=budget)
        writer = join.writeStream.format("orc").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    right = expected(join, batches)
    assert output(spark, tmp_path / "out", "orc") == right
    assert len(right) > 20


@pytest.mark.parametrize(
    "plan",
    [
        *(
            pytest.param(plan, marks=pytest.mark.long)
            for plan in ("(a b c d e)", "((((a b) c) d) e)", "((a b c) (d e))")
        ),
        "((a b) (c (d e)))",
        pytest.param("mjoin", marks=pytest.mark.long),
        "auto",
    ],
)
def test_a_batch_is_read_once_whatever_the_number_of_stages(spark, tmp_path, plan):
    batches = random_batches(seed=5, streams="abcde", batches=1, rows=8, keys=3, batch_seconds=30)
    write_batches(tmp_path, batches)
    join = chain(spark, tmp_path, plan=plan, slots=2)
    handle = run(join, tmp_path / "out", tmp_path / "ck")
    rows = sum(table.num_rows for table in batches[0].values())
    assert handle._inner.lastProgress["numInputRows"] == rows  # Spark counts every time a row is read
    assert handle.lastProgress["numInputRows"] == rows
