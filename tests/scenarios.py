"""Scenarios: a query, batches of rows, a schedule of mishaps, and the results they must have.

`tests/scenarios/*.json` are written by hand, `tests/strategies.py` generates more of the same kind, and a generated one
that fails is printed as such a file. Event times in a file count in its `unit` from 1970 (microseconds if none).

    streams    {name: {columns: {name: Spark type}, eventTime, delay}}
    where, within, windows, select    as in StreamJoin; the predicates of tests/predicates.py are registered
    batches    [{stream: [row, ...]}, ...]; a row is a list in the order of the columns
    trees      the shapes of the join, as in option plan, for the slots in turn (the default tree if none)
    setting    how the engine starts: slots, partitions, memory, budget, hash, chunk_rows, merge_rows, spill, upkeep
    schedule   per batch: failures before it succeeds ("during" or "after" the work, "crash": after it, and restart,
               or "closing": committed, but then a restart before windows of an aggregation are closed),
               a restart with other slots or budget, wiped memory, the driver's clock; `spill`: (stage, group) pairs to
               be closed with it; `clean`: so many epochs of clean-up after it, each tried in vain before if `lost`
    expected   the result rows, in any order; late: {stream: rows}
    groupBy, mode    of a query with aggregates in its select list; what it shows is then checked by `tests/groups.py`
"""

import json
import math
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.oracle import Answer, canonical, nested_loop_join
from tests.predicates import FUNCTIONS
from watersmeet.adaptation.clean_up import cleaning_orders, is_owing
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.engine.compaction import Merging
from watersmeet.engine.inbox import chunks
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.epoch import must_close
from watersmeet.runtime.inprocess import InProcessQuery, pandas_hash
from watersmeet.state.manifest import Order
from watersmeet.state.tiers import epoch_of
from watersmeet.units import format_duration, parse_duration_us

ALL_GROUPS = -1
CLEAN_UPS_MAX = 300
FOLDER = Path(__file__).parent / "scenarios"
UTC = pa.timestamp("us", tz="UTC")
EAGER = Merging(small_fan_in=2, tier_ratio=1.5)
"""Merges that do not wait for many batches."""
STEPWISE = {"rows_per_arrived": 0, "share_of_state": 1 << 40, "fan_in": 2, "cells": 4, "share_every": 1}
_RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None

_TYPES = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {type_: name for name, type_ in _TYPES.items()}


@dataclass(frozen=True)
class Epoch:
    """What befalls one epoch, before its batch is committed at last."""

    failures: tuple[str, ...] = ()
    slots: int | None = None
    budget: int | None = None
    wiped: bool = False
    now_ms: int = 0
    spill: tuple[tuple[int, int], ...] = ()
    clean: int = 0
    keep: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Setting:
    """How the engine is set up; partitions and hash are for ever, the rest until a restart."""

    slots: int = 1
    partitions: int = 8
    memory: bool = True
    budget: int | None = None
    hash: str = "pandas"
    chunk_rows: int | None = None
    idle_timeout_ms: int | None = None
    spill: str | None = None
    """The policy by which groups are closed when the budget is exceeded; None: only as the schedule says."""
    upkeep: str = "reset"
    merge_rows: int | None = None
    """Rows that an epoch may merge, in few cells and in every epoch; None: as the engine does."""


