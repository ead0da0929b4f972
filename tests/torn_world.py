"""A small world for what ties the state to Spark's log, as one value: one driver, one file source, and mishaps.

Items 0, 1, ... lie in a source. Spark makes batches of one or two of them; its offsets only count the batches, as
those of a file source do, but each batch has the time at which it was made. Between two runs, and after a driver has
looked at the log but before Spark has, the state or the log may be lost, cut, or replaced by any earlier one or by
another query's. Everything that can happen is enumerated. Whatever is not refused must have joined every item that
Spark has read, once; and where nothing was damaged, nothing is refused.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.abstract_world import Broken
from watersmeet.epoch import protocol
from watersmeet.epoch.kinds import Batch
from watersmeet.state.spark_log import LogEnd, Offsets


@dataclass(frozen=True)
class Made:
    """A batch in Spark's log: the item that it ends before, and when it was made."""

    until: int
    at: int


@dataclass(frozen=True)
class Log:
    query: str = "query"
    batches: tuple[Made | None, ...] = ()
    commits: frozenset[int] = frozenset()

    def offsets(self, number: int) -> Offsets | None:
        made = self.batches[number] if 0 <= number < len(self.batches) else None
        return None if made is None else Offsets(self.query, f"{number} at {made.at}", f'\n\n{{"logOffset":{number}}}')

    def end(self, last: "State | None") -> LogEnd:
        planned = max((n for n, made in enumerate(self.batches) if made is not None), default=None)
        at = None if last is None else self.offsets(last.batch)
        return LogEnd(self.query, planned, max(self.commits, default=None), at)


@dataclass(frozen=True)
class State:
    """A manifest: which items are in the state, in the order they came."""

    epoch: int
    batch: int
    offsets: Offsets
    items: tuple[int, ...]


@dataclass(frozen=True)
class World:
    items: int
    mishaps_left: int
    crashes_left: int
    now: int = 0
    state: State | None = None
    log: Log = Log()
    old_states: frozenset[State | None] = frozenset({None})
    old_logs: frozenset[Log] = frozenset({Log()})
    driver: protocol.State | None = None
    seen: tuple[State | None, Log] | None = None
    """What the driver saw when it started."""
    is_read: bool = False
    """Whether Spark has read its log in this run."""
    was_damaged: bool = False
    is_refused: bool = False


def next_worlds(world: World) -> Iterator[World]:
    if world.is_refused:
        return
    if world.mishaps_left and not world.is_read:
        yield from _damaged(replace(world, mishaps_left=world.mishaps_left - 1, was_damaged=True, now=world.now + 1))
    if world.driver is None:
        yield _started(world)
    else:
        yield replace(world, driver=None, is_read=False)
        yield from _batches(replace(world, is_read=True))


def _damaged(world: World) -> Iterator[World]:
    log = world.log
    yield from (replace(world, state=state) for state in world.old_states)
    yield from (replace(world, log=old) for old in world.old_logs)
    yield replace(world, log=Log())
    yield replace(
        world, log=Log(f"another {world.now}", tuple(made and Made(made.until + 1, made.at) for made in log.batches))
    )
    if log.batches:
        last = len(log.batches) - 1
        yield replace(world, log=replace(log, batches=log.batches[:-1]))
        yield replace(world, log=replace(log, batches=log.batches[:-1], commits=log.commits - {last}))
        yield replace(world, log=replace(log, commits=log.commits - {last}))
        yield replace(world, log=replace(log, batches=(None, *log.batches[1:])))


def _started(world: World) -> World:
    event = protocol.Started(world.state, True, world.log.end(world.state))
    _, commands = protocol.advance(protocol.State(), event)
    if _is_refused(commands):
        return replace(world, is_refused=True)
    return replace(world, driver=protocol.State(protocol.Phase.IDLE, last=world.state), seen=(world.state, world.log))


def _batches(world: World) -> Iterator[World]:
    """Spark hands over the batch that it has planned and not committed, or makes one."""
    log = world.log
    last = len(log.batches) - 1
    if log.batches and last not in log.commits:
        yield from _handed_over(world, last)
        return
    begin = log.batches[-1].until if log.batches and log.batches[-1] is not None else 0
    for until in range(begin + 1, min(begin + 2, world.items) + 1):
        made = replace(log, batches=(*log.batches, Made(until, world.now)))
        yield from _handed_over(replace(world, log=made, now=world.now + 1), last + 1)


def _handed_over(world: World, number: int) -> Iterator[World]:
    assert world.driver is not None
    start, end = world.log.offsets(number - 1), world.log.offsets(number)
    _, commands = protocol.advance(world.driver, protocol.BatchCame(number, start, end))
    if _is_refused(commands):
        yield replace(world, is_refused=True, driver=None)
        return
    if world.crashes_left:
        yield _dead(world)
    if commands:
        [decide] = commands
        world = _joined(world, world.driver.last, Batch(decide.goal.number, offsets=decide.goal.offsets))
        if world.crashes_left:
            yield _dead(world)
    yield _remembered(replace(world, log=replace(world.log, commits=world.log.commits | {number})))


def _joined(world: World, last: State | None, epoch: Batch) -> World:
    """The items of the batch are in the state: those that Spark's log has between this batch and the one before."""
    made, before = world.log.batches[epoch.number], world.log.batches[epoch.number - 1] if epoch.number else None
    assert made is not None
    assert epoch.offsets is not None
    items = (*(last.items if last else ()), *range(before.until if before else 0, made.until))
    after = State((last.epoch if last else -1) + 1, epoch.number, epoch.offsets, items)
    assert world.driver is not None
    return replace(world, state=after, driver=replace(world.driver, last=after))


def _dead(world: World) -> World:
    return _remembered(replace(world, crashes_left=world.crashes_left - 1, driver=None, is_read=False))


def _remembered(world: World) -> World:
    """There may be a backup of either part."""
    return replace(world, old_states=world.old_states | {world.state}, old_logs=world.old_logs | {world.log})


def _is_refused(commands: tuple[Any, ...]) -> bool:
    return any(isinstance(command, protocol.GiveUp) for command in commands)


def require_all(world: World) -> None:
    """What holds in every state that the driver has not refused."""
    if world.is_refused and not world.was_damaged:
        raise Broken(f"a sound checkpoint is refused: {world}")
    if world.is_refused or world.driver is None:
        return
    joined = () if world.driver.last is None else world.driver.last.items
    if world.is_read and joined != _items(world.log, len(world.log.batches) - 1):
        raise Broken(f"items were lost or joined twice: {world}")
    if not world.is_read and world.seen == (world.state, world.log):  # Spark may have nothing new for long
        ended = -1 if world.state is None else world.state.batch
        if joined != _items(world.log, ended) or ended < max(world.log.commits, default=-1):
            raise Broken(f"the driver waits, and says nothing of items that are not in the state: {world}")


def _items(log: Log, batch: int) -> tuple[int, ...] | None:
    """What the log has read up to a batch; None if it does not know."""
    if batch < 0:
        return ()
    made = log.batches[batch] if batch < len(log.batches) else None
    return None if made is None else tuple(range(made.until))


def enumerate_torn(first: World) -> tuple[int, int]:
    """Visit every state that can be reached: how many there are, and how many of them are refused."""
    known, waiting = {first}, deque([first])
    while waiting:
        world = waiting.popleft()
        require_all(world)
        for after in next_worlds(world):
            if after not in known:
                known.add(after)
                waiting.append(after)
    return len(known), sum(world.is_refused for world in known)
