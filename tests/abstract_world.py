"""A small world for the commit protocol, as one value: two drivers on one checkpoint, and a sink with a log of epochs.

It is enumerated: in every state each driver may carry out its next command, be handed a batch, or be killed and started
anew. That a driver is paused needs no step of its own: the other one goes on. Nothing is computed here: a batch yields
the result "batch n", and windows that are closed after it yield "windows of n". One driver merges segments whenever it
joins a batch, the other one keeps what there is: so they need different files of the same past.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.epoch import protocol
from watersmeet.epoch.kinds import Batch, Closing, Epoch
from watersmeet.state.spark_log import LogEnd, Offsets


@dataclass(frozen=True)
class Manifest:
    """All that the protocol, and this world, want to know of a manifest."""

    epoch: int
    batch: int | None = None
    segments: frozenset[str] = frozenset()
    results: str | None = None
    """The file of its results; None: it shows nothing."""
    says: frozenset[str] = frozenset()
    """What is in that file."""
    open: frozenset[int] = frozenset()
    """Batches whose windows have yet to be closed."""
    offsets: Offsets | None = None


@dataclass(frozen=True)
class Driver:
    name: str
    merges: bool
    state: protocol.State = field(default_factory=protocol.State)
    pending: tuple[Any, ...] = ()


@dataclass(frozen=True)
class World:
    batches: int
    """How many there will be."""
    results_in: str
    """Whether files of results lie in the "checkpoint", or are the "sink"'s own part files."""
    restarts_left: int
    manifests: frozenset[Manifest] = frozenset()
    files: frozenset[str] = frozenset()
    """Of state, results and acknowledgements; those of manifests are in `manifests`."""
    log: tuple[tuple[int, str, frozenset[str]], ...] = ()
    """What the sink has: epochs, with the files it took them from and what they said."""
    drivers: tuple[Driver, ...] = ()
    committed: tuple[tuple[int, str], ...] = ()
    """Epochs, and the drivers that were told that they have committed them."""

    @property
    def last(self) -> Manifest | None:
        return max(self.manifests, key=lambda manifest: manifest.epoch, default=None)


class Broken(AssertionError):
    """A state that must not be reached."""


def ack_of(epoch: int) -> str:
    return f"ack {epoch}"


def name_of(manifest: Manifest) -> str:
    return f"manifest {manifest.epoch}"


# Spark's log, which is in order here: see `tests/torn_world.py`


def offsets_of(number: int, made: str = "") -> Offsets:
    """What a batch ends with; `made` tells batches of one number apart."""
    return Offsets("query", f"offsets {number}{made}", f'v1\n{{}}\n{{"batch":{number}}}')


def log_after(last: Manifest | None) -> LogEnd:
    """The log when all batches of the state have run."""
    if last is None or last.batch is None:
        return LogEnd()
    return LogEnd("query", last.batch, last.batch, offsets_of(last.batch))


def batch_came(number: int) -> protocol.BatchCame:
    return protocol.BatchCame(number, offsets_of(number - 1) if number else None, offsets_of(number))


# How a driver carries out a command: the world after it, and the answer


def decide(world: World, driver: Driver, command: protocol.Decide) -> tuple[World, Any]:
    last, goal = command.last, command.goal
    if isinstance(goal, protocol.JoinBatch):
        return world, protocol.Decided(Batch(goal.number, offsets=goal.offsets))
    is_open = last is not None and last.open
    return world, protocol.Decided(Closing(last.batch) if is_open else None)


def run(world: World, driver: Driver, command: protocol.Run) -> tuple[World, Any]:
    before = command.before or Manifest(-1)
    if not before.segments <= world.files:
        return world, protocol.Failed(FileNotFoundError("a segment"))
    mark = f"{driver.name}, epoch {before.epoch + 1}"
    after = _after(before, command.epoch, mark, driver.merges)
    written = (after.segments - before.segments) | ({after.results} if after.results else set())
    return replace(world, files=world.files | written), protocol.JobDone(after)


