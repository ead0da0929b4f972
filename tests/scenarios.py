"""Scenarios: a query, batches of rows, a schedule of mishaps, and the results they must have.

`tests/scenarios/*.json` are written by hand, `tests/strategies.py` generates more of the same kind, and a generated one
that fails is printed as such a file. Event times in a file count in its `unit` from 1970 (microseconds if none).

    streams    {name: {columns: {name: Spark type}, eventTime, delay}}
    where, within, windows, select    as in StreamJoin; the predicates of tests/predicates.py are registered
    batches    [{stream: [row, ...]}, ...]; a row is a list in the order of the columns
    trees      the shapes of the join, as in option plan, for the slots in turn (the default tree if none)
    setting    how the engine starts: slots, partitions, memory, budget, hash, chunk_rows, merge_rows, merge_bytes,
               spill, upkeep, orders, scatter, wander, feed_rows, parts, restless, young
    schedule   per batch: failures before it succeeds (see `tests/crashing.py`), a restart with other slots or budget,
               wiped memory, spoiled copies in it, the driver's clock; `spill`: (stage, group) pairs to be closed with
               it; `move`: (key, group, slot) triples, groups that go to slots before it; `clean`: so many epochs of
               clean-up after it, with `clean_failures`; the first tried in vain before if `lost`; `migrate`: the plan,
               and perhaps the strategy, that the query comes to after that, with
               `migrate_failures`; `abort`: a migration that is under way then is given up
    expected   the result rows, in any order; late: {stream: rows}
    groupBy, mode    of a query with aggregates in its select list; what it shows is then checked by `tests/groups.py`
    catches    mutants (see `tests/mutants.py`) for which this is the scenario to try first
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.oracle import Answer, canonical, nested_loop_join
from tests.predicates import FUNCTIONS
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.units import format_duration, parse_duration_us

ALL_GROUPS = -1
FOLDER = Path(__file__).parent / "scenarios"
UTC = pa.timestamp("us", tz="UTC")

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
    spoiled: bool = False
    now_ms: int = 0
    spill: tuple[tuple[int, int], ...] = ()
    clean: int = 0
    keep: bool = False
    lost: bool = False
    clean_failures: tuple[str, ...] = ()
    move: tuple[tuple[int, int, int], ...] = ()
    migrate: str = ""
    migrate_failures: tuple[str, ...] = ()
    abort: bool = False
    ask: str = ""
    """What is asked for after the batch, as in `rehearse` but without epochs; slots are taken modulo what there is."""


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
    merge_bytes: int | None = None
    """Bytes from which a row counts as several, and by which all else is bounded that bytes bound; None: many."""
    orders: int | None = None
    """A number that probe orders are drawn by, for every start anew; None: those of the trees."""
    scatter: int | None = None
    """A number that the slot of every group is drawn by, for every number of slots anew; None: contiguous groups."""
    wander: int | None = None
    """A number that the host of every task is drawn by, of two; None: all tasks run on one host."""
    feed_rows: int | None = None
    """Stored rows that an epoch feeds to a migration; None: as the engine does."""
    relocation: str | None = None
    """The policy by which groups change slots, at once; None: only as the schedule says."""
    parts: bool = False
    """Whether tasks write results as part files of the sink."""
    restless: int | None = None
    """A number that migrations are drawn by (`tests/restless.py`); None: only as the schedule says."""
    young: bool = False
    """Whether the query starts with the fallback plan, whatever `trees` says, and leaves it early."""


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
    catches: tuple[str, ...] = ()

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
            starts_ms=self.starts_ms,
        )

    @property
    def starts_ms(self) -> list[int]:
        """Per batch: when the run that joins it started, by the schedule."""
        starts: list[int] = []
        for epoch in self.epochs:
            starts.append(epoch.now_ms if not starts or epoch.slots or epoch.budget else starts[-1])
        return starts

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
        catches=tuple(value.get("catches", ())),
    )
    if "expected" not in value or scenario.mode is not None:
        return scenario
    return replace(scenario, expected=canonical(_table(scenario.output_schema, value["expected"], unit)))


def _epoch(entry: dict[str, Any]) -> Epoch:
    pairs = tuple((stage, group) for stage, group in entry.get("spill", ()))
    triples = tuple((key, group, slot) for key, group, slot in entry.get("move", ()))
    lists = {name: tuple(entry.get(name, ())) for name in ("failures", "clean_failures", "migrate_failures")}
    return Epoch(**{**entry, **lists, "spill": pairs, "move": triples})


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
