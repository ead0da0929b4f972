"""The commit protocol with lists of events, and in a small world in which everything happens that can.

The enumeration visits 112 342 states in all: two drivers with one batch and up to two restarts, or two batches and one
restart, and results that lie in the checkpoint or in the folder of the sink.
"""

import pytest

from tests import abstract_world
from tests.abstract_world import Broken, Manifest, batch_came, enumerate_worlds, first_world, log_after, offsets_of
from watersmeet.epoch.driving import Drive
from watersmeet.epoch.kinds import Batch, Cleaning, Closing, Epoch, Takeover
from watersmeet.epoch.protocol import (
    Acknowledge,
    Acknowledged,
    AdaptationAsked,
    BatchCame,
    CleanUp,
    Command,
    Commit,
    Committed,
    Decide,
    Decided,
    Discard,
    Event,
    Failed,
    Fenced,
    GiveUp,
    JobDone,
    JoinBatch,
    Look,
    Looked,
    Phase,
    Rest,
    Run,
    Send,
    Sent,
    SourcesSilent,
    Started,
    State,
    Stopped,
    Sweep,
    Tell,
    advance,
)
from watersmeet.errors import CheckpointError, FencedError
from watersmeet.state.spark_log import LogEnd

SEEN = frozenset({"segments/old"})
LAST = Manifest(4, batch=2, offsets=offsets_of(2))
NEXT = Manifest(5, batch=3, offsets=offsets_of(3))
BATCH = Batch(3, offsets=offsets_of(3))
FIRST = Batch(0, offsets=offsets_of(0))
LOG = log_after(LAST)
TAKING_OVER = [Started(LAST, True, LOG), Looked(SEEN), JobDone(NEXT), Committed(), Sent(), Acknowledged()]
RESTING = [Started(None, False, LogEnd())]
JOINING = [*RESTING, batch_came(0), Decided(FIRST), JobDone(NEXT), Committed(), Sent(), Acknowledged()]
PATHS: dict[Phase, list[Event]] = {
    Phase.NEW: [],
    Phase.LOOKING: TAKING_OVER[:1],
    Phase.IDLE: RESTING,
    Phase.DECIDING: JOINING[:2],
    Phase.RUNNING: JOINING[:3],
    Phase.COMMITTING: JOINING[:4],
    Phase.SENDING: JOINING[:5],
    Phase.ACKNOWLEDGING: JOINING[:6],
}
"""How to get to a phase."""
AWAITED: dict[type, Phase] = {
    Started: Phase.NEW,
    Looked: Phase.LOOKING,
    BatchCame: Phase.IDLE,
    SourcesSilent: Phase.IDLE,
    Decided: Phase.DECIDING,
    JobDone: Phase.RUNNING,
    Committed: Phase.COMMITTING,
    Sent: Phase.SENDING,
    Acknowledged: Phase.ACKNOWLEDGING,
}
ORDINARY: list[Event] = [
    Started(LAST, True, LOG),
    Looked(SEEN),
    batch_came(0),
    SourcesSilent(),
    Decided(BATCH),
    Decided(None),
    JobDone(NEXT),
    Committed(),
    Sent(),
    Acknowledged(),
]
ENDINGS: list[Event] = [Stopped(), Failed(OSError("full")), Fenced()]


def play(*events: Event, state: State | None = None) -> tuple[State, list[tuple[Command, ...]]]:
    """The state in the end, and the commands that followed from each event."""
    state, given = state or State(), []
    for event in events:
        state, commands = advance(state, event)
        given.append(commands)
    return state, given


def named(event: object) -> str:
    return type(event).__name__


def test_every_phase_is_reached_by_its_path():
    assert {phase: play(*path)[0].phase for phase, path in PATHS.items()} == {phase: phase for phase in PATHS}
    assert PATHS.keys() == set(Phase) - {Phase.CLOSED}


