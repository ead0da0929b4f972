"""Scenarios acted out on Spark: the driver that really runs, with mishaps and adaptations as the schedule has them.

The driver of these tests is `EpochDriver` itself, told what befalls it by a `Script` that outlives it:

| in the schedule   | on Spark                                                                               |
|-------------------|----------------------------------------------------------------------------------------|
| crash, closing,   | the driver raises before a command of the protocol, the query fails, and is started    |
| step N, lost,     | again                                                                                  |
| restart           |                                                                                        |
| after, during     | the job of the epoch runs once in vain                                                 |
| slots, budget     | the files of the batches before are processed, and another query is started            |
| wiped, spoiled    | the memory tier of the run is removed, or its copies replaced, before the batch        |
| spill             | the orders of the epoch of the batch                                                   |
| clean             | a clean-up right after the batch, of so many epochs                                    |
| move              | the moves of the epoch of the batch                                                    |
| migrate, abort,   | right after that                                                                       |
| ask               |                                                                                        |
| now_ms            | the clock that the driver tells manifests by                                           |

What a finite stream owes at its end is cleaned up by the driver as always, but only after the last batch.
"""

import shutil
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import tests.predicates
from tests.asking import asked, moving, spilling, target
from tests.crashing import EpochSink
from tests.predicates import FUNCTIONS
from tests.scenarios import Epoch, Scenario
from tests.spark.helpers import read_stream, write_batches
from tests.spoiling import spoil_copies
from watersmeet import StreamJoin
from watersmeet.adaptation.coordinator import STREAM_HAS_ENDED
from watersmeet.adaptation.migration import strategy_named
from watersmeet.epoch import protocol
from watersmeet.epoch.after import Clock
from watersmeet.epoch.kinds import Batch
from watersmeet.runtime.spark import driver, writer
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.units import format_duration

# Workers find the package, but not the tests.
cloudpickle.register_pickle_by_value(tests.predicates)

SLICE_BYTES = 1000
SPENT = ("after", "during")
"""Mishaps that the driver survives."""
SILENT = "silent"
"""On Spark, nobody tells the driver that sources are silent."""


class Died(Exception):
    pass


@dataclass
class Script:
    """What is still to happen in a scenario; it goes on from driver to driver."""

    scenario: Scenario
    number: int = 0
    """The batch that is under way."""
    failures: deque[str] = field(default_factory=deque)
    commands: int = 0
    """How many the driver has come to since it was started, or since the batch before was done."""
    is_acknowledged: bool = False
    is_lost: bool = False
    epochs_left: int | None = None
    has_died: bool = False
    leaves_files: bool = False
    """Whether attempts in vain have left files that only the next driver sweeps."""

    def __post_init__(self) -> None:
        self.failures.extend(failure for failure in self.epoch.failures if failure != SILENT)
        self.is_lost = self.epoch.lost

    @property
    def is_over(self) -> bool:
        return self.number == len(self.scenario.batches)

    @property
    def epoch(self) -> Epoch:
        return Epoch() if self.is_over else self.scenario.epochs[self.number]

    def restart(self) -> None:
        self.has_died, self.commands, self.is_acknowledged, self.epochs_left = False, 0, False, None

    def attempts_in_vain(self) -> int:
        """How many there are before the next attempt at the batch."""
        count = 0
        while self.failures and self.failures[0] in SPENT:
            self.failures.popleft()
            self.leaves_files = True
            count += 1
        return count

    def before(self, command: protocol.Command) -> None:
        """The driver comes to a command, and may die now."""
        self.commands += 1
        kind, _, detail = next((f for f in self.failures if f not in SPENT), "").partition(" ")
        is_commit = isinstance(command, protocol.Commit)
        dies = {
            "": False,
            "crash": is_commit,
            "closing": is_commit and self.is_acknowledged,
            "restart": self.commands == 1,
            "step": kind == "step" and self.commands == int(detail),
            "sink": isinstance(command, protocol.Acknowledge if detail == "after" else protocol.Send),
        }[kind]
        if dies:
            self.leaves_files = True
            while self.failures.popleft() in SPENT:
                pass
        elif self.epochs_left is not None and is_commit and self.is_lost:
            dies, self.is_lost = True, False
        self.is_acknowledged |= isinstance(command, protocol.Acknowledge)
        if dies:
            self.has_died = True
            raise Died

    def batch_done(self) -> None:
        """Mishaps that have not come to pass by now will not."""
        self.failures.clear()

    def next_batch(self) -> None:
        self.number += 1
        self.restart()
        self.__post_init__()


