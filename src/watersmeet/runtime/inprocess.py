"""The engine without Spark: the same `step`, frames and commit rules, driven by a loop, for tests and simulation.

State lives in files as it does on Spark. Crashes are simulated by making a new runner on the same folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.fold import SlotReport
from watersmeet.engine.inbox import chunks, normalise_key
from watersmeet.engine.step import step
from watersmeet.errors import QueryError
from watersmeet.plan.frame import HASH, STREAM, TIME, key_name, pool_name
from watersmeet.plan.mjoin import MJoinPlan, plan_mjoin
from watersmeet.plan.partitioning import DEFAULT_PARTITIONS, group_of
from watersmeet.query.logical import JoinQuery, internal_name
from watersmeet.query.types import is_floating
from watersmeet.runtime.epoch import Intake, commit, named, slot_tasks
from watersmeet.state.manifest import Manifest, before_first_epoch, from_json, reassign
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
    ) -> None:
        if any(item.column is None for item in query.select) or query.filters:
            raise QueryError("filters and expressions in the select list are evaluated by Spark")
        self.query = query
        self.plan: MJoinPlan = plan_mjoin(query, partitions)
        self.folder, self.memory, self.budget = folder, memory, memory_budget_bytes
        self.hash_keys, self.cut = hash_keys, cut
        manifests = names(folder / "manifests")
        if manifests:
            self.manifest = from_json((folder / "manifests" / manifests[-1]).read_bytes())
        else:
            self.manifest = before_first_epoch(len(query.streams), partitions, slots)
        self.manifest = reassign(self.manifest, slots)

    def run(self, batch: Mapping[str, pa.Table], *, now_ms: int = 0, idle_timeout_ms: int | None = None) -> pa.Table:
        """Run one epoch over the rows of a batch and commit it; its results."""
        results, after = self.attempt(batch, now_ms=now_ms, idle_timeout_ms=idle_timeout_ms)
        self.accept(after)
        return results

    def attempt(
        self, batch: Mapping[str, pa.Table], *, now_ms: int = 0, idle_timeout_ms: int | None = None
    ) -> tuple[pa.Table, Manifest]:
        """Run one epoch without committing it, as a task that fails afterwards would."""
        frames = [self.frame(i, batch[s.name]) for i, s in enumerate(self.query.streams) if s.name in batch]
        intake = Intake(
            tuple(batch[s.name].num_rows if s.name in batch else 0 for s in self.query.streams),
            tuple(self._latest(s.event_time, batch.get(s.name)) for s in self.query.streams),
        )
        attempt = uuid.uuid4().hex[:8]  # a name no attempt before a restart has used
        outputs: list[pa.RecordBatch] = []
        reports: list[SlotReport] = []
        assignment = np.asarray(self.manifest.assignment)
        for task in slot_tasks(self.manifest):
            share = [self._share(frame, assignment, task.slot) for frame in frames]
            tiers = Tiers(self.folder / "segments", self.memory, self.budget)
            running = step(self.plan, named(task, attempt), share, tiers, self.cut)
            while True:
                try:
                    outputs.append(next(running))
                except StopIteration as done:
                    reports.append(done.value)
                    break
        after = commit(
            self.plan, self.manifest, reports, intake, batch=None, now_ms=now_ms, idle_timeout_ms=idle_timeout_ms
        )
        results = pa.Table.from_batches(outputs, schema=self.plan.output_schema)
        columns = [internal_name(item.column) for item in self.query.select if item.column]
        return results.select(columns).rename_columns([item.name for item in self.query.select]), after

    def accept(self, after: Manifest) -> None:
        """Commit: the manifest becomes the state, and files it no longer names are removed."""
        created = create(self.folder / "manifests" / f"{after.epoch:012d}.json", after.to_json())
        assert created, f"epoch {after.epoch} committed twice"
        for name in names(self.folder / "segments"):
            if name not in after.segments:
                remove(self.folder / "segments" / name)
        self.manifest = after

    def frame(self, ordinal: int, table: pa.Table) -> pa.RecordBatch:
        """The rows of one stream in the frame that the plan prescribes."""
        stream, schema = self.query.streams[ordinal], self.plan.frame.schema
        table = table.select(stream.schema.names).cast(stream.schema).combine_chunks()
        columns: dict[str, pa.Array] = {STREAM: pa.array(np.full(table.num_rows, ordinal, dtype=np.int8))}
        keys = [
            normalise_key(_flat(table[c.columns[ordinal]]).cast(c.type, safe=not is_floating(c.type)))
            for c in self.query.key
        ]
        columns[HASH] = pa.array(self.hash_keys(keys).view(np.int64))
        if self.plan.frame.time_type is not None:
            columns[TIME] = _flat(table[stream.event_time])
        columns |= {key_name(i): key for i, key in enumerate(keys)}
        payload = self.plan.stores[ordinal].payload.names
        columns |= {
            pool_name(i): _flat(table[n]) for n, i in zip(payload, self.plan.frame.columns[ordinal], strict=True)
        }
        full = [columns.get(f.name, None) for f in schema]
        arrays = [pa.nulls(table.num_rows, f.type) if c is None else c for c, f in zip(full, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _share(self, frame: pa.RecordBatch, assignment: npt.NDArray[np.int64], slot: int) -> pa.RecordBatch:
        groups = group_of(frame.column(HASH).to_numpy().view(np.uint64), self.plan.partitions)
        return frame.filter(pa.array(assignment[groups] == slot))

    def _latest(self, event_time: str | None, table: pa.Table | None) -> int | None:
        if table is None or event_time is None or not self.plan.windowed:
            return None
        latest = pc.max(table[event_time].cast(pa.timestamp("us"))).cast(pa.int64()).as_py()
        return None if latest is None else int(latest)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)