@pytest.mark.parametrize("event", ORDINARY, ids=named)
@pytest.mark.parametrize("phase", PATHS)
def test_an_event_comes_in_its_phase_and_in_no_other(phase: Phase, event: Event):
    state, _ = play(*PATHS[phase])
    if AWAITED[type(event)] is phase:
        advance(state, event)
    else:
        with pytest.raises(AssertionError, match="the driver waits for"):
            advance(state, event)


@pytest.mark.parametrize("event", ENDINGS, ids=named)
@pytest.mark.parametrize("phase", PATHS)
def test_in_every_phase_there_may_be_an_end_and_nothing_follows(phase: Phase, event: Event):
    state, _ = play(*PATHS[phase])
    closed, commands = advance(state, event)
    assert closed.is_closed
    match event:
        case Stopped():
            assert commands == ()
        case Failed(error):
            assert commands == (GiveUp(error),)
        case _:
            assert [type(command.error) for command in commands] == [FencedError]
    for later in (*ORDINARY, *ENDINGS):
        assert advance(closed, later) == (closed, ())


def test_a_fenced_driver_says_which_epoch_it_lost():
    _, commands = advance(play(*PATHS[Phase.COMMITTING])[0], Fenced())
    assert "epoch 5 was committed by another driver" in str(commands[0].error)


@pytest.mark.parametrize("epoch", [BATCH, Cleaning((), "why"), Closing(7)], ids=named)
def test_the_commands_of_an_epoch_come_in_order(epoch: Epoch):
    clean_up = AdaptationAsked(CleanUp("why"))
    goals = {Batch: (batch_came(3), JoinBatch(3, offsets_of(3))), Cleaning: (clean_up, clean_up.goal)}
    event, goal = goals.get(type(epoch), (SourcesSilent(), Rest(is_silent=True)))
    idle = State(Phase.IDLE, last=LAST)
    state, given = play(event, Decided(epoch), JobDone(NEXT), Committed(), Sent(), Acknowledged(), state=idle)
    then = Rest() if isinstance(goal, JoinBatch) else goal
    assert given == [
        (Decide(LAST, goal),),
        (Run(epoch, LAST),),
        (Commit(NEXT),),
        (Send(NEXT),),
        (Acknowledge(5),),
        (Discard(LAST, NEXT), Tell(epoch, NEXT), Decide(NEXT, then)),
    ]
    assert state == State(Phase.DECIDING, last=NEXT, goal=then)
    assert play(Decided(None), state=state) == (State(Phase.IDLE, last=NEXT), [()])


def test_the_first_epoch_has_nothing_before_it():
    _, given = play(*JOINING)
    assert given[:3] == [(), (Decide(None, JoinBatch(0, offsets_of(0))),), (Run(FIRST, None),)]
    assert given[-1][0] == Discard(None, NEXT)


def test_without_a_manifest_a_new_driver_does_nothing():
    assert play(*RESTING) == (State(Phase.IDLE), [()])


def test_a_takeover_looks_before_it_commits_and_sweeps_what_it_saw_when_it_is_acknowledged():
    state, given = play(*TAKING_OVER)
    assert given == [
        (Look(),),
        (Run(Takeover(), LAST),),
        (Commit(NEXT),),
        (Send(NEXT),),
        (Acknowledge(5),),
        (Sweep(NEXT, SEEN), Tell(Takeover(), NEXT), Decide(NEXT, Rest())),
    ]
    assert state.seen == frozenset()


def test_what_was_not_acknowledged_is_sent_before_the_takeover():
    _, given = play(Started(LAST, False, LOG), Sent(), Acknowledged())
    assert given == [(Send(LAST),), (Acknowledge(4),), (Look(),)]


def test_a_batch_that_was_seen_before_is_not_joined_again():
    idle = State(Phase.IDLE, last=LAST)
    assert advance(idle, batch_came(2)) == (idle, ())


