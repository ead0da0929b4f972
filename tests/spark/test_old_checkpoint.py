"""A checkpoint that an earlier version wrote still opens, and what arrives next is joined with the state in it."""

import shutil
from collections import Counter

from tests.oracle import canonical
from tests.spark.helpers import answer, write_batches
from tests.spark.make_old_checkpoint import BASE, BATCHES_BEFORE, KEPT, old_batches, old_join
from watersmeet.state.checkpoint import Checkpoint


def test_a_checkpoint_of_format_1_goes_on(spark, tmp_path):
    shutil.copytree(KEPT / "ck", tmp_path / "ck")
    for log in (tmp_path / "ck" / "spark" / "sources").glob("*/*"):  # Spark's memory of files it has seen
        log.write_text(log.read_text().replace(str(BASE), str(tmp_path)))
    batches = old_batches()
    write_batches(tmp_path, batches)
    join = old_join(spark, tmp_path).option("slots", 3)
    found: dict[int, Counter] = {}
    writer = join.writeStream.foreachBatch(lambda results, epoch: found.update({epoch: canonical(results.toArrow())}))
    query = writer.option("checkpointLocation", tmp_path / "ck").trigger(availableNow=True).start()
    query.awaitTermination()
    right = answer(join, batches)
    assert found == {epoch: right.batches[epoch] for epoch in (3, 4)}
    alone = answer(join, batches[BATCHES_BEFORE:]).results
    assert sum(found.values(), Counter()) != alone, "the state took no part in these results"
    totals = Checkpoint(tmp_path / "ck").latest().totals
    assert totals["results"] == sum(right.results.values())


def test_the_old_checkpoint_has_what_a_checkpoint_has():
    assert (KEPT / "ck" / "watersmeet" / "query.json").is_file()
    last = Checkpoint(KEPT / "ck").latest()
    assert last.epoch == BATCHES_BEFORE - 1
    assert sorted(file.name for file in (KEPT / "ck" / "watersmeet" / "segments").iterdir()) == sorted(last.segments)
