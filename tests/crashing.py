"""The third interpreter of the commit protocol: it crashes between any two commands, has sinks that fail before, during
and after a write, and lets a second driver take over while the first is paused.

Mishaps of a batch or of a clean-up, in the order they befall it (`failures`, `clean_failures` in a scenario):

    after, during      an attempt at the epoch is lost, complete or after its first chunk; the driver lives
    crash              the driver dies before it commits
    closing            the driver dies after the batch, before windows of an aggregation are closed
    step N             the driver dies before the N-th command from here on
    sink WHEN          the sink fails `before`, `during` or `after` the next write, and with it the driver
    rival N            before the N-th command the driver is paused; another takes over and runs to the end; then the
                       first one goes on, and must do no harm
    duel N             the driver and a second one go on side by side, a command at a time; N is the seed of who is next
    silent             the sources are silent for a while
    again              all goes well, and Spark hands the batch over again
    restart            the driver ends between two batches, and a new one starts
    torn HOW           the batch ends well; then state and Spark's log are torn apart (`tests/tearing.py`), a new driver
                       must refuse them and do nothing, and they are put back
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from tests.tearing import LOG, STATE, TEARS, copied, put_back
from watersmeet.epoch import protocol
from watersmeet.epoch.after import Clock
from watersmeet.errors import CheckpointError, WatersmeetError
from watersmeet.plan.stages import JoinPlan
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.inprocess_attempts import LostAttempt
from watersmeet.state.manifest import ResultFile

Steps = Callable[[InProcessQuery], Iterator[protocol.Command]]
"""What a driver is asked to do."""
COMMANDS_MAX = 4000
"""More than a driver needs for a batch, or for a clean-up of some hundred epochs."""


class SinkFailure(Exception):
    pass


@dataclass
class EpochSink:
    """A sink that knows epochs, as Spark's file log does: being told one twice changes nothing."""

    received: dict[int, pa.Table] = field(default_factory=dict)
    replaces: bool = False
    """Whether an epoch replaces all rows of those before, as in output mode `complete`."""
    torn: set[int] = field(default_factory=set)
    """Epochs of which a part was written: readers do not see them."""
    fails: str | None = None
    taken: int = 0
    folder: Path = Path()
    """Where results lie that tasks have written as part files of the sink."""
    parts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The sink's log: the part files of epochs. They are there for readers, for ever."""

    def add(self, epoch: int, files: Sequence[ResultFile]) -> None:
        self.parts.setdefault(epoch, tuple(file.name for file in files))

    def check_parts(self) -> None:
        gone = [name for names in self.parts.values() for name in names if not (self.folder / name).exists()]
        assert not gone, f"part files {gone} were published and are gone"

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
        else:
            later = [other for other in self.received if other > epoch]
            assert not later, f"epoch {epoch} comes after {later}"
        self.torn.discard(epoch)
        self.received.setdefault(epoch, results)
        if fails == "after":
            raise SinkFailure

    def new(self) -> pa.Table | None:
        """The results of epochs that have come since the last time, as far as they were not replaced; None if none
        has come."""
        epochs = sorted(epoch for epoch in self.received if epoch >= self.taken)
        self.taken = max([self.taken, *(epoch + 1 for epoch in epochs)])
        kept = epochs[-1:] if self.replaces else epochs
        return pa.concat_tables(self.received[epoch] for epoch in kept) if kept else None

    @property
    def rows(self) -> int:
        return sum(results.num_rows for results in self.received.values())


def _sorted(results: pa.Table) -> list[str]:
    """Rows in any one order; times as numbers, since Python has no dates before year 1 or after 9999."""
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in results.columns]
    return sorted(map(repr, zip(*(column.to_pylist() for column in plain), strict=True)))


