"""Spark's log, written as Spark writes it: offsets before a batch runs, its commit afterwards. There is one source."""

from __future__ import annotations

import json
import uuid

from watersmeet.state.spark_log import SparkLog

BATCHES_KEPT = 100


def plan_batch(log: SparkLog, number: int) -> None:
    """Write the end offsets of a batch, unless they exist: a repeated batch is the same batch."""
    metadata, offsets = log.folder / "metadata", log.folder / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    if not metadata.exists():
        metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))
    path = offsets / str(number)
    if not path.exists():
        path.write_text(f'v1\n{{"batchTimestampMs":{number}}}\n{{"batch":{number}}}')
    (offsets / str(number - BATCHES_KEPT)).unlink(missing_ok=True)


def commit_batch(log: SparkLog, number: int) -> None:
    commits = log.folder / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (commits / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (commits / str(number - BATCHES_KEPT)).unlink(missing_ok=True)
