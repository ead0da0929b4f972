"""Execution models (M6; dissertation, chapter 15): the nodes of a plan with queues between them, run by a schedule.

In an epoch every row is joined with all others, so at its end all queues are empty. Other systems keep rows in queues
between their operators. Here the engine's nodes run in this way, in process, to show what a migration then needs.
Results are exact under any schedule, with migrations at any moment.

| model                | a node may run                   | it takes                                     |
|----------------------|----------------------------------|----------------------------------------------|
| totally synchronised | until all queues are empty       | results before rows of the next arrival      |
| semi-synchronised    | when none of its queues is empty | the row that arrived first                   |
| un-synchronised      | when some queue has rows         | the first row of any queue                   |

A migration matches and moves state as a build does (`engine/rebuild.py`). Stores that only the old plan has are
dropped. That is safe under *old-state closure* (12.1.4): a row of such a store, a part of which is in no shared store,
joins no later row. Closure fails if one node is ahead of another: a row has purged the part, and an earlier row, still
in its queue, could join it (15.3.1). The cure is a punctuation (15.3.2):

    migrate ──▶ behind all rows in the queues of the streams
            ──▶ a node that has come to it in all inputs sends it on, and takes nothing behind it
            ──▶ the topmost node has come to it: match, move, and go on with the rows behind it

A queue with a punctuation is not empty, so no semi-synchronised node is blocked for ever.

*Deviations*: rows are purged alike in all models, by their combined times (`runtime/queued_nodes.py`); and streams may
be out of order, within a bound. *Known limitation*: one slot, nodes over one key each, no aggregates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from pathlib import Path

import pyarrow as pa

from watersmeet.engine.emission import Emitted, emit, runs_of
from watersmeet.engine.inbox import deltas_of
from watersmeet.engine.partials import Joined
from watersmeet.engine.rebuild import Rows, fed_run, rebuilt_by_nodes
from watersmeet.engine.statistics import Tally
from watersmeet.engine.work import Scratch, Work
from watersmeet.epoch.task import SlotTask
from watersmeet.errors import QueryError
from watersmeet.plan.layout import StoreName
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.stages import JoinPlan, Place
from watersmeet.plan.state_matching import Rebuild, rebuild
from watersmeet.query.logical import JoinQuery, internal_name
from watersmeet.runtime.inprocess_frames import Frames, pandas_hash
from watersmeet.runtime.inprocess_slots import drain
from watersmeet.runtime.queued_nodes import PUNCTUATION, Entry, QueuedNode
from watersmeet.state.groups import Groups
from watersmeet.state.run import Run


class Model(Enum):
    """How the order in which rows are joined follows the order in which they arrive."""

    TOTALLY = "totally synchronised"
    SEMI = "semi-synchronised"
    UN = "un-synchronised"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which queues are taken from, and when."""

    model: Model
    turns: tuple[tuple[int, ...], ...] = ()
    """By arrival, over and over: the turns that follow it. Each takes one entry of the queue with this number, modulo
    how many queues the model allows. Totally synchronised nodes need none: all queues are emptied."""


