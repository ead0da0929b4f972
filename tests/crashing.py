"""The third interpreter of the commit protocol: it crashes between any two commands, has sinks that fail before, during
and after a write, and lets a second driver take over while the first is paused.

Mishaps of a batch, in the order they befall it (`failures` in a scenario):

    after, during      an attempt at the epoch is lost, complete or after its first chunk; the driver lives
    crash              the driver dies before it commits
    closing            the driver dies after the batch, before windows of an aggregation are closed
    step N             the driver dies before the N-th command from here on
    sink WHEN          the sink fails `before`, `during` or `after` the next write, and with it the driver
    rival N            before the N-th command the driver is paused; another takes over and runs to the end; then the
                       first one goes on, and must do no harm
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.epoch import protocol
from watersmeet.epoch.after import Clock
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.inprocess import InProcessQuery, LostAttempt


class SinkFailure(Exception):
    pass


@dataclass
class EpochSink:
    """A sink that knows epochs, as Spark's file log does: being told one twice changes nothing."""

    received: dict[int, pa.Table] = field(default_factory=dict)
    torn: set[int] = field(default_factory=set)
    """Epochs of which a part was written: readers do not see them."""
    fails: str | None = None
    taken: int = 0

    def __call__(self, epoch: int, results: pa.Table) -> None:
        fails, self.fails = self.fails, None
        if fails == "before":
            raise SinkFailure
        if fails == "during":
            self.torn.add(epoch)
            raise SinkFailure
        if epoch in self.received:
            same = _sorted(self.received[epoch]) == _sorted(results)
            assert same, f"epoch {epoch} was sent again with other results"
        self.torn.discard(epoch)
        self.received.setdefault(epoch, results)
        if fails == "after":
            raise SinkFailure

    def new(self) -> pa.Table | None:
        """The results of epochs that have come since the last time; None if none has."""
        epochs = sorted(epoch for epoch in self.received if epoch >= self.taken)
        self.taken = max([self.taken, *(epoch + 1 for epoch in epochs)])
        return pa.concat_tables(self.received[epoch] for epoch in epochs) if epochs else None


def _sorted(results: pa.Table) -> list[str]:
    return sorted(map(repr, results.to_pylist()))


class Player:
    """A query that is driven through mishaps; `start` makes a new driver on the same folder."""

    def __init__(self, start: Callable[[EpochSink], InProcessQuery]) -> None:
        self.sink = EpochSink()
        self._start = start
        self.engine = start(self.sink)
        self.has_lost_attempts = False
        """Whether files may be left over that only the next driver sweeps."""

    def restart(self, start: Callable[[EpochSink], InProcessQuery] | None = None) -> None:
        """The driver is gone, wherever it was; a new one is made, perhaps with another setting."""
        self._start = start or self._start
        self.engine = self._start(self.sink)
        self.has_lost_attempts = self.engine.checkpoint.latest() is None  # then nobody sweeps

    def join(
        self,
        number: int,
        batch: Mapping[str, pa.Table],
        clock: Clock,
        failures: Iterable[str],
        prepare: Callable[[InProcessQuery], None],
    ) -> None:
        """A batch goes through its mishaps, and at last into the state; `prepare` gives orders to every new driver."""
        prepare(self.engine)
        for failure in failures:
            kind, _, detail = failure.partition(" ")
            match kind:
                case "after" | "during":
                    self._lose(kind)
                case "rival":
                    self._with_rival(
                        self.engine.steps(number, batch, clock), int(detail), number, batch, clock, prepare
                    )
                case _:
                    self._die(self.engine.steps(number, batch, clock), kind, detail)
                    self.restart()
                    prepare(self.engine)
        self._to_the_end(self.engine.steps(number, batch, clock))

    def clean_up(self, *, is_lost: bool, **how: Any) -> None:
        """Epochs of a clean-up; if it is lost, the driver dies within it once, before it commits."""
        if is_lost:
            for command in self.engine.cleaning(**how):
                if isinstance(command, protocol.Commit):
                    self.restart()
                    break
        self._to_the_end(self.engine.cleaning(**how))

    def _lose(self, kind: str) -> None:
        engine, cut = self.engine, self.engine.cut
        self.has_lost_attempts = True

        def torn(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
            for chunk in cut(frames):
                yield chunk
                raise LostAttempt

        def spoil() -> None:
            if kind == "during":
                engine.cut = torn

        engine.attempts_lost.append(spoil)

    def _die(self, steps: Iterator[protocol.Command], kind: str, detail: str) -> None:
        """The driver goes on until it dies (or comes to an end before that)."""
        if kind == "sink":
            self.sink.fails = detail
        acknowledged = False
        try:
            for number, command in enumerate(steps, start=1):
                if kind == "crash" and isinstance(command, protocol.Commit):
                    return
                if kind == "step" and number == int(detail):
                    return
                if kind == "closing" and acknowledged and isinstance(command, protocol.Commit):
                    return
                acknowledged |= isinstance(command, protocol.Acknowledge)
        except SinkFailure:
            return
        finally:
            self.sink.fails = None

    def _with_rival(
        self,
        steps: Iterator[protocol.Command],
        at: int,
        number: int,
        batch: Mapping[str, pa.Table],
        clock: Clock,
        prepare: Callable[[InProcessQuery], None],
    ) -> None:
        for count, _ in enumerate(steps, start=1):
            if count == at:
                break
        self.restart()
        prepare(self.engine)
        self._to_the_end(self.engine.steps(number, batch, clock))
        self.has_lost_attempts = True
        try:
            self._to_the_end(steps)
        except (WatersmeetError, FileNotFoundError):
            return  # it has noticed: its epoch exists, or files that it wants are gone

    def _to_the_end(self, steps: Iterator[protocol.Command]) -> None:
        for _ in steps:
            pass
