"""The engine without Spark: the same `step`, frames and commit rules, driven by a loop, for tests and simulation.

State lives in files as it does on Spark. Crashes are simulated by making a new runner on the same folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.adaptation.clean_up import BYTES_AT_ONCE, cleaning_orders
from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.adaptation.events import Event
from watersmeet.adaptation.memory_shares import MemoryShares
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.engine.aggregate import aggregate_step
from watersmeet.engine.compaction import Merging
from watersmeet.engine.fold import DEFAULT_MERGING
from watersmeet.engine.groups import with_intervals
from watersmeet.engine.inbox import chunks, normalise_key
from watersmeet.engine.outbox import Emitted
from watersmeet.engine.step import step
from watersmeet.engine.task import SlotReport, SlotTask
from watersmeet.errors import QueryError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.frame import HASH, STAGE, STREAM, TIME, pool_name
from watersmeet.plan.layout import Field, KeyValue
from watersmeet.plan.partitioning import DEFAULT_PARTITIONS, group_of
from watersmeet.plan.probe_orders import NO_ORDERS, ProbeOrders
from watersmeet.plan.stages import Place, plan_join
from watersmeet.plan.tree import Join
from watersmeet.query.aggregates import key_column
from watersmeet.query.expressions import Column
from watersmeet.query.logical import JoinQuery, Stream, internal_name
from watersmeet.query.types import is_floating
from watersmeet.runtime.epoch import (
    Intake,
    arrived,
    closing_tasks,
    commit,
    commit_cleaning,
    commit_closing,
    intake_of,
    must_close,
    named,
    resumed,
    slot_tasks,
)
from watersmeet.runtime.replay import replayed, without_foresight
from watersmeet.state.manifest import FirstBatch, Manifest, Order, before_first_epoch, from_json
from watersmeet.state.storage import create, names, remove
from watersmeet.state.tiers import Tiers

Hash = Callable[[list[pa.Array]], npt.NDArray[np.uint64]]


def pandas_hash(keys: list[pa.Array]) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of composite keys. (Spark uses its own; only a checkpoint must stay with one.)"""
    mixed = np.zeros(len(keys[0]), dtype=np.uint64)
    for key in keys:
        known = pc.is_valid(key).to_numpy(zero_copy_only=False)
        values = np.zeros(len(key), dtype=np.uint64)  # pandas would make floats of integers beside a NULL
        values[known] = pd.util.hash_array(key.drop_null().to_pandas().to_numpy())
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + values
    return mixed


