"""The commit protocol, as a function: `advance(state, event) -> (state, commands)`. No IO happens here.

    segments and results durable ─▶ manifest e created exclusively ─▶ the sink gets the results from their files
                    ─▶ e acknowledged ─▶ files that only e-1 needed are removed ─▶ e reported ─▶ next decision

An interpreter carries out commands one by one. It answers each with an event, or with nothing:

| command     | carried out                                                     | answered by               |
|-------------|-----------------------------------------------------------------|---------------------------|
| Decide      | choose the next epoch on the way to a goal                      | Decided                   |
| Run         | run the job of an epoch, until segments and results are durable | JobDone, Failed           |
| Commit      | create the manifest, unless the epoch or a later one exists     | Committed, Fenced         |
| Send        | hand the files of the outbox to the sink, unless it knows them  | Sent, Failed              |
| Acknowledge | record that the sink has them                                   | Acknowledged              |
| Discard     | remove files that only the previous manifest needed             | nothing                   |
| Look        | list the files in the checkpoint                                | Looked                    |
| Sweep       | remove the listed files that the last manifest does not name    | nothing                   |
| Tell        | log events, keep statistics, show progress                      | nothing                   |
| GiveUp      | end the query with this error                                   | nothing                   |

After a crash between any two commands, `Started` alone recovers from the durable files:

| the last manifest | a new driver                                                                              |
|-------------------|-------------------------------------------------------------------------------------------|
| does not exist    | does nothing: two drivers may still race for the first epoch                              |
| not acknowledged  | sends its results from their files, acknowledges; then as below                           |
| acknowledged      | lists the files, commits an empty epoch, which fences a driver that is paused or slow,    |
|                   | and only then sweeps the listed files                                                     |

In every case Spark's log must fit the manifest, and so must every batch that Spark hands over (`epoch/tied.py`).
Otherwise the driver gives up before it changes anything.

So nothing is computed twice, and no source is read twice. A file that a driver may still name is removed only when that
driver can no longer commit. A driver that is overtaken between `Commit` and `Sweep` removes only files that are older
than its own commit; the later driver cannot have written them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias, assert_never

from watersmeet.epoch.goals import AT_REST
from watersmeet.epoch.goals import Abort as Abort
from watersmeet.epoch.goals import Asked as Asked
from watersmeet.epoch.goals import ChangeQuery as ChangeQuery
from watersmeet.epoch.goals import CleanUp as CleanUp
from watersmeet.epoch.goals import Goal as Goal
from watersmeet.epoch.goals import JoinBatch as JoinBatch
from watersmeet.epoch.goals import Migrate as Migrate
from watersmeet.epoch.goals import Relocate as Relocate
from watersmeet.epoch.goals import Rest as Rest
from watersmeet.epoch.goals import SpillShare as SpillShare
from watersmeet.epoch.kinds import Epoch, Takeover
from watersmeet.epoch.tied import batch_difference, log_difference, refused
from watersmeet.errors import FencedError
from watersmeet.state.manifest import Manifest
from watersmeet.state.spark_log import LogEnd, Offsets

# Events


@dataclass(frozen=True, slots=True)
class Started:
    """A driver has opened the checkpoint."""

    last: Manifest | None
    is_acknowledged: bool
    log: LogEnd
    """The end of Spark's log, with the offsets of the last manifest's batch."""


@dataclass(frozen=True, slots=True)
class BatchCame:
    """Spark hands over a micro-batch, perhaps for the second time, with its first and last offsets."""

    number: int
    start: Offsets | None
    end: Offsets | None


@dataclass(frozen=True, slots=True)
class AdaptationAsked:
    goal: Asked


@dataclass(frozen=True, slots=True)
class SourcesSilent:
    """No rows have arrived: there is time for work that needs none."""


@dataclass(frozen=True, slots=True)
class Decided:
    epoch: Epoch | None
    """None: the goal is reached."""


@dataclass(frozen=True, slots=True)
class JobDone:
    """An epoch ran. All files that its manifest names are durable."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Committed: ...


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another driver has committed the epoch and has taken over."""


@dataclass(frozen=True, slots=True)
class Sent: ...


@dataclass(frozen=True, slots=True)
class Acknowledged: ...


@dataclass(frozen=True, slots=True)
class Looked:
    """The files in the checkpoint, as paths relative to it."""

    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class Failed:
    """A command could not be carried out: a job or a sink failed."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Stopped:
    """The query must end before the next step."""


Event: TypeAlias = (
    Started
    | BatchCame
    | AdaptationAsked
    | SourcesSilent
    | Decided
    | JobDone
    | Committed
    | Fenced
    | Sent
    | Acknowledged
    | Looked
    | Failed
    | Stopped
)

# Commands


@dataclass(frozen=True, slots=True)
class Decide:
    last: Manifest | None
    goal: Goal


@dataclass(frozen=True, slots=True)
class Run:
    epoch: Epoch
    before: Manifest | None
    """The state it runs on; None if there is none yet."""


@dataclass(frozen=True, slots=True)
class Commit:
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Send:
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Acknowledge:
    epoch: int


@dataclass(frozen=True, slots=True)
class Discard:
    older: Manifest | None
    newer: Manifest


@dataclass(frozen=True, slots=True)
class Look: ...


@dataclass(frozen=True, slots=True)
class Sweep:
    live: Manifest
    seen: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tell:
    epoch: Epoch
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class GiveUp:
    error: Exception