class QueuedJoin:
    """A join whose nodes run by a schedule."""

    def __init__(self, query: JoinQuery, plan: JoinPlan, schedule: Schedule, disorder_us: int = 0) -> None:
        """No row may be earlier by more than `disorder_us` than a row, of whatever stream, that arrived before it."""
        self.query, self.schedule, self.disorder_us = query, schedule, disorder_us
        self.matches = 0
        """How often state has been matched: once per migration, and once by `finish`."""
        self._goal: JoinPlan | None = None
        self._arrivals = count()
        self._found: list[pa.RecordBatch] = []
        self._follow(plan)
        self._open({})

    @property
    def results(self) -> pa.Table:
        """The results so far."""
        raw = pa.Table.from_batches(self._found, schema=self.plan.output_schema)
        columns = [internal_name(item.column) for item in self.query.select if item.column]
        return raw.select(columns).rename_columns([item.name for item in self.query.select])

    def arrive(self, stream: str, rows: pa.Table) -> None:
        """Put rows of a stream into its queue, then take turns."""
        arrival = next(self._arrivals)
        self._enqueue(arrival, stream, rows)
        turns = self.schedule.turns
        for choice in turns[arrival % len(turns)] if turns else ():
            self._turn(choice)
        if self.schedule.model is Model.TOTALLY:
            self._empty()

    def migrate(self, plan: JoinPlan) -> None:
        """Change to another plan when all rows that have arrived are joined. A migration under way ends first."""
        if self._goal is not None:
            self._empty()
        self._goal = plan
        for stream in range(len(plan.names)):
            for place in self.plan.places(stream):
                node, i = self._inlets[place]
                node.queues[i].append(PUNCTUATION)
        self._send_on()

    def finish(self) -> None:
        """Join all rows that have arrived."""
        self._empty()
        self.migrate(self.plan)
        self._empty()

    # Turns

    def _empty(self) -> None:
        while self._turn(0):
            pass

    def _turn(self, choice: int) -> bool:
        """Take from a queue, if the model allows one."""
        allowed = self._allowed()
        if allowed:
            node, i = allowed[choice % len(allowed)]
            arrival, found = node.take(i, self.disorder_us)
            for joined in found:
                self._pass_up(node, arrival, joined)
            self._send_on()
        return bool(allowed)

    def _allowed(self) -> list[tuple[QueuedNode, int]]:
        """The queues that the model allows to take from."""
        if self.schedule.model is Model.SEMI:
            return [(node, i) for node in self._nodes for i in node.in_order()]
        ready = [(node, i) for node in self._nodes for i in node.ready()]
        return ready[-1:] if self.schedule.model is Model.TOTALLY else ready

    def _send_on(self) -> None:
        """Send the punctuation from each node that has come to it; from the topmost node, state is matched."""
        while reached := [node for node in self._nodes if node.is_synchronised()]:
            for node in reached:
                node.has_forwarded = True
                for above, i in node.outlets:
                    above.queues[i].append(PUNCTUATION)
            if self._nodes[-1] in reached:
                self._move()

    # Rows

    def _enqueue(self, arrival: int, stream: str, rows: pa.Table) -> None:
        for stage, frames in enumerate(self._frames.inboxes({stream: rows})):
            for frame in frames:
                self._deliver(stage, frame, arrival, (stream, rows))

    def _deliver(
        self, stage: int, frame: pa.RecordBatch, arrival: int, source: tuple[str, pa.Table] | None = None
    ) -> None:
        for number, runs in enumerate(self._runs(stage, frame)):
            if runs:
                node, i = self._inlets[Place(stage, number)]
                node.queues[i].append(Entry(arrival, runs, source))

    def _pass_up(self, node: QueuedNode, arrival: int, joined: Joined) -> None:
        """Put results of a node into the queue of the node above, or among the results of the query."""
        for above, i in node.outlets:
            if above.stage == node.stage:
                runs = runs_of(joined, above.node.inputs[i], self.plan.partitions)
                above.queues[i].append(Entry(arrival, runs))
                return
        for one in emit(self.plan, self.plan.stages[node.stage].feeds, joined):
            if one.stage is None:
                self._found.append(one.rows)
            else:
                self._deliver(one.stage, self._frames.hashed(one.rows, one.stage), arrival)

    def _runs(self, stage: int, frame: pa.RecordBatch) -> Rows:
        return deltas_of(pa.Table.from_batches([frame]), self.plan, stage, None, self._tally)

    # Plans

    def _follow(self, plan: JoinPlan) -> None:
        if plan.aggregate is not None or any(stage.hops for stage in plan.stages):
            raise QueryError("only joins without aggregates, whose nodes have one key each, run by a schedule")
        self.plan, self._frames, self._tally = plan, Frames(self.query, plan, pandas_hash), Tally(plan.partitions)

    def _open(self, stores: Mapping[int, Rows]) -> None:
        """Make the nodes of the plan, with empty queues, and with the rows of their stores by stage."""
        self._inlets: dict[Place, tuple[QueuedNode, int]] = {}
        self._nodes: list[QueuedNode] = []
        for number, stage in enumerate(self.plan.stages):
            rows = stores.get(number) or [[] for _ in stage.stores(number, 0)]
            self._nodes += self._of_stage(number, stage.shape(0), rows)
        for node in self._nodes:
            if not node.outlets:
                node.outlets += [self._inlets[place] for place in self.plan.stages[node.stage].feeds]

    def _of_stage(self, stage: int, nodes: Sequence[NodePlan], rows: Rows) -> list[QueuedNode]:
        """The nodes of a stage, each on its own."""
        made: list[QueuedNode] = []
        for node in nodes:
            first, inputs = node.first_store, len(node.inputs)
            alone = replace(node, children=(None,) * inputs, stage_inputs=tuple(range(inputs)), first_store=0)
            work = Work((alone,), rows[first : first + inputs], _scratch(), self._tally)
            made.append(QueuedNode(stage, alone, work))
            for i, (child, source) in enumerate(zip(node.children, node.stage_inputs, strict=True)):
                if child is not None:
                    made[child].outlets.append((made[-1], i))
                elif source is not None:
                    self._inlets[Place(stage, source)] = made[-1], i
        return made

    def _move(self) -> None:
        """Match state, move it, and go on by the new plan, with the rows behind the punctuation."""
        assert self._goal is not None
        entries = [entry for node in self._nodes for queue in node.queues for entry in queue]
        waiting = [entry for entry in entries if isinstance(entry, Entry) and entry.source is not None]
        known = {
            layout.name: runs
            for node in self._nodes
            for layout, runs in zip(node.node.inputs, node.work.stores, strict=True)
        }
        matched = rebuild(self.plan, self._goal, slots=1)
        self._follow(self._goal)
        self._open(self._moved(matched, known))
        self._goal, self.matches = None, self.matches + 1
        for entry in sorted(waiting, key=lambda entry: entry.arrival):
            if entry.source is not None:
                self._enqueue(entry.arrival, *entry.source)

    def _moved(self, matched: Rebuild, known: Mapping[StoreName, Sequence[Run]]) -> dict[int, Rows]:
        """The rows of all stores of the new plan, by stage."""
        taken: dict[int, Rows] = {n: [[] for _ in stage.inputs] for n, stage in enumerate(self.plan.stages)}
        for feed in matched.feeds:
            for run in known[feed.source.name]:
                self._feed(taken, fed_run(self.plan, feed, run, None))
        stores: dict[int, Rows] = {}
        for number in taken:
            task = _build_task(self.plan, matched, number)
            held = [list(known.get(layout.name, ())) for layout in self.plan.layouts(number, 0)]
            sent: list[Emitted] = []
            stores[number] = drain(rebuilt_by_nodes(self.plan, task, held, taken[number], _scratch()), sent)
            self._feed(taken, sent)
        return stores

    def _feed(self, taken: dict[int, Rows], frames: Iterable[Emitted]) -> None:
        for one in frames:
            assert one.stage is not None
            for number, runs in enumerate(self._runs(one.stage, self._frames.hashed(one.rows, one.stage))):
                taken[one.stage][number] += runs


def _build_task(plan: JoinPlan, matched: Rebuild, stage: int) -> SlotTask:
    """The task to build what a stage lacks, from rows in memory."""
    return SlotTask(
        epoch=0,
        stage=stage,
        slot=0,
        attempt="",
        watermark_us=None,
        extents=(),
        segments={},
        groups=Groups.between(0, plan.partitions),
        build=matched.built[stage][0],
        joins=matched.joins[stage],
    )


def _scratch() -> Scratch:
    return Scratch(Path(tempfile.gettempdir()), ExitStack())