class ActingDriver(EpochDriver):
    """The driver, with a script."""

    script: ClassVar[Script]
    has_batch = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._drive.play = self._act  # type: ignore[method-assign]

    def recover(self) -> None:
        """Before a batch or a clean-up only. If a driver died in the handle's own thread, which recovers at the start,
        Spark would be stopped while it plans a batch, and the next one could have two files of a stream."""
        if self.has_batch or self._is_cleaning:
            super().recover()

    def _act(self, event: protocol.Event) -> None:
        for command in self._drive.steps(event):
            self.script.before(command)

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        script = self.script
        if script.epoch.wiped and self._outside.folders.memory is not None:
            shutil.rmtree(self._outside.folders.memory, ignore_errors=True)
        if script.epoch.spoiled and self._outside.folders.memory is not None:
            spoil_copies(self._outside.folders.memory)
        self.has_batch = True
        super().run_batch(batch, batch_id)
        self.has_batch = False
        script.batch_done()
        if script.epoch.clean:
            script.epochs_left = script.epoch.clean
            self.clean_up("scheduled")
            script.epochs_left = None
        if script.epoch.migrate:
            plan, strategy = target(script.scenario, script.epoch.migrate, script.scenario.setting)
            self.adapt(protocol.Migrate(plan, strategy_named(strategy), "scheduled"))
        if script.epoch.abort:
            self.adapt(protocol.Abort("scheduled"))
        setting = replace(script.scenario.setting, slots=self.coordinator.slots)
        for goal in asked(script.scenario, script.epoch.ask, setting):
            self.adapt(goal)
        script.next_batch()

    def _decide(self, command: protocol.Decide) -> protocol.Event:
        script = self.script
        last = self._before(command.last)
        if command.goal == protocol.CleanUp(STREAM_HAS_ENDED) and not script.is_over:
            return protocol.Decided(None)
        if isinstance(command.goal, protocol.CleanUp) and script.epochs_left is not None:
            if not script.epochs_left or command.last is None:
                return protocol.Decided(None)
            script.epochs_left -= 1
            kept = range(self.coordinator.slots) if script.epoch.keep else ()
            return protocol.Decided(
                self.coordinator.next_epoch(last, command.goal, bytes_at_once=SLICE_BYTES, kept_slots=kept)
            )
        decided = super()._decide(command)
        assert isinstance(decided, protocol.Decided)
        if isinstance(decided.epoch, Batch) and (script.epoch.spill or script.epoch.move):
            before = self._before(command.last)
            orders = spilling(self.plan, before.placement, script.epoch.spill)
            moves = moving(self.plan, before, script.epoch.move)
            return protocol.Decided(replace(decided.epoch, orders=orders, moves=moves))
        return decided

    def _run(self, command: protocol.Run) -> protocol.Event:
        if isinstance(command.epoch, Batch):
            for _ in range(self.script.attempts_in_vain()):
                super()._run(command)
        return super()._run(command)


@dataclass(frozen=True)
class Acted:
    """What a scenario has come to."""

    checkpoint: Checkpoint
    sink: EpochSink
    out: Path
    leaves_files: bool

    def check_files(self) -> None:
        """After an orderly end the checkpoint holds what its last manifest names, and no more."""
        last = self.checkpoint.latest()
        assert last is not None
        files, live = {path.name for path in self.checkpoint.segments.glob("*")}, set(last.segments)
        assert live <= files, f"segments {live - files} are named and gone"
        assert self.leaves_files or files == live, f"segments {files - live} are left over"
        assert {path.name for path in self.checkpoint.manifests.iterdir()} == {f"{last.epoch:012d}.json"}
        named = {file.name for file in last.outbox.files} if last.outbox.place == "checkpoint" else set()
        waiting = {path.name for path in self.checkpoint.outbox.glob("*")}
        assert named <= waiting, f"results {named - waiting} are named and gone"
        assert self.leaves_files or waiting == named, f"results {waiting - named} are left over"
        assert not list(self.checkpoint.tasks.glob("*"))