Command: TypeAlias = Decide | Run | Commit | Send | Acknowledge | Discard | Look | Sweep | Tell | GiveUp

# State


class Phase(Enum):
    """The phase of a driver, named after the thing it waits for."""

    NEW = "to be started"
    LOOKING = "a list of files"
    IDLE = "something to do"
    DECIDING = "a decision"
    RUNNING = "the end of a job"
    COMMITTING = "a manifest"
    SENDING = "the sink"
    ACKNOWLEDGING = "an acknowledgement"
    CLOSED = "nothing more"


@dataclass(frozen=True, slots=True)
class State:
    """The position of a driver in the protocol."""

    phase: Phase = Phase.NEW
    last: Manifest | None = None
    """The last committed manifest."""
    before: Manifest | None = None
    """The previous manifest, until the files that only it needs are removed."""
    running: Epoch | None = None
    """The current epoch; None while the results of another driver's epoch are sent."""
    made: Manifest | None = None
    """The manifest of the current epoch, until it is committed."""
    goal: Goal = AT_REST
    seen: frozenset[str] = frozenset()
    """Files in the checkpoint before the takeover."""

    @property
    def is_closed(self) -> bool:
        return self.phase is Phase.CLOSED


Advanced: TypeAlias = tuple[State, tuple[Command, ...]]


def advance(state: State, event: Event) -> Advanced:
    """The next state and commands after an event. A closed driver ignores all events."""
    if state.is_closed:
        return state, ()
    match event:
        case Stopped():
            return _closed(state), ()
        case Failed(error):
            return _closed(state), (GiveUp(error),)
        case Fenced():
            return _closed(state), (GiveUp(_fenced(state)),)
        case Started():
            return _started(_expecting(state, Phase.NEW), event)
        case BatchCame():
            return _batch_came(_expecting(state, Phase.IDLE), event)
        case AdaptationAsked(goal):
            return _decide(_expecting(state, Phase.IDLE), goal)
        case SourcesSilent():
            return _decide(_expecting(state, Phase.IDLE), Rest(is_silent=True))
        case Looked(files):
            return _run(replace(_expecting(state, Phase.LOOKING), seen=files), Takeover())
        case Decided(epoch):
            return _decided(_expecting(state, Phase.DECIDING), epoch)
        case JobDone(manifest):
            state = _expecting(state, Phase.RUNNING)
            return replace(state, phase=Phase.COMMITTING, made=manifest), (Commit(manifest),)
        case Committed():
            return _committed(_expecting(state, Phase.COMMITTING))
        case Sent():
            state = _expecting(state, Phase.SENDING)
            assert state.last is not None
            return replace(state, phase=Phase.ACKNOWLEDGING), (Acknowledge(state.last.epoch),)
        case Acknowledged():
            return _acknowledged(_expecting(state, Phase.ACKNOWLEDGING))
        case _:
            assert_never(event)


def _started(state: State, start: Started) -> Advanced:
    last = start.last
    if (difference := log_difference(last, start.log)) is not None:
        return _closed(state), (GiveUp(refused(difference)),)
    state = replace(state, last=last)
    if last is None:
        return replace(state, phase=Phase.IDLE), ()
    if not start.is_acknowledged:
        return replace(state, phase=Phase.SENDING), (Send(last),)
    return _look(state)


def _look(state: State) -> Advanced:
    return replace(state, phase=Phase.LOOKING), (Look(),)


def _batch_came(state: State, batch: BatchCame) -> Advanced:
    last = state.last
    if (difference := batch_difference(last, batch.number, batch.start, batch.end)) is not None:
        return _closed(state), (GiveUp(refused(difference)),)
    if last is not None and batch.number == last.batch:
        return state, ()  # the batch is in the state and in the sink, but Spark has not committed it yet
    return _decide(state, JoinBatch(batch.number, batch.end))


def _decide(state: State, goal: Goal) -> Advanced:
    return replace(state, phase=Phase.DECIDING, goal=goal), (Decide(state.last, goal),)


def _decided(state: State, epoch: Epoch | None) -> Advanced:
    if epoch is None:
        return replace(state, phase=Phase.IDLE, goal=Rest()), ()
    return _run(state, epoch)


def _run(state: State, epoch: Epoch) -> Advanced:
    return replace(state, phase=Phase.RUNNING, running=epoch), (Run(epoch, state.last),)


def _committed(state: State) -> Advanced:
    assert state.made is not None
    committed = replace(state, phase=Phase.SENDING, last=state.made, before=state.last, made=None)
    return committed, (Send(state.made),)


def _acknowledged(state: State) -> Advanced:
    last, ran = state.last, state.running
    assert last is not None
    if ran is None:
        return _look(state)
    tidy = Sweep(last, state.seen) if isinstance(ran, Takeover) else Discard(state.before, last)
    goal = Rest() if isinstance(state.goal, JoinBatch) else state.goal
    deciding, commands = _decide(replace(state, before=None, running=None, seen=frozenset()), goal)
    return deciding, (tidy, Tell(ran, last), *commands)


def _fenced(state: State) -> FencedError:
    epoch = "the epoch" if state.made is None else f"epoch {state.made.epoch}"
    return FencedError(
        f"{epoch} was committed by another driver", hint="two drivers share this checkpoint; this one stops"
    )


def _closed(state: State) -> State:
    return replace(state, phase=Phase.CLOSED)


def _expecting(state: State, phase: Phase) -> State:
    if state.phase is not phase:
        raise AssertionError(f"the driver waits for {state.phase.value}, not for {phase.value}")
    return state