@dataclass(frozen=True)
class Scenario:
    """`expected` is None for a generated scenario: the oracle knows."""

    name: str
    streams: tuple[Stream, ...]
    where: tuple[str, ...]
    within: str | None
    windows: Mapping[str, str]
    select: tuple[str, ...]
    batches: list[dict[str, pa.Table]]
    setting: Setting = Setting()
    schedule: tuple[Epoch, ...] = ()
    expected: Counter | None = None
    late: Mapping[str, int] = field(default_factory=dict)
    trees: tuple[str, ...] = ()
    group_by: tuple[str, ...] = ()
    mode: str | None = None
    """The output mode of a query with aggregates; None for one without."""

    @cached_property
    def query(self) -> JoinQuery:
        return build_query(
            self.streams,
            where=self.where,
            within=self.within,
            windows=self.windows,
            select=self.select,
            group_by=self.group_by,
            functions=FUNCTIONS,
        )

    @cached_property
    def answer(self) -> Answer:
        """What the oracle says."""
        return nested_loop_join(
            self.query,
            self.batches,
            idle_timeout_ms=self.setting.idle_timeout_ms,
            now_ms=[epoch.now_ms for epoch in self.epochs],
        )

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """One entry per batch."""
        return self.schedule + (Epoch(),) * (len(self.batches) - len(self.schedule))

    @property
    def output_schema(self) -> pa.Schema:
        types = {(s.name, f.name): f.type for s in self.streams for f in s.schema}
        return pa.schema([(i.name, types[i.column.stream, i.column.name]) for i in self.query.select])

    def __repr__(self) -> str:
        return to_json(self)


# --- running one -----------------------------------------------------------------------------------------------------


def weak_hash(keys: list[pa.Array]) -> np.ndarray:
    """Three values for all keys, far apart: most keys collide, and the groups are few."""
    return (pandas_hash(keys) % np.uint64(3)) << np.uint64(62)


def low_hash(keys: list[pa.Array]) -> np.ndarray:
    """A hash of few bits at both ends of the space."""
    mixed = pandas_hash(keys)
    return ((mixed & np.uint64(1)) * np.uint64(0xFFFFFFFF00000000)) | (mixed >> np.uint64(62))


HASHES = {"pandas": pandas_hash, "weak": weak_hash, "low": low_hash}
Runner = Callable[[Scenario], pa.Table]


def run_in_process(scenario: Scenario) -> pa.Table:
    """The results of all batches, through the whole schedule."""
    return pa.concat_tables(epoch.results for epoch in epochs_in_process(scenario))


def check(scenario: Scenario, runner: Runner = run_in_process) -> None:
    """The runner, the oracle and the file agree. Mishaps in the schedule are for runners that can act them out."""
    expected = scenario.answer.results
    if scenario.expected is not None:
        assert expected == scenario.expected, difference(expected, scenario.expected, "oracle", "file")
        assert dict(scenario.answer.late) == dict(scenario.late), "late rows of oracle and file differ"
    found = canonical(runner(scenario))
    assert found == expected, difference(found, expected, "runner", "oracle")


def check_every_epoch(scenario: Scenario) -> None:
    """In-process: after each epoch the results so far are the oracle's, and state, memory and counts are in order.

    While generations owe each other results, those so far are among the oracle's; in the end they are the same.
    """
    so_far, expected = Counter(), Counter()
    for number, epoch in enumerate(epochs_in_process(scenario)):
        found = canonical(epoch.results)
        so_far += found
        expected += scenario.answer.batches[number]
        if not is_owing(epoch.engine.manifest):
            assert so_far == expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        assert so_far <= expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        if not epoch.has_cleaned and scenario.setting.spill is None:  # what a policy decides does not outlive a crash
            assert all(canonical(attempt) == found for attempt in epoch.attempts), "a repeated attempt found others"
        assert epoch.results.schema.equals(scenario.output_schema), "results have other types"
        epoch.check_files()
    totals = {name: rows for name, rows in epoch.totals.items() if name.startswith("late.")}
    assert so_far == expected, f"in the end: {difference(so_far, expected, 'engine', 'oracle')}"
    late = {f"late.{name}": rows for name, rows in scenario.answer.late.items()}
    assert totals == late, f"late rows: engine {totals}, oracle {late}"