def act(spark: SparkSession, folder: Path, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> Acted:
    """Act the scenario out: one file per stream and batch, and a new query wherever slots or budget change, or the
    driver dies. Rows of a join go to Parquet files; those of aggregates to a function."""
    script = Script(scenario)
    monkeypatch.setattr(ActingDriver, "script", script, raising=False)
    monkeypatch.setattr(writer, "EpochDriver", ActingDriver)
    monkeypatch.setattr(driver, "Clock", lambda _now, idle_ms, _start: _clock(script, idle_ms))
    setting, sink, checkpoint, queries = scenario.setting, EpochSink(), Checkpoint(folder / "ck"), 0
    starts = [i for i, epoch in enumerate(scenario.epochs) if i == 0 or epoch.slots or epoch.budget]
    for first, end in zip(starts, [*starts[1:], len(scenario.batches)], strict=True):
        epoch = scenario.epochs[first]
        setting = replace(setting, slots=epoch.slots or setting.slots, budget=epoch.budget or setting.budget)
        for number in range(first, end):
            batch = scenario.batches[number]
            whole = {s.name: batch.get(s.name, s.schema.empty_table()) for s in scenario.streams}
            write_batches(folder, [whole], start=number)
        join = join_of_scenario(spark, folder, replace(scenario, setting=setting))
        while True:
            queries += 1
            script.restart()
            script.leaves_files &= checkpoint.latest() is None  # then nobody sweeps
            _start(join, folder, scenario, sink, script)
            if not script.has_died:
                break
    assert script.is_over
    crashes = sum(failure == "crash" for epoch in scenario.epochs for failure in epoch.failures)
    assert queries >= len(starts) + crashes, "the driver was not killed as the schedule says"
    return Acted(checkpoint, sink, folder / "out", script.leaves_files)


def _clock(script: Script, idle_ms: int | None) -> Clock:
    scenario = script.scenario
    number = min(script.number, len(scenario.epochs) - 1)
    return Clock(scenario.epochs[number].now_ms, idle_ms, scenario.starts_ms[number])


def _start(join: StreamJoin, folder: Path, scenario: Scenario, sink: EpochSink, script: Script) -> None:
    """Run until all files are processed, or the driver dies."""
    writer = join.writeStream.option("checkpointLocation", str(folder / "ck")).trigger(availableNow=True)
    if scenario.mode is None:
        writer = writer.format("parquet").option("path", str(folder / "out"))
    else:
        writer = writer.outputMode(scenario.mode).foreachBatch(lambda rows, epoch: sink(epoch, rows.toArrow()))
    query = writer.start()
    try:
        query.awaitTermination()
    except Exception:
        if not script.has_died:
            raise


def join_of_scenario(spark: SparkSession, folder: Path, scenario: Scenario) -> StreamJoin:
    join, setting = StreamJoin(spark), scenario.setting
    for stream in scenario.streams:
        join = join.stream(
            stream.name,
            read_stream(spark, folder / stream.name, stream.schema),
            eventTime=stream.event_time,
            delay=format_duration(stream.delay_us),
            window=scenario.windows.get(stream.name),
        )
    for function in FUNCTIONS.values():
        if any(f"{function.name}(" in condition for condition in scenario.where):
            join = join.register(function.name, function.function, vectorized=function.vectorized)
    for condition in scenario.where:
        join = join.where(condition)
    if scenario.within is not None:
        join = join.within(scenario.within)
    join = join.options(
        slots=min(setting.slots, setting.partitions), partitions=setting.partitions, spill=setting.spill or "off"
    )
    join = join.option("spillUpkeep", setting.upkeep).option("relocation", setting.relocation or "off")
    if setting.relocation is not None:
        join = join.option("relocationThreshold", 0.9).option("relocationInterval", "0 seconds")
    if scenario.trees:
        join = join.option("plan", " | ".join(scenario.trees))
    if setting.budget is not None:
        join = join.option("memoryBudget", setting.budget)
    if setting.idle_timeout_ms is not None:
        join = join.option("idleTimeout", f"{setting.idle_timeout_ms} milliseconds")
    if scenario.mode is None:
        return join.select(*scenario.select)
    keys = [text for text in scenario.group_by if not text.startswith("window(")]
    windows = ["window"] if len(keys) < len(scenario.group_by) else []
    shown = [f"{key} AS g{i}" for i, key in enumerate(keys)]
    return join.groupBy(*scenario.group_by).select(*shown, *scenario.select, *windows)


def results(spark: SparkSession, acted: Acted) -> pa.Table:
    """All rows that a reader of the Parquet folder sees."""
    return spark.read.parquet(str(acted.out)).toArrow()
