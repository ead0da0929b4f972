"""Queries that change: a slow oracle, and the in-process engine led from query to query.

*A result is judged by the query in force when its last row arrives, over the rows kept then.*
"""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.acting import RAM
from tests.asking import spilling
from tests.crashing import EpochSink
from tests.oracle import Row, _comparable, _in_windows, _same_key, canonical, rows_of, value_of
from tests.staging import EAGER
from watersmeet.epoch import protocol
from watersmeet.errors import CheckpointError
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.query_change import PlannedQuery
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.expressions import columns_of
from watersmeet.query.filter_expressions import filter_expression
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.query.types import is_floating
from watersmeet.runtime.inprocess import InProcessQuery

UTC = pa.timestamp("us", tz="UTC")
SECOND_US = 1_000_000


def stream_of(name: str, delay: int = 0, columns: Sequence[str] = ("k", "x", "y", "z")) -> Stream:
    """A stream whose columns are INT, but for the event time."""
    schema = pa.schema([*((column, pa.int32()) for column in columns), ("ts", UTC)])
    return Stream(name, schema, "ts", delay * SECOND_US)


def batch_of(stream: Stream, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """A table; times are seconds."""
    columns = list(zip(*rows, strict=True)) or [()] * len(stream.schema)
    arrays = [
        pa.array([v * SECOND_US for v in values], pa.int64()).cast(UTC) if f.type == UTC else pa.array(values, f.type)
        for values, f in zip(columns, stream.schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=stream.schema)


@dataclass(frozen=True)
class Asked:
    """A query, and the tree that it runs by."""

    streams: tuple[Stream, ...]
    where: tuple[str, ...]
    select: tuple[str, ...]
    windows: Mapping[str, str] = field(default_factory=dict)
    tree: str = ""
    group_by: tuple[str, ...] = ()
    mode: Any = None

    def posed(self, partitions: int = 8) -> PlannedQuery:
        query = build_query(
            self.streams,
            where=self.where,
            within=None,
            windows=self.windows,
            select=self.select,
            group_by=self.group_by,
        )
        names = [stream.name for stream in query.streams]
        tree = parse_tree(self.tree, names) if self.tree else default_tree(query)
        return PlannedQuery(query, plan_join(query, (tree,), partitions, self.mode))


@dataclass(frozen=True)
class Story:
    """Batches, and what the query becomes before some of them."""

    asked: tuple[Asked, ...]
    at: tuple[int, ...]
    """The first batch of each query; the first is 0."""
    batches: tuple[Mapping[str, pa.Table], ...]
    slots: int = 1
    spill: tuple[tuple[int, int], ...] = ()
    """Groups, by stage, that are closed with the batch before every change."""
    migrate: str = ""
    """A plan, and a strategy, that a migration begins to lead to before every change."""
    stuffs: bool = False
    crashes: int = 0
    """Before this command of a change its driver dies, once."""


def check_story(story: Story) -> int:
    """The engine finds what the oracle finds, after every batch. A change that is refused changes nothing, and the
    query goes on; returns how many changes were made."""
    with tempfile.TemporaryDirectory(dir=RAM, prefix="watersmeet-test-") as folder:
        player = _Player(story, Path(folder))
        oracle = Oracle(player.posed.query)
        made, expected = 0, Counter()
        for number, batch in enumerate(story.batches):
            if number in story.at[1:]:
                wanted = story.asked[story.at.index(number)].posed()
                if player.change(wanted):
                    oracle.change(wanted.query)
                    made += 1
            player.run(batch, closes=number + 1 in story.at[1:])
            expected += oracle.run(batch)
            extra, missing = player.found - expected, expected - player.found
            assert not extra, f"batch {number}: {extra} too many"
            assert player.owes or not missing, f"batch {number}: {missing} missing"
        list(player.engine.clean_up())
        assert player.found == expected, "in the end"
        return made


def told(story: Story) -> list[pa.Table]:
    """The results of every epoch; no change may be refused."""
    with tempfile.TemporaryDirectory(dir=RAM, prefix="watersmeet-test-") as folder:
        player = _Player(story, Path(folder))
        for number, batch in enumerate(story.batches):
            if number in story.at[1:]:
                assert player.change(story.asked[story.at.index(number)].posed()), "refused"
            player.run(batch, closes=number + 1 in story.at[1:])
        list(player.engine.clean_up())
        return [player.sink.received[epoch] for epoch in sorted(player.sink.received)]


class Oracle:
    """Nested loops over the rows kept."""

    def __init__(self, query: JoinQuery) -> None:
        self.query, self.number = query, -1
        self.kept: dict[str, list[tuple[int, Row]]] = {stream.name: [] for stream in query.streams}
        self.latest: dict[str, int | None] = dict.fromkeys(self.kept)
        self.watermark: int | None = None

    def change(self, new: JoinQuery) -> None:
        old, kept = self.query, self.kept
        windows = {s.name: w for s, w in zip(old.streams, old.windows_us, strict=True)}
        self.kept = {stream.name: [] for stream in new.streams}
        self.latest = {name: self.latest.get(name) for name in self.kept}
        for stream in new.streams:
            columns = _kept_columns(old, stream.name)
            for batch, row in kept.get(stream.name, ()):
                window, time = windows[stream.name], row.get("ts")
                if self.watermark is not None and window is not None and time + window <= self.watermark:
                    continue
                row = {name: row.get(name) if name in columns else None for name in stream.schema.names}
                if _passes(new, stream.name, row, but=old.filters):  # the old query has tested these
                    self.kept[stream.name].append((batch, row))
        self.query = new

    def run(self, batch: Mapping[str, pa.Table]) -> Counter:
        self.number += 1
        query = self.query
        for stream in query.streams:
            for row in rows_of(batch[stream.name]) if stream.name in batch else ():
                if query.windowed:
                    time = row["ts"]
                    is_late = self.watermark is not None and time < self.watermark
                    known = self.latest[stream.name]
                    self.latest[stream.name] = time if known is None else max(known, time)
                    if is_late:
                        continue
                if _passes(query, stream.name, row):
                    self.kept[stream.name].append((self.number, row))
        found: Counter = Counter()
        for combination in _same_key(query, [self.kept[stream.name] for stream in query.streams], ()):
            rows = {stream.name: row for stream, (_, row) in zip(query.streams, combination, strict=True)}
            is_new = max(number for number, _ in combination) == self.number
            if is_new and _in_windows(query, rows) and all(value_of(e, rows) is True for e in query.residuals):
                result = tuple(rows[item.column.stream][item.column.name] for item in query.select)
                found[tuple(map(_comparable, result))] += 1
        if query.windowed and all(time is not None for time in self.latest.values()):
            reached = min(self.latest[s.name] - s.delay_us for s in query.streams)
            self.watermark = reached if self.watermark is None else max(self.watermark, reached)
        return found


def _kept_columns(query: JoinQuery, name: str) -> set[str]:
    """The columns of a stream that a query keeps: selected, compared, key, time."""
    kept = {column.name for column in query.read_columns if column.stream == name}
    kept |= {c.name for e in query.residuals for c in columns_of(e) if c.stream == name}
    ordinal = [stream.name for stream in query.streams].index(name) if name in {s.name for s in query.streams} else None
    if ordinal is not None:
        kept |= {c.columns[ordinal] for c in query.classes if c.columns[ordinal] and not is_floating(c.type)}
    return kept | {"ts"}


def _passes(query: JoinQuery, name: str, row: Row, but: Sequence[Any] = ()) -> bool:
    tests = [filter_expression(query, f) for f in query.filters if f.stream == name and f not in but]
    return all(value_of(test, {name: row}) is True for test in tests)


class _Player:
    def __init__(self, story: Story, folder: Path) -> None:
        self.story, self.folder = story, folder
        self.posed = story.asked[0].posed()
        self.sink = EpochSink()
        self.engine = self._start(self.posed)

    @property
    def found(self) -> Counter:
        return sum((canonical(results) for results in self.sink.received.values()), Counter())

    def _start(self, posed: PlannedQuery) -> InProcessQuery:
        self.posed = posed
        mode = posed.plan.aggregate.mode if posed.plan.aggregate is not None else None
        return InProcessQuery(
            posed.query,
            self.folder / "checkpoint",
            slots=self.story.slots,
            partitions=8,
            memory=None,
            trees=posed.plan.trees,
            mode=mode,
            merging=EAGER,
            keeps_results=True,
            sink=self.sink,
        )

    @property
    def owes(self) -> bool:
        return any(not extent.is_active for extent in self.engine.manifest.all_extents())

    def run(self, batch: Mapping[str, pa.Table], *, closes: bool) -> None:
        engine = self.engine
        if closes:
            engine.order(spilling(engine.plan, engine.manifest.placement, self.story.spill))
        engine.run(batch)

    def change(self, wanted: PlannedQuery) -> bool:
        """Lead the engine to another query; False if it refuses."""
        engine, before = self.engine, contents(self.folder)
        goal = protocol.ChangeQuery(engine.query, wanted, "asked for", self.story.stuffs)
        try:
            goal.carry(engine.plan)
        except CheckpointError:
            assert contents(self.folder) == before, "a refused change has changed something"
            return False
        if self.story.migrate:
            plan, _, strategy = self.story.migrate.rpartition(" ")
            tree = parse_tree(plan, list(engine.plan.names))
            for _ in engine.migrating(plan_join(engine.query, (tree,), 8), strategy):
                pass
        for number, _ in enumerate(engine.pursuing(goal), start=1):
            if number == self.story.crashes:
                break
        else:
            self.posed = wanted
        engine.take_shown()
        if self.story.crashes:
            self._go_on(engine, wanted)
        return True

    def _go_on(self, dead: InProcessQuery, wanted: PlannedQuery) -> None:
        """A new driver starts with the query that is in force, and comes to the wanted one."""
        self.engine = self._start(wanted if dead.query is wanted.query else self.posed)
        if self.engine.query is not wanted.query:
            goal = protocol.ChangeQuery(self.engine.query, wanted, "asked for", self.story.stuffs)
            for _ in self.engine.pursuing(goal):
                pass
            self.engine.take_shown()
            self.posed = wanted


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