class Player:
    """A query that is driven through mishaps; `start` makes a new driver on the same folder."""

    def __init__(self, start: Callable[[EpochSink], InProcessQuery], sink: EpochSink) -> None:
        self.sink = sink
        self._start = start
        self.engine = start(self.sink)
        self.has_lost_attempts = self.has_rivals = False
        """Whether files of results, or of any kind, may be left over that only the next driver sweeps."""

    def restart(self, start: Callable[[EpochSink], InProcessQuery] | None = None) -> None:
        """The driver is gone, wherever it was; a new one is made, perhaps with another setting."""
        self._start = start or self._start
        self.engine = self._start(self.sink)
        self.has_lost_attempts = self.has_rivals = self.engine.checkpoint.latest() is None  # then nobody sweeps

    def join(
        self,
        number: int,
        batch: Mapping[str, pa.Table],
        clock: Clock,
        failures: Iterable[str],
        prepare: Callable[[InProcessQuery], None],
    ) -> None:
        """A batch goes through its mishaps, and at last into the state; `prepare` gives orders to every new driver."""
        self._go_through(failures, lambda engine: engine.steps(number, batch, clock), prepare)

    def clean_up(self, failures: Iterable[str] = (), **how: Any) -> None:
        """Epochs of a clean-up, through its mishaps."""
        self._go_through(failures, lambda engine: engine.cleaning(**how), lambda engine: None)

    def migrate(self, failures: Iterable[str], plan: JoinPlan, strategy: str) -> None:
        """The query comes to another plan, through mishaps."""
        self._go_through(failures, lambda engine: engine.migrating(plan, strategy), lambda engine: None)

    def pursue(self, goal: protocol.Asked, failures: Iterable[str] = ()) -> None:
        """The query reaches a goal, through mishaps."""
        self._go_through(failures, lambda engine: engine.pursuing(goal), lambda engine: None)

    def abort(self) -> None:
        """A migration that is under way is given up."""
        self._go_through((), lambda engine: engine.aborting(), lambda engine: None)

    def _go_through(self, failures: Iterable[str], steps: Steps, prepare: Callable[[InProcessQuery], None]) -> None:
        steps = _bounded(steps)
        prepare(self.engine)
        for failure in failures:
            kind, _, detail = failure.partition(" ")
            match kind:
                case "after" | "during":
                    self._lose(kind)
                case "silent":
                    self._to_the_end(self.engine.resting())
                case "again":
                    self._to_the_end(steps(self.engine))
                case "rival":
                    self._with_rival(steps, int(detail), prepare)
                case "torn":
                    self._tear(steps, detail, prepare)
                case "duel":
                    self._duel(steps, Random(int(detail)), prepare)
                case _:
                    self._die(steps(self.engine), kind, detail)
                    self.restart()
                    prepare(self.engine)
        self._to_the_end(steps(self.engine))

    def _lose(self, kind: str) -> None:
        attempts, cut = self.engine.attempts, self.engine.attempts.cut
        self.has_lost_attempts = True

        def torn(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
            for chunk in cut(frames):
                yield chunk
                raise LostAttempt

        def spoil() -> None:
            if kind == "during":
                attempts.cut = torn

        attempts.to_lose.append(spoil)

    def _die(self, steps: Iterator[protocol.Command], kind: str, detail: str) -> None:
        """The driver goes on until it dies (or comes to an end before that)."""
        if kind == "sink":
            self.sink.fails = detail
        acknowledged = False
        if kind == "restart":
            return
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

    def _with_rival(self, steps: Steps, at: int, prepare: Callable[[InProcessQuery], None]) -> None:
        paused = steps(self.engine)
        for count, _ in enumerate(paused, start=1):
            if count == at:
                break
        self.restart()
        prepare(self.engine)
        self._to_the_end(steps(self.engine))
        self.has_lost_attempts = self.has_rivals = True
        _go_on(paused, 1 << 20)

    def _duel(self, steps: Steps, chance: Random, prepare: Callable[[InProcessQuery], None]) -> None:
        """Two drivers, neither of which knows of the other, until both have ended; then a third one starts."""
        rivals = [steps(self.engine)]
        self.restart()
        prepare(self.engine)
        rivals.append(steps(self.engine))
        while rivals:
            who = chance.choice(rivals)
            if not _go_on(who, chance.choice((1, 1, 2, 5))):
                rivals.remove(who)
        self.restart()
        prepare(self.engine)

    def _tear(self, steps: Steps, how: str, prepare: Callable[[InProcessQuery], None]) -> None:
        checkpoint, before = self.engine.checkpoint.location, self.engine.checkpoint.ending()
        with tempfile.TemporaryDirectory() as folder:
            older = copied(checkpoint, Path(folder) / "older")
            self._to_the_end(steps(self.engine))
            sound, sent = copied(checkpoint, Path(folder) / "sound"), dict(self.sink.received)
            after = self.engine.checkpoint.ending()
            assert after is not None
            if before is None or before.batch != after.batch:  # or an older part would not be older
                TEARS[how](checkpoint, older)
                torn = _contents(checkpoint)
                refusal = _refusal(lambda: steps(self._start(self.sink)))
                assert refusal in ("DIFFERENT_BATCHES", "CHECKPOINT_DAMAGED"), f"{how}: refused because {refusal}"
                assert self.sink.received == sent, f"{how}: results were sent"
                assert _contents(checkpoint) == torn, (
                    f"{how}: something was written: {_contents(checkpoint).keys() ^ torn.keys()}"
                )
                put_back(checkpoint, sound)
        self.restart()
        prepare(self.engine)

    def _to_the_end(self, steps: Iterator[protocol.Command]) -> None:
        for _ in steps:
            pass


def _refusal(begin: Callable[[], Iterator[protocol.Command]]) -> str:
    """Why a driver refuses to do anything."""
    try:
        for _ in begin():
            pass
    except CheckpointError as error:
        return error.error_class
    return "it does not"


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for part in (STATE, LOG) for path in (folder / part).rglob("*") if path.is_file()
    }


def _bounded(steps: Steps) -> Steps:
    def some(engine: InProcessQuery) -> Iterator[protocol.Command]:
        for number, command in enumerate(steps(engine)):
            assert number < COMMANDS_MAX, f"the driver does not come to an end: {command}"
            yield command

    return some


def _go_on(steps: Iterator[protocol.Command], commands_max: int) -> bool:
    """A driver that may have been overtaken carries out some commands; whether it goes on after that."""
    try:
        for _ in range(commands_max):
            next(steps)
    except StopIteration:
        return False
    except (WatersmeetError, FileNotFoundError):
        return False  # it has noticed: its epoch exists, or files that it wants are gone
    return True
