"""A spilling query on Spark that runs for long: what the checkpoint, the driver and the Python workers hold is flat.

Only in `make soak`: a third of its epochs (WATERSMEET_EPOCHS), with the figures printed.
"""

import os

import pytest

from tests.flatness import Watch
from tests.spark.helpers import join_of, random_batches, write_batches
from tests.spark.processes import children
from watersmeet.runtime.spark.query import epochs_of
from watersmeet.state import event_log
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.measures import SPILLED_BYTES

EPOCHS = int(os.environ.get("WATERSMEET_EPOCHS", "0")) // 3

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


def our_processes() -> list[int]:
    """This one, which is the driver, and the Python workers of Spark."""
    return [os.getpid(), *(pid for pid, command in children(os.getpid()).items() if "pyspark.daemon" in command)]


@pytest.mark.skipif(EPOCHS < 50, reason="only in soak")
def test_a_spilling_query_is_flat_on_spark(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "EPOCHS_KEPT", EPOCHS // 20)
    monkeypatch.setattr(event_log, "EPOCHS_MORE", EPOCHS // 40)
    batches = random_batches(seed=41, streams="abc", batches=EPOCHS, rows=60, keys=40)
    checkpoint, watch = Checkpoint(tmp_path / "ck"), Watch(EPOCHS)
    write_batches(tmp_path, batches[:1])
    join = join_of(spark, tmp_path, within="10 minutes").options(slots=2, memoryBudget="8k")
    writer = join.writeStream.option("path", tmp_path / "out").option("checkpointLocation", tmp_path / "ck")
    query = writer.trigger(processingTime="0 seconds").start()
    for number in range(EPOCHS):
        query.processAllAvailable()
        watch.look(number, checkpoint, our_processes())
        write_batches(tmp_path, batches[number + 1 : number + 2], start=number + 1)
    assert any(epoch.count(SPILLED_BYTES) for epoch in epochs_of(query))
    query.stop()
    watch.check()