def _after(before: Manifest, epoch: Epoch, mark: str, merges: bool) -> Manifest:
    after = replace(before, epoch=before.epoch + 1, results=None, says=frozenset())
    match epoch:
        case Batch(number, _, offsets):
            kept = frozenset() if merges else before.segments
            return replace(
                after,
                batch=number,
                offsets=offsets,
                segments=kept | {f"state of {mark}"},
                results=f"results of {mark}",
                says=frozenset({f"batch {number}"}),
                open=before.open | {number},
            )
        case Closing():
            windows = frozenset(f"windows of {number}" for number in before.open)
            return replace(after, results=f"results of {mark}", says=windows, open=frozenset())
        case _:
            return after


def commit(world: World, driver: Driver, command: protocol.Commit) -> tuple[World, Any]:
    if world.last is not None and world.last.epoch >= command.manifest.epoch:
        return world, protocol.Fenced()
    return _with_manifest(world, driver, command.manifest), protocol.Committed()


def commit_if_unnamed(world: World, driver: Driver, command: protocol.Commit) -> tuple[World, Any]:
    """What is not enough: old manifests are removed, and then their names are free again."""
    if any(manifest.epoch == command.manifest.epoch for manifest in world.manifests):
        return world, protocol.Fenced()
    return _with_manifest(world, driver, command.manifest), protocol.Committed()


def _with_manifest(world: World, driver: Driver, made: Manifest) -> World:
    committed = (*world.committed, (made.epoch, driver.name))
    return replace(world, manifests=world.manifests | {made}, committed=committed)


def send(world: World, driver: Driver, command: protocol.Send) -> tuple[World, Any]:
    sent = command.manifest
    if sent.results is None or any(epoch == sent.epoch for epoch, _, _ in world.log):
        return world, protocol.Sent()
    if sent.results not in world.files:
        return world, protocol.Failed(FileNotFoundError("results"))
    return replace(world, log=(*world.log, (sent.epoch, sent.results, sent.says))), protocol.Sent()


def acknowledge(world: World, driver: Driver, command: protocol.Acknowledge) -> tuple[World, Any]:
    return replace(world, files=world.files | {ack_of(command.epoch)}), protocol.Acknowledged()


def discard(world: World, driver: Driver, command: protocol.Discard) -> tuple[World, Any]:
    older, newer = command.older, command.newer
    if older is None:
        return world, None
    results = {older.results} if world.results_in == "checkpoint" else set()
    return removed(world, (older.segments - newer.segments) | results | {name_of(older), ack_of(older.epoch)}), None


def look(world: World, driver: Driver, command: protocol.Look) -> tuple[World, Any]:
    parts = {file for file in world.files if file.startswith("results")} if world.results_in == "sink" else set()
    return world, protocol.Looked((world.files - parts) | {name_of(manifest) for manifest in world.manifests})


def sweep(world: World, driver: Driver, command: protocol.Sweep) -> tuple[World, Any]:
    live = command.live
    kept = live.segments | {live.results, name_of(live), ack_of(live.epoch)}
    return removed(world, command.seen - kept), None


def sweep_all(world: World, driver: Driver, command: protocol.Sweep) -> tuple[World, Any]:
    """What is too much: a driver that has taken over since may have written files."""
    _, looked = look(world, driver, protocol.Look())
    return sweep(world, driver, replace(command, seen=looked.files))


def tell(world: World, driver: Driver, command: protocol.Tell) -> tuple[World, Any]:
    return world, None


def removed(world: World, names: frozenset[str]) -> World:
    manifests = frozenset(manifest for manifest in world.manifests if name_of(manifest) not in names)
    return replace(world, files=world.files - names, manifests=manifests)


Handler = Callable[[World, Driver, Any], tuple[World, Any]]
HANDLERS: dict[type, Handler] = {
    protocol.Decide: decide,
    protocol.Run: run,
    protocol.Commit: commit,
    protocol.Send: send,
    protocol.Acknowledge: acknowledge,
    protocol.Discard: discard,
    protocol.Look: look,
    protocol.Sweep: sweep,
    protocol.Tell: tell,
}

# What may happen next


def first_world(batches: int, restarts: int, results_in: str) -> World:
    world = World(batches, results_in, restarts)
    return started(started(replace(world, drivers=(Driver("", False),) * 2), 0), 1)


def started(world: World, which: int) -> World:
    """A driver is started in place of the one that was there."""
    last = world.last
    driver = Driver(f"driver {which} with {world.restarts_left} to come", merges=which == 0)
    event = protocol.Started(last, last is not None and ack_of(last.epoch) in world.files, log_after(last))
    return _told(world, which, driver, event)