class InProcessQuery:
    """A query over `folder`, fed batch by batch; it continues from the last manifest found there."""

    def __init__(
        self,
        query: JoinQuery,
        folder: Path,
        *,
        slots: int = 1,
        partitions: int = DEFAULT_PARTITIONS,
        memory: Path | None = None,
        memory_budget_bytes: int | None = None,
        hash_keys: Hash = pandas_hash,
        cut: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.Table]] = chunks,
        trees: Sequence[Join] = (),
        orders: ProbeOrders = NO_ORDERS,
        merging: Merging = DEFAULT_MERGING,
        mode: OutputMode | None = None,
        spill: SpillSettings | None = None,
        assignment: tuple[int, ...] | None = None,
    ) -> None:
        """`assignment` is the slot of every partition group; None: dealt out evenly."""
        plain = query.aggregation is not None or all(item.column is not None for item in query.select)
        if not plain or query.filters:
            raise QueryError("filters and expressions in the select list are evaluated by Spark")
        ids = () if query.confidence is None else query.confidence.row_ids
        derived = [Column(stream.name, column.name) for stream in query.streams for column in stream.derived]
        if query.spark_residuals or any(column not in ids for column in derived):
            raise QueryError("derived columns and predicates on the results are evaluated by Spark")
        self.query = query
        self.plan = plan_join(query, tuple(trees) or (default_tree(query),), partitions, mode, orders)
        if self.plan.aggregate is not None and not self.plan.aggregate.by_engine:
            raise QueryError("what the engine has no expression for is evaluated by Spark")
        self.folder, self.memory, self.budget, self.mode = folder, memory, memory_budget_bytes, mode
        self.hash_keys, self.cut, self.merging = hash_keys, cut, merging
        manifests = names(folder / "manifests")
        if manifests:
            self.manifest = from_json((folder / "manifests" / manifests[-1]).read_bytes())
        else:
            self.manifest = before_first_epoch(len(query.streams), self.plan.stage_count, partitions, slots)
        self.manifest = resumed(self.plan, self.manifest, slots, assignment)
        self.coordinator = Coordinator(self.plan, slots, memory_budget_bytes, spill)
        self.orders: tuple[Order, ...] = ()
        """What the next epoch does beside joining; if nothing, what the coordinator orders."""
        self._reports: list[SlotReport] = []
        self.events: Sequence[Event] = ()
        """What the last epoch changed beside the state."""

    def run(self, batch: Mapping[str, pa.Table], *, now_ms: int = 0, idle_timeout_ms: int | None = None) -> pa.Table:
        """Run one epoch over the rows of a batch and commit it, and close what windows it can; the results.

        Of a query with aggregates they are rows of groups, before HAVING and the select list, which are Spark's.
        """
        results, after = self.attempt(batch, now_ms=now_ms, idle_timeout_ms=idle_timeout_ms)
        self.accept(after)
        self.events = self.coordinator.note(after, self._reports)
        self.orders = ()
        closed = self.close_windows()
        return results if closed is None else pa.concat_tables([results, closed])

    def replan(
        self, tree: Join, first: Sequence[tuple[Mapping[str, pa.Table], FirstBatch]], orders: ProbeOrders = NO_ORDERS
    ) -> None:
        """Go on with another plan, as if it had run from the start; `first` are all batches so far. It is committed
        with the next epoch."""
        last = self.manifest
        plan = plan_join(self.query, (tree,), self.plan.partitions, self.mode, orders)
        self.plan = without_foresight(plan)
        self.coordinator = self.coordinator.for_plan(plan)
        nowhere = [[0] * self.plan.stage_count] * last.slots
        nothing = before_first_epoch(len(self.query.streams), self.plan.stage_count, self.plan.partitions, last.slots)
        nothing = replace(nothing, assignment=last.assignment)

        def join(before: Manifest, number: int) -> tuple[Sequence[SlotReport], Intake]:
            self.manifest = before
            _, reports = self._run_stages(self._inboxes(first[number][0]), (), nowhere)
            return reports, intake_of(self.plan, reports)

        def close(before: Manifest) -> Sequence[SlotReport]:
            self.manifest = before
            return self._close(nowhere)[1]

        made = replayed(plan, nothing, [known for _, known in first], join, close)
        self.plan, self.manifest = plan, replace(made, epoch=last.epoch)

    def clean_up(
        self, *, bytes_at_once: int = BYTES_AT_ONCE, kept_slots: Container[int] | None = None
    ) -> Iterator[pa.Table]:
        """Emit all that is owed, an epoch at a time; each is committed before its results are handed over."""
        while True:
            kept = self.coordinator.roomy_slots if kept_slots is None else kept_slots
            orders = cleaning_orders(self.plan, self.manifest, bytes_at_once=bytes_at_once, kept_slots=kept)
            if not orders:
                return
            yield self.run_orders(orders)

    def run_orders(self, orders: Sequence[Order]) -> pa.Table:
        """Run an epoch without rows that carries out some orders, and commit it."""
        results, after = self.attempt_orders(orders)
        self.accept(after)
        self.events = self.coordinator.note(after, self._reports)
        closed = self.close_windows()
        return results if closed is None else pa.concat_tables([results, closed])

    def attempt_orders(self, orders: Sequence[Order]) -> tuple[pa.Table, Manifest]:
        """Run an epoch without rows that carries out some orders, and do not commit it."""
        outputs, reports = self._run_stages(self._inboxes({}), orders, self.coordinator.memory)
        after = commit_cleaning(self.plan, self.manifest, reports, orders)
        return self._shown(outputs, after), after

    def close_windows(self) -> pa.Table | None:
        """Close the windows of an aggregation that the watermark has passed, if they are to be shown now."""
        if not must_close(self.plan, self.manifest):
            return None
        closed, after = self.attempt_closing()
        self.accept(after)
        return closed

    def attempt(
        self, batch: Mapping[str, pa.Table], *, now_ms: int = 0, idle_timeout_ms: int | None = None
    ) -> tuple[pa.Table, Manifest]:
        """Run one epoch without committing it, as a task that fails afterwards would."""
        orders = self.orders or self.coordinator.orders
        outputs, reports = self._run_stages(self._inboxes(batch), orders, self.coordinator.memory)
        after = commit(
            self.plan,
            self.manifest,
            reports,
            intake_of(self.plan, reports),
            batch=None,
            now_ms=now_ms,
            idle_timeout_ms=idle_timeout_ms,
            orders=orders,
        )
        return self._shown(outputs, after), after

    def _inboxes(self, batch: Mapping[str, pa.Table]) -> list[list[pa.RecordBatch]]:
        """The rows of a batch, by stage."""
        inboxes: list[list[pa.RecordBatch]] = [[] for _ in range(self.plan.stage_count)]
        for i, stream in enumerate(self.query.streams):
            if stream.name in batch:
                for place in self.plan.places(i):
                    inboxes[place.stage].append(self.frame(i, place, batch[stream.name]))
        return inboxes

    def _run_stages(
        self, inboxes: list[list[pa.RecordBatch]], orders: Sequence[Order], memory: MemoryShares | None
    ) -> tuple[list[pa.RecordBatch], list[SlotReport]]:
        attempt = uuid.uuid4().hex[:8]  # a name no attempt before a restart has used
        outputs: list[pa.RecordBatch] = []
        reports: list[SlotReport] = []
        for number in range(self.plan.stage_count):
            run = step if number < len(self.plan.stages) else aggregate_step
            for task in slot_tasks(self.plan, self.manifest, number, orders, memory):
                share = [self._share(frame, task.slot) for frame in inboxes[number]]
                emitted: list[Emitted] = []
                running = run(self.plan, named(task, attempt), share, self._tiers(task), self.cut, self.merging)
                reports.append(drain(running, emitted))
                for one in emitted:
                    if one.stage is None:
                        outputs.append(one.rows)
                    else:
                        inboxes[one.stage].append(self._hashed(one.rows, one.stage))
        self._reports = reports
        return outputs, reports

    def _shown(self, outputs: list[pa.RecordBatch], after: Manifest) -> pa.Table:
        if self.plan.aggregate is not None:
            seen = arrived(self.plan, after)
            shown = [with_intervals(self.plan.aggregate, rows, seen) for rows in outputs]
            return pa.Table.from_batches(shown, schema=self.plan.aggregate.output_schema)
        results = pa.Table.from_batches(outputs, schema=self.plan.output_schema)
        columns = [internal_name(item.column) for item in self.query.select if item.column]
        return results.select(columns).rename_columns([item.name for item in self.query.select])

    def attempt_closing(self) -> tuple[pa.Table, Manifest]:
        """Run an epoch without rows, which closes windows, and do not commit it."""
        rows, reports = self._close(self.coordinator.memory)
        return rows, commit_closing(self.plan, self.manifest, reports)

    def _close(self, memory: MemoryShares | None) -> tuple[pa.Table, list[SlotReport]]:
        assert self.plan.aggregate is not None
        attempt = uuid.uuid4().hex[:8]
        emitted: list[Emitted] = []
        reports = [
            drain(
                aggregate_step(self.plan, named(task, attempt), [], self._tiers(task), self.cut, self.merging), emitted
            )
            for task in closing_tasks(self.plan, self.manifest, memory)
        ]
        rows = pa.Table.from_batches([one.rows for one in emitted], schema=self.plan.aggregate.output_schema)
        return rows, reports

    def accept(self, after: Manifest) -> None:
        """Commit: the manifest becomes the state, and files it no longer names are removed."""
        created = create(self.folder / "manifests" / f"{after.epoch:012d}.json", after.to_json())
        assert created, f"epoch {after.epoch} committed twice"
        for name in names(self.folder / "segments"):
            if name not in after.segments:
                remove(self.folder / "segments" / name)
        self.manifest = after

    def frame(self, ordinal: int, place: Place, table: pa.Table) -> pa.RecordBatch:
        """The rows of one stream in the frame that the plan prescribes for an input of a stage."""
        stream, frame = self.query.streams[ordinal], self.plan.frame
        stage, number = place.stage, place.input
        table = _with_row_ids(stream, table).select(stream.schema.names).cast(stream.schema).combine_chunks()
        columns: dict[str, pa.Array] = {
            STAGE: pa.array(np.full(table.num_rows, stage, dtype=np.int8)),
            STREAM: pa.array(np.full(table.num_rows, number, dtype=np.int8)),
        }
        if frame.time_type is not None:
            columns[TIME] = _flat(table[stream.event_time])
        key: list[Field] = [KeyValue(i) for i in self.plan.stages[stage].key]
        layout = self.plan.stages[stage].inputs[number]
        payload = [field for field, source in layout.sources if source.kind == "payload"]
        places = (*frame.keys[stage], *frame.payloads[stage][number])
        if not key:
            columns[pool_name(places[0])] = pa.array(np.zeros(table.num_rows, dtype=np.int8))
            places = places[1:]
        for column, field in zip(places, [*key, *payload], strict=True):
            columns[pool_name(column)] = self._values(ordinal, table, field)
        arrays = [columns.get(f.name, pa.nulls(table.num_rows, f.type)) for f in frame.schema]
        return self._hashed(pa.RecordBatch.from_arrays(arrays, schema=frame.schema), stage)

    def _values(self, ordinal: int, table: pa.Table, field: Field) -> pa.Array:
        if isinstance(field, Column):
            return _flat(table[field.name])
        key_class = self.query.classes[field.key_class]
        values = _flat(table[key_class.columns[ordinal]])
        return normalise_key(values.cast(key_class.type, safe=not is_floating(key_class.type)))

    def _hashed(self, frame: pa.RecordBatch, stage: int) -> pa.RecordBatch:
        """The frame with the hash of its key; a stage without a key has one hash."""
        hashes = np.zeros(frame.num_rows, dtype=np.int64)
        if self.plan.aggregate is not None and stage == self.plan.aggregate.stage:
            if keys := [frame.column(key_column(i)) for i in range(len(self.plan.aggregate.keys))]:
                hashes = self.hash_keys(keys).view(np.int64)
            return frame.append_column(HASH, pa.array(hashes))
        if self.plan.stages[stage].key:
            keys = [frame.column(pool_name(i)) for i in self.plan.frame.keys[stage]]
            hashes = self.hash_keys(keys).view(np.int64)
        return frame.set_column(frame.schema.get_field_index(HASH), HASH, pa.array(hashes))

    def _share(self, frame: pa.RecordBatch, slot: int) -> pa.RecordBatch:
        groups = group_of(frame.column(HASH).to_numpy().view(np.uint64), self.plan.partitions)
        return frame.filter(pa.array(np.asarray(self.manifest.assignment)[groups] == slot))

    def _tiers(self, task: SlotTask) -> Tiers:
        return Tiers(self.folder / "segments", self.memory, task.memory_bytes)


def drain(running: Generator[Emitted, None, SlotReport], into: list[Emitted]) -> SlotReport:
    """Run a step to its end; what it yields is appended, its report returned."""
    while True:
        try:
            into.append(next(running))
        except StopIteration as done:
            report: SlotReport = done.value
            return report


def _with_row_ids(stream: Stream, table: pa.Table) -> pa.Table:
    """The rows of a stream with a hash of each, where the query asks for one."""
    for derived in stream.derived:
        hashes = pandas_hash([_flat(table[name]) for name in stream.schema.names if name in table.schema.names])
        table = table.append_column(derived.name, pa.array(hashes.view(np.int64)))
    return table


def _flat(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)
