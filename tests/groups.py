"""What aggregates are owed: by hand, one row at a time, after every batch and in every output mode; and by DuckDB.

A *view* is what a reader knows who has taken in all that was shown: by group (and window) the last row of it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import duckdb
import pyarrow as pa

from tests.acting import epochs_in_process
from tests.oracle import combinations, rows_of, value_of
from tests.scenarios import Scenario
from watersmeet.query.aggregates import Aggregate
from watersmeet.query.types import is_floating
from watersmeet.state.measures import SPILLED_BYTES

Group = tuple[Any, ...]
View = dict[Group, tuple[Any, ...]]


def check_aggregates(scenario: Scenario) -> None:
    """In-process: each epoch shows what it owes, and a reader knows at the end what DuckDB says.

    Where generations of the join's state owe each other results, an epoch may show less than that; what was appended is
    then checked against all that was joined, and the rest at the end.
    """
    oracle = GroupsOracle(scenario)
    view, closed, has_spilled = {}, None, False
    for number, epoch in enumerate(epochs_in_process(scenario)):
        has_spilled = has_spilled or epoch.engine.manifest.totals.of(SPILLED_BYTES) > 0
        watermark = epoch.engine.manifest.watermark_us
        rows = shown(scenario, epoch.results)
        found = dict(rows)
        if not has_spilled:
            assert len(found) == len(rows), f"epoch {number}: a group is shown twice"
            owed = oracle.owed(number, watermark, closed)
            assert same_view(found, owed), f"epoch {number}: shown {found}, owed {owed}"
        elif scenario.mode == "append":
            assert len(found) == len(rows), f"epoch {number}: a group is shown twice"
            assert not found.keys() & view.keys(), f"epoch {number}: a group is shown again"
        if scenario.mode == "complete":
            view = {}
        view |= found
        closed = watermark if scenario.mode == "append" and watermark is not None else closed
        epoch.check_files()
    if has_spilled:
        final = oracle.final(watermark)
        assert same_view(view, final), f"in the end: shown {view}, owed {final}"
    chosen = [i for i, a in enumerate(scenario.query.aggregation.aggregates) if duckdb_can(a)]
    ours = {
        (*map(str, g[: oracle.key_count]), *g[oracle.key_count :]): tuple(v[i] for i in chosen) for g, v in view.items()
    }
    if not chosen and oracle.is_global:
        return  # nothing that DuckDB computes as Spark does
    if oracle.is_global and not any(oracle.joined):
        return  # SQL has a row of no rows; it is shown in complete mode only, which was checked above
    theirs = oracle.duckdb_view(watermark)
    assert same_view(ours, theirs), f"at the end: {ours}, DuckDB {theirs}"


class GroupsOracle:
    """The joined rows of a scenario, batch by batch, and what is owed of their groups."""

    def __init__(self, scenario: Scenario) -> None:
        self.aggregation = scenario.query.aggregation
        self.mode = scenario.mode
        self.key_count = len(self.aggregation.keys)
        self.is_global = not self.aggregation.keys and self.aggregation.window is None
        self.joined: list[list[dict]] = [[] for _ in scenario.batches]
        query = scenario.query
        found = combinations(
            query,
            scenario.batches,
            Counter(),
            idle_timeout_ms=scenario.setting.idle_timeout_ms,
            now_ms=[epoch.now_ms for epoch in scenario.epochs],
            starts_ms=scenario.starts_ms,
        )
        for batch, rows in found:
            times = [rows[s.name][s.event_time] for s in query.streams] if query.windowed else [0]
            keys = [_key(value_of(key.expression, rows)) for key in self.aggregation.keys]
            arguments = {a.argument: value_of(a.argument.expression, rows) for a in self._with_argument()}
            self.joined[batch].append({"keys": tuple(keys), "arguments": arguments, "time": max(times)})

    def owed(self, batch: int, watermark: int | None, before: int | None) -> View:
        """What the epoch of a batch must show; the watermark is that after the epoch, `before` what was closed."""
        groups = self._groups(row for rows in self.joined[: batch + 1] for row in rows)
        if self.mode == "complete":
            wanted = set(groups)
            if self.is_global and not groups:
                return {(): self._finished([])}
        elif self.mode == "update":
            wanted = set(self._groups(self.joined[batch]))
        else:
            ends = {group: group[-1] + self.aggregation.window.length_us for group in groups}
            wanted = {
                g
                for g in groups
                if watermark is not None and ends[g] <= watermark and (before is None or ends[g] > before)
            }
        return {group: self._finished(groups[group]) for group in wanted}

    def final(self, watermark: int | None) -> View:
        """What a reader knows at the end, whenever it was shown."""
        last = len(self.joined) - 1
        if self.mode != "update":
            return self.owed(last, watermark, None)
        groups = self._groups(row for rows in self.joined for row in rows)
        return {group: self._finished(rows) for group, rows in groups.items()}

    def _with_argument(self) -> list[Aggregate]:
        return [a for a in self.aggregation.aggregates if a.argument is not None]

    def _groups(self, rows: Iterable[dict]) -> dict[Group, list[dict]]:
        groups: dict[Group, list[dict]] = defaultdict(list)
        window = self.aggregation.window
        for row in rows:
            if window is None:
                groups[row["keys"]].append(row["arguments"])
                continue
            start = row["time"] - row["time"] % window.slide_us
            while start + window.length_us > row["time"]:
                groups[(*row["keys"], start)].append(row["arguments"])
                start -= window.slide_us
        return groups

    def _finished(self, rows: Sequence[Mapping]) -> tuple[Any, ...]:
        return tuple(
            _aggregate(a, [row[a.argument] for row in rows] if a.argument else rows)
            for a in self.aggregation.aggregates
        )

    def duckdb_view(self, watermark: int | None) -> dict[Group, tuple[Any, ...]]:
        """The aggregates of whole numbers, decimals and text at the end, as DuckDB computes them."""
        rows = [row for batch in self.joined for row in batch]
        chosen = [(i, a) for i, a in enumerate(self.aggregation.aggregates) if duckdb_can(a)]
        table = {f"k{i}": [row["keys"][i] for row in rows] for i in range(len(self.aggregation.keys))}
        table["t"] = [row["time"] for row in rows]
        columns = {
            name: pa.array([str(v) for v in values]) if name != "t" else pa.array(values, pa.int64())
            for name, values in table.items()
        }
        for i, a in chosen:
            if a.argument is not None:
                columns[f"v{i}"] = pa.array(
                    [row["arguments"][a.argument] for row in rows], _plain_type(a.argument.type)
                )
        joined = pa.table(columns)
        window = self.aggregation.window
        keys = [f"k{i}" for i in range(len(self.aggregation.keys))]
        source = "joined"
        if window is not None:
            length, slide = window.length_us, window.slide_us
            first = f"t - ((t % {slide}) + {slide}) % {slide} - {-(-length // slide) * slide}"
            source = (
                f"(SELECT *, unnest(range({first}, t + 1, {slide})) AS s FROM joined) WHERE s <= t AND t < s + {length}"
            )
            keys = [*keys, "s"]
        calls = [_duckdb_call(a, f"v{i}") for i, a in chosen]
        grouping = f" GROUP BY {', '.join(keys)}" if keys else ""
        with duckdb.connect() as connection:
            connection.register("joined", joined)
            found = connection.sql(f"SELECT {', '.join([*keys, *calls])} FROM {source}{grouping}").fetchall()
        view = {tuple(row[: len(keys)]): tuple(row[len(keys) :]) for row in found}
        if self.mode == "append":
            view = {g: v for g, v in view.items() if watermark is not None and g[-1] + window.length_us <= watermark}
        return view


def duckdb_can(aggregate: Aggregate) -> bool:
    kind = None if aggregate.argument is None else aggregate.argument.type
    return kind is None or not (is_floating(kind) or (aggregate.function == "avg" and pa.types.is_decimal(kind)))


def shown(scenario: Scenario, rows: pa.Table) -> list[tuple[Group, tuple[Any, ...]]]:
    """Rows of groups as the engine shows them, in the oracle's form."""
    count = len(scenario.query.aggregation.keys)
    found = []
    if scenario.query.aggregation.window is not None:
        starts = pa.chunked_array(
            [pa.compute.struct_field(c, "start") for c in rows["window"].chunks],
            rows.schema.field("window").type[0].type,
        )
        rows = rows.drop_columns("window").append_column("start", starts)
    for row in rows_of(rows):
        values = list(row.values())
        aggregates = values[count : count + len(scenario.query.aggregation.aggregates)]
        group = (*map(_key, values[:count]), *values[count + len(aggregates) :])
        found.append((group, tuple(map(_value, aggregates))))
    return found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return left == right and (left is None) == (right is None)