@dataclass(frozen=True)
class Committed:
    """An epoch that has just been committed, while its files are there; `attempts` are what failed ones found."""

    results: pa.Table
    engine: InProcessQuery
    attempts: tuple[pa.Table, ...] = ()
    has_cleaned: bool = False

    @property
    def totals(self) -> Mapping[str, int]:
        return self.engine.manifest.totals

    def check_files(self) -> None:
        manifest = self.engine.manifest
        files = {path.name: path.stat().st_size for path in (self.engine.folder / "segments").glob("*")}
        named = {ref.name: ref.bytes for ref in manifest.segments.values()}
        assert files == named, f"segments on disk {files}, in the manifest {named}"
        used = {extent.segment for stage in manifest.extents for slot in stage for extent in slot}
        assert used == set(named), "the manifest names segments without extents, or the other way round"
        if self.engine.memory is not None:
            held = {path.name for path in self.engine.memory.glob("*")}
            stale = {name for name in held - named.keys() if epoch_of(name) < manifest.epoch}
            assert not stale, f"memory holds {stale}, which the manifest no longer names"
        if self.engine.memory is not None and self.engine.budget is not None:
            resident = sum(path.stat().st_size for path in self.engine.memory.glob("*"))
            budget = self.engine.budget * manifest.slots
            assert resident <= budget, f"memory holds {resident}, over the budget {budget} of all slots"
            closed = {e.segment for stage in manifest.extents for slot in stage for e in slot if not e.is_active}
            active = {e.segment for stage in manifest.extents for slot in stage for e in slot if e.is_active}
            shared = {path.name for path in self.engine.memory.glob("*")} & (closed - active)
            stale = {name for name in shared if epoch_of(name) >= manifest.epoch}
            assert not stale, f"memory holds {stale}, which is closed"


def epochs_in_process(scenario: Scenario) -> Iterator[Committed]:
    """Act the scenario out; each epoch is handed over right after it was committed."""
    with tempfile.TemporaryDirectory(dir=_RAM, prefix="watersmeet-test-") as folder:
        engine = _start(scenario, Path(folder), scenario.setting)
        setting = scenario.setting
        for batch, epoch in zip(scenario.batches, scenario.epochs, strict=True):
            if epoch.slots is not None or epoch.budget is not None:
                setting = replace(setting, slots=epoch.slots or setting.slots, budget=epoch.budget or setting.budget)
                engine = _start(scenario, Path(folder), setting)
            if epoch.wiped and engine.memory is not None:
                shutil.rmtree(engine.memory, ignore_errors=True)
            clock = {"now_ms": epoch.now_ms, "idle_timeout_ms": setting.idle_timeout_ms}
            attempts = []
            engine.orders = _spilling(engine, epoch.spill)
            for failure in epoch.failures:
                if failure == "closing":
                    continue
                if failure == "during":
                    _fail_during(engine, batch, clock)
                    continue
                attempts.append(engine.attempt(batch, **clock)[0])
                if failure == "crash":
                    engine = _start(scenario, Path(folder), setting)
                    engine.orders = _spilling(engine, epoch.spill)
            if "closing" not in epoch.failures:
                shown = [engine.run(batch, **clock)]
                kept = range(engine.manifest.slots) if epoch.keep else ()
                for _ in range(epoch.clean):
                    orders = cleaning_orders(engine.plan, engine.manifest, bytes_at_once=1000, kept_slots=kept)
                    if orders and epoch.lost:
                        engine.attempt_orders(orders)
                        engine = _start(scenario, Path(folder), setting)
                    if orders:
                        shown.append(engine.run_orders(orders))
                if batch is scenario.batches[-1]:
                    shown += _at_most(CLEAN_UPS_MAX, engine.clean_up(bytes_at_once=3000, kept_slots=kept))
                yield Committed(pa.concat_tables(shown), engine, tuple(attempts), len(shown) > 1)
                continue
            results, after = engine.attempt(batch, **clock)
            engine.accept(after)
            if must_close(engine.plan, engine.manifest):
                engine.attempt_closing()  # and lost
            engine = _start(scenario, Path(folder), setting)
            closed = engine.close_windows()
            if batch is scenario.batches[-1]:
                owed = list(_at_most(CLEAN_UPS_MAX, engine.clean_up()))
                closed = pa.concat_tables([*([] if closed is None else [closed]), *owed]) if owed else closed
            yield Committed(results if closed is None else pa.concat_tables([results, closed]), engine, tuple(attempts))


