"""Spark's log of batches, written as Spark writes it: offsets before a batch runs, its commit afterwards. There is one
source."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from typing import Protocol

from watersmeet.state.spark_log import Offsets, SparkLog

BATCHES_KEPT = 100


class BatchLog(Protocol):
    def plan(self, number: int) -> None:
        """Write the end offsets of a batch, unless they exist: a repeated batch is the same batch."""

    def commit(self, number: int) -> None: ...

    def around(self, number: int) -> tuple[Offsets | None, Offsets | None]:
        """The start and end offsets of a batch."""


class LogInFiles:
    """The log in its folder."""

    def __init__(self, log: SparkLog) -> None:
        self.around = log.around
        self._folder, self._offsets, self._commits = log.folder, f"{log.folder}/offsets", f"{log.folder}/commits"

    def plan(self, number: int) -> None:
        metadata = f"{self._folder}/metadata"
        if not os.path.exists(metadata):
            os.makedirs(self._offsets, exist_ok=True)
            _write(metadata, json.dumps({"id": str(uuid.uuid4())}))
        with suppress(FileExistsError):
            text = f'v1\n{{"batchTimestampMs":{number}}}\n{{"batch":{number}}}'
            _write(f"{self._offsets}/{number}", text, os.O_EXCL)
        _remove_old(self._offsets, number)

    def commit(self, number: int) -> None:
        os.makedirs(self._commits, exist_ok=True)
        _write(f"{self._commits}/{number}", 'v1\n{"nextBatchWatermarkMs":0}')
        _remove_old(self._commits, number)


class LogInMemory:
    """A log that is gone with its runner: a benchmark of the engine is none of Spark's log."""

    def __init__(self) -> None:
        self._id = str(uuid.uuid4())

    def plan(self, number: int) -> None: ...

    def commit(self, number: int) -> None: ...

    def around(self, number: int) -> tuple[Offsets | None, Offsets | None]:
        return (Offsets(self._id, str(number - 1)) if number else None), Offsets(self._id, str(number))


def _write(path: str, text: str, flags: int = 0) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, 0o666), "wb", buffering=0) as file:
        file.write(text.encode())


def _remove_old(folder: str, number: int) -> None:
    if number >= BATCHES_KEPT and os.path.exists(old := f"{folder}/{number - BATCHES_KEPT}"):
        os.unlink(old)