@pytest.mark.parametrize(
    "event",
    [
        batch_came(1),
        batch_came(4),
        BatchCame(3, offsets_of(2, "anew"), offsets_of(3)),
        BatchCame(3, None, offsets_of(3)),
        BatchCame(3, offsets_of(2), None),
        BatchCame(2, offsets_of(1), offsets_of(2, "anew")),
    ],
    ids=["before", "gap", "other-start", "no-start", "no-end", "made-anew"],
)
def test_a_batch_that_does_not_follow_the_state_is_refused(event: BatchCame):
    closed, commands = advance(State(Phase.IDLE, last=LAST), event)
    assert closed.is_closed
    assert [command.error.error_class for command in commands] == ["DIFFERENT_BATCHES"]


def test_a_driver_does_nothing_where_spark_has_run_other_batches():
    closed, commands = advance(State(), Started(LAST, False, LogEnd("query", 1, 1)))
    assert closed.is_closed
    [given_up] = commands
    assert isinstance(given_up.error, CheckpointError)
    assert "the state ends with batch 2, but Spark's log ends with batch 1" in str(given_up.error)


def test_after_epochs_without_a_batch_the_first_batch_is_joined():
    _, commands = advance(State(Phase.IDLE, last=Manifest(4)), batch_came(0))
    assert commands == (Decide(Manifest(4), JoinBatch(0, offsets_of(0))),)


def test_a_clean_up_goes_on_until_nothing_is_left_to_decide():
    idle, cleaning = State(Phase.IDLE, last=LAST), Cleaning((), "why")
    epoch = [Decided(cleaning), JobDone(NEXT), Committed(), Sent(), Acknowledged()]
    state, given = play(AdaptationAsked(CleanUp("why")), *epoch, *epoch, Decided(None), state=idle)
    assert [command.goal for commands in given for command in commands if isinstance(command, Decide)] == [
        CleanUp("why")
    ] * 3
    assert state.phase is Phase.IDLE


# Driving


def test_what_a_handler_raises_ends_the_driver_and_is_raised():
    told = []

    def fail(command: Command) -> Event:
        raise OSError("full")

    drive = Drive({Look: fail, Run: told.append})
    with pytest.raises(OSError, match="full"):
        drive.play(Started(LAST, True, LOG))
    assert drive.state.is_closed
    drive.play(batch_came(3))
    assert told == []


def test_a_driver_is_stopped_between_two_commands():
    done: list[Command] = []
    answers = {Look: Looked(SEEN), Run: JobDone(NEXT), Commit: Committed(), Send: Sent(), Acknowledge: Acknowledged()}
    kinds = [*answers, Sweep, Tell, Decide]
    handlers = {kind: lambda command: (done.append(command), answers.get(type(command)))[1] for kind in kinds}
    for steps in range(len(kinds)):
        done.clear()
        drive = Drive(handlers, is_stopped=lambda steps=steps: len(done) >= steps)
        drive.play(Started(LAST, True, LOG))
        carried_out = kinds[: steps + (kinds[steps] is Acknowledge)]  # what the sink has is acknowledged in any case
        assert [type(command) for command in done] == carried_out
        assert drive.state.is_closed


# The small world


@pytest.mark.parametrize(
    ("results_in", "batches", "restarts"),
    [
        ("checkpoint", 1, 1),
        ("checkpoint", 2, 1),
        ("sink", 2, 1),
        *(pytest.param(place, 1, 2, marks=pytest.mark.long) for place in ("checkpoint", "sink")),
    ],
)
def test_whatever_happens_results_come_once_and_no_file_is_missed(results_in: str, batches: int, restarts: int):
    states, ends = enumerate_worlds(first_world(batches, restarts, results_in))
    assert states > 1000 * batches * restarts
    assert ends > 0


def test_it_is_not_enough_that_the_name_of_an_epoch_is_free():
    handlers = abstract_world.HANDLERS | {Commit: abstract_world.commit_if_unnamed}
    with pytest.raises(Broken):
        enumerate_worlds(first_world(2, 1, "sink"), handlers)


def test_it_is_too_much_to_sweep_what_was_not_seen():
    handlers = abstract_world.HANDLERS | {Sweep: abstract_world.sweep_all}
    with pytest.raises(Broken, match="is gone"):
        enumerate_worlds(first_world(2, 2, "checkpoint"), handlers)