def _spilling(engine: InProcessQuery, pairs: Iterable[tuple[int, int]]) -> tuple[Order, ...]:
    """Orders to close groups, given as (stage, group); both are taken modulo what there is."""
    stages = [number for number, stage in enumerate(engine.plan.stages) if not stage.hops]
    partitions = engine.plan.partitions
    groups: dict[tuple[int, int], set[int]] = defaultdict(set)
    for stage, named in pairs if stages else ():
        for group in range(partitions) if named == ALL_GROUPS else (named % partitions,):
            groups[stages[stage % len(stages)], engine.manifest.assignment[group]].add(group)
    return tuple(Order(stage, slot, spill=tuple(sorted(chosen))) for (stage, slot), chosen in groups.items())


def _at_most(count: int, epochs: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The epochs of a clean-up, which must come to an end."""
    for number, epoch in enumerate(epochs):
        assert number < count, f"the clean-up has not ended after {count} epochs"
        yield epoch


class _Torn(Exception):
    pass


def _fail_during(engine: InProcessQuery, batch: Mapping[str, pa.Table], clock: Mapping[str, Any]) -> None:
    """An attempt that dies after its first chunk."""
    cut = engine.cut

    def torn(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        for chunk in cut(frames):
            yield chunk
            raise _Torn

    engine.cut = torn
    try:
        engine.attempt(batch, **clock)
    except _Torn:
        pass
    finally:
        engine.cut = cut


def _start(scenario: Scenario, folder: Path, setting: Setting) -> InProcessQuery:
    """A run on the folder; like every run it starts with empty memory."""
    shutil.rmtree(folder / "memory", ignore_errors=True)
    rows_max = setting.chunk_rows
    return InProcessQuery(
        scenario.query,
        folder / "checkpoint",
        slots=setting.slots,
        partitions=setting.partitions,
        memory=folder / "memory" if setting.memory else None,
        memory_budget_bytes=setting.budget,
        hash_keys=HASHES[setting.hash],
        trees=[parse_tree(text, [s.name for s in scenario.query.streams]) for text in scenario.trees],
        cut=chunks if rows_max is None else lambda frames: chunks(frames, rows_max=rows_max),
        mode=scenario.mode,
        spill=None
        if setting.spill is None or setting.budget is None
        else SpillSettings(policy=policy_named(setting.spill), budget_bytes=setting.budget, upkeep=setting.upkeep),
        merging=EAGER if setting.merge_rows is None else replace(EAGER, rows_min=setting.merge_rows, **STEPWISE),
    )


def difference(found: Counter, expected: Counter, ours: str, theirs: str) -> str:
    extra, missing = found - expected, expected - found
    too_many = f"{ours} has {extra.total()} too many {_few(extra)}"
    return f"{too_many} and lacks {missing.total()} {_few(missing)} of {theirs}"


def _few(rows: Counter) -> list:
    return list(rows.items())[:5]


# --- files -----------------------------------------------------------------------------------------------------------


def load_scenarios(*, aggregates: bool = False) -> list[Scenario]:
    """All hand-written scenarios, by name: of joins, or of joins with aggregates."""
    found = [from_json(path.stem, path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    return [scenario for scenario in found if (scenario.mode is not None) == aggregates]


def from_json(name: str, text: str) -> Scenario:
    value = json.loads(text)
    unit = parse_duration_us(value.get("unit", "1 microsecond"))
    streams = tuple(
        Stream(
            stream,
            pa.schema([(column, _type(kind)) for column, kind in spec["columns"].items()]),
            spec.get("eventTime"),
            parse_duration_us(spec.get("delay", "0 seconds"), allow_zero=True),
        )
        for stream, spec in value["streams"].items()
    )
    batches = [
        {s.name: _table(s.schema, batch[s.name], unit) for s in streams if s.name in batch}
        for batch in value["batches"]
    ]
    scenario = Scenario(
        name=name,
        streams=streams,
        where=tuple(value["where"]),
        within=value.get("within"),
        windows=value.get("windows", {}),
        select=tuple(value.get("select", ())),
        batches=batches,
        setting=Setting(**value.get("setting", {})),
        schedule=tuple(_epoch(entry) for entry in value.get("schedule", ())),
        late=value.get("late", {}),
        trees=tuple(value.get("trees", ())),
        group_by=tuple(value.get("groupBy", ())),
        mode=value.get("mode"),
    )
    if "expected" not in value or scenario.mode is not None:
        return scenario
    return replace(scenario, expected=canonical(_table(scenario.output_schema, value["expected"], unit)))


def _epoch(entry: dict[str, Any]) -> Epoch:
    failures, pairs = tuple(entry.get("failures", ())), tuple((stage, group) for stage, group in entry.get("spill", ()))
    return Epoch(**{**entry, "failures": failures, "spill": pairs})


def to_json(scenario: Scenario) -> str:
    """The scenario as the text of a file, with the oracle's results."""
    try:
        answer = scenario.answer
    except Exception:  # a scenario that cannot even be asked is printed all the same
        answer = Answer()
    value = {
        "streams": {
            s.name: {
                "columns": {f.name: _type_name(f.type) for f in s.schema},
                **({"eventTime": s.event_time} if s.event_time else {}),
                "delay": format_duration(s.delay_us),
            }
            for s in scenario.streams
        },
        "where": list(scenario.where),
        "within": scenario.within,
        "windows": dict(scenario.windows),
        "select": list(scenario.select),
        "groupBy": list(scenario.group_by),
        "mode": scenario.mode,
        "trees": list(scenario.trees),
        "batches": [{name: _rows(table) for name, table in batch.items()} for batch in scenario.batches],
        "setting": _given(scenario.setting),
        "schedule": [_given(epoch) for epoch in scenario.schedule],
        "late": dict(answer.late),
        "expected": [[_written(v) for v in row] for row in answer.results.elements()],
    }
    return (
        "{\n"
        + ",\n".join(f' "{k}": {json.dumps(v, default=str)}' for k, v in value.items() if v or k == "expected")
        + "\n}"
    )


def _given(value: Any) -> dict[str, Any]:
    changed = {f.name: getattr(value, f.name) for f in fields(value)}
    return {name: v for name, v in changed.items() if v != getattr(type(value)(), name)}


def _type(kind: str) -> pa.DataType:
    if kind.startswith("decimal"):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _TYPES[kind]


def _type_name(type_: pa.DataType) -> str:
    return f"decimal({type_.precision},{type_.scale})" if pa.types.is_decimal(type_) else _NAMES[type_]


def _table(schema: pa.Schema, rows: list[list[Any]], unit_us: int) -> pa.Table:
    return table_of(schema, [[_read(v, f.type, unit_us) for v, f in zip(row, schema, strict=True)] for row in rows])


def table_of(schema: pa.Schema, rows: Iterable[Iterable[Any]]) -> pa.Table:
    """A table of Python values; times are whole microseconds."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [_array(values, f.type) for values, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Iterable[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def _read(value: Any, type_: pa.DataType, unit_us: int) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(type_):
        return value * unit_us
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_date(type_):
        return date.fromisoformat(value)
    if pa.types.is_floating(type_):
        return float(value)
    return value.encode() if pa.types.is_binary(type_) else value


def _rows(table: pa.Table) -> list[list[Any]]:
    columns = []
    for i, f in enumerate(table.schema):
        timed = pa.types.is_timestamp(f.type)
        columns.append(
            [_written(v) for v in (table.column(i).cast(pa.int64()) if timed else table.column(i)).to_pylist()]
        )
    return [list(row) for row in zip(*columns, strict=True)]


def _written(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.decode()
    return str(value) if isinstance(value, Decimal | date) else value