def same_view(left: Mapping[Group, tuple], right: Mapping[Group, tuple]) -> bool:
    return left.keys() == right.keys() and all(
        len(left[g]) == len(right[g]) and all(map(same, left[g], right[g])) for g in left
    )


def _key(value: Any) -> Any:
    """NaN is one group, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _value(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _aggregate(aggregate: Aggregate, values: Sequence[Any]) -> Any:
    if aggregate.argument is None:
        return len(values)
    known = [value for value in values if value is not None]
    match aggregate.function:
        case "count":
            return len(known)
        case "count_distinct":
            return len({_key(value) for value in known})
    if not known:
        return None
    match aggregate.function:
        case "min":
            return _value(min(known, key=_rank))
        case "max":
            return _value(max(known, key=_rank))
        case "sum":
            return sum(known)
        case "avg" if isinstance(known[0], Decimal):
            with localcontext(prec=60):
                return (sum(known) / len(known)).quantize(Decimal(1).scaleb(-aggregate.type.scale), ROUND_HALF_UP)
        case "avg":
            return sum(known) / len(known)
    raise ValueError(aggregate.function)


def _rank(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Times are whole microseconds here."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _duckdb_call(aggregate: Aggregate, column: str) -> str:
    match aggregate.function, aggregate.argument:
        case _, None:
            return "count(*)"
        case "count_distinct", _:
            return f"count(DISTINCT {column})"
        case "sum", argument if not pa.types.is_decimal(argument.type):
            return f"sum({column})::BIGINT"
        case function, _:
            return f"{function}({column})"