def next_worlds(world: World, handlers: dict[type, Handler]) -> Iterator[World]:
    for which, driver in enumerate(world.drivers):
        if world.restarts_left:
            yield started(replace(world, restarts_left=world.restarts_left - 1), which)
        if driver.pending:
            yield _carried_out(world, which, handlers)
        elif not driver.state.is_closed:
            yield from _handed_over(world, which)


def _carried_out(world: World, which: int, handlers: dict[type, Handler]) -> World:
    driver = world.drivers[which]
    command, *rest = driver.pending
    world, answer = handlers[type(command)](world, driver, command)
    driver = replace(driver, pending=tuple(rest))
    return _with(world, which, driver) if answer is None else _told(world, which, driver, answer)


def _handed_over(world: World, which: int) -> Iterator[World]:
    """Spark hands over the next batch, or the last one again."""
    driver = world.drivers[which]
    last = driver.state.last
    seen = -1 if last is None or last.batch is None else last.batch
    if seen >= 0:
        yield _told(world, which, driver, batch_came(seen))
    if seen + 1 < world.batches:
        yield _told(world, which, driver, batch_came(seen + 1))


def _told(world: World, which: int, driver: Driver, event: Any) -> World:
    state, commands = protocol.advance(driver.state, event)
    pending = () if state.is_closed else (*commands, *driver.pending)
    return _with(world, which, replace(driver, state=state, pending=pending))


def _with(world: World, which: int, driver: Driver) -> World:
    drivers = list(world.drivers)
    drivers[which] = driver
    return replace(world, drivers=tuple(drivers))


# What must hold


def require_order(world: World) -> None:
    """What holds in every state."""
    said = [line for _, _, says in world.log for line in says]
    epochs = [epoch for epoch, _, _ in world.log]
    _require(len(said) == len(set(said)), "results are in the sink twice", world)
    _require(epochs == sorted(epochs), "epochs come out of order", world)
    owned = [epoch for epoch, _ in world.committed]
    _require(len(owned) == len(set(owned)), "two drivers have committed one epoch", world)
    if world.results_in == "sink":
        _require({file for _, file, _ in world.log} <= world.files, "a file that the sink's log names is gone", world)
    last = world.last
    if last is None:
        _require(not world.committed, "the last manifest is gone", world)
        return
    _require(last.epoch == max(owned), "the last manifest is gone", world)
    named = last.segments | ({last.results} if last.results else set())
    _require(named <= world.files, "a file that the last manifest names is gone", world)
    for driver in world.drivers:
        if driver.state.phase is protocol.Phase.IDLE and driver.state.last == last:
            _require(_all_said(last) == frozenset(said), "a driver rests, but the sink lacks results", world)


def _all_said(last: Manifest) -> frozenset[str]:
    numbers = range(0 if last.batch is None else last.batch + 1)
    return frozenset(f"{what} {number}" for number in numbers for what in ("batch", "windows of"))


def _require(holds: bool, problem: str, world: World) -> None:
    if not holds:
        raise Broken(f"{problem}: {world}")


def enumerate_worlds(first: World, handlers: dict[type, Handler] = HANDLERS) -> tuple[int, int]:
    """Visit every state that can be reached: how many there are, and in how many of them nothing can happen."""
    known, waiting, ends = {first}, deque([first]), 0
    while waiting:
        world = waiting.popleft()
        require_order(world)
        following = [after for after in next_worlds(world, handlers) if after != world]
        if not following:
            ends += 1
            _require_end(world, handlers)
        for after in following:
            if after not in known:
                known.add(after)
                waiting.append(after)
    return len(known), ends


def _require_end(world: World, handlers: dict[type, Handler]) -> None:
    """Nothing can happen any more: some driver has seen everything, or a new one would."""
    if all(driver.state.is_closed for driver in world.drivers):
        world = started(world, 0)
        while following := [after for after in next_worlds(world, handlers) if after != world]:
            world = following[-1]
            require_order(world)
    said = frozenset(line for _, _, says in world.log for line in says)
    _require(said == _all_said(Manifest(0, world.batches - 1)), "not everything has come to the sink", world)
