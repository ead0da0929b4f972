"""Hypothesis strategies for scenarios: join graphs, join trees, streams with disorder, duplicates and NULLs,
mishaps.

Everything is drawn from small ranges, so that edges are hit and not missed: few keys (skewed), event times in a few
dozen microseconds around a window of a few, payloads that often tie. A row is drawn as one number, so that Hypothesis
spends its choices on structure, and shrinks by leaving rows out.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.drawn_schedules import schedule, settings
from tests.drawn_trees import trees, with_weights
from tests.scenarios import UTC, Scenario, table_of
from watersmeet.query.logical import Stream
from watersmeet.query.types import is_numeric

NAMES = "abcde"
ROWS_MAX = {2: 12, 3: 7, 4: 4, 5: 3}
"""Rows per stream and batch, by the number of streams: a skewed key makes results of nearly all combinations."""

_DECIMALS = (pa.decimal128(6, 2), pa.decimal128(9, 3))
KEY_FAMILIES = (
    (pa.int32(), pa.int64()),
    (pa.int64(),),
    (pa.string(),),
    (pa.float64(),),
    (pa.float32(), pa.float64()),
    _DECIMALS,
    (*_DECIMALS, pa.int32(), pa.int64()),
    (pa.int32(), pa.int64(), pa.float64(), pa.decimal128(6, 2)),
    (pa.date32(),),
    (pa.bool_(),),
    (pa.binary(),),
    (UTC,),
)
GRAPHS = ("common", "common", "composite", "chain", "chain", "star", "cycle", "partial", "free")
PAYLOAD_TYPES = (pa.int32(), pa.int64(), pa.float64(), pa.decimal128(6, 2), pa.string())
NULLS = 0.07
ORIGINS_US = (0, -25, 1_700_000_000_000_000)
ENDS_US = (-(1 << 63), (1 << 63) - 1)
"""Of all times; windows of results may not reach beyond them, so scenarios with aggregates stay away."""
WINDOWS_US = (1, 3, 8, 16, 24)
"""Times, delays and windows are drawn around one of these; from 16 on, a time bucket holds several times."""


def value(type_: pa.DataType, distinct: int, rng: Random) -> Any:
    """One of few values of a type, skewed, sometimes NULL; values with one number are equal across types."""
    return None if rng.random() < NULLS else rng.choice(_known(type_)[:distinct])


def _known(type_: pa.DataType) -> Sequence[Any]:
    if pa.types.is_floating(type_):
        return (0.0, math.nan, 1.0, -0.0, 1.0, 2.0, math.nan, -math.inf, 1.5)
    if pa.types.is_decimal(type_):
        return [Decimal(n) for n in ("0", "1", "0", "1", "1.5", "2", "-1")]
    if pa.types.is_date(type_):
        return (date(2024, 2, 29), date(2024, 3, 1), date(2024, 2, 29), date(1969, 12, 31))
    if pa.types.is_boolean(type_):
        return (False, True)
    if pa.types.is_string(type_):
        return ("x", "", "x", "y", "\u00e9", "xx", "w" * 120)
    if pa.types.is_binary(type_):
        return (b"x", b"", b"x", b"\x00", b"y", b"w" * 120)
    return (0, 1, 0, 2, 0, 1, 3)


@st.composite
def scenarios(
    draw: st.DrawFn,
    counts: Sequence[int] = (2, 3, 3, 3, 3, 4, 4, 5),
    origins_us: Sequence[int] = (*ORIGINS_US, *ORIGINS_US, *ENDS_US),
) -> Scenario:
    count = draw(st.sampled_from(counts))
    names = NAMES[:count]
    classes = draw(_classes(count))
    kinds = [draw(st.sampled_from(KEY_FAMILIES)) for _ in classes]
    window = draw(st.sampled_from(WINDOWS_US))
    within, windows = draw(_windows(names, window))
    windowed = within is not None or bool(windows)
    time_type = draw(st.sampled_from((UTC, UTC, pa.timestamp("us"))))
    delays = st.sampled_from((0, 0, 1, window // 4, window))
    streams = tuple(
        _stream(
            draw,
            name,
            {c: kinds[c] for c, members in enumerate(classes) if i in members},
            windowed,
            time_type,
            draw(delays),
        )
        for i, name in enumerate(names)
    )
    batches = draw(_batches(streams, window, draw(st.sampled_from(origins_us))))
    drawn_setting = draw(settings())
    where = (*draw(_equalities(names, classes)), *draw(_links(streams, classes)), *draw(_residuals(streams)))
    asked = Scenario("generated", streams, where, within, windows, draw(_select(streams)), batches, drawn_setting)
    drawn = draw(trees(asked.query))
    plans = draw(_migrations(asked, len(batches)))
    drawn_schedule = draw(schedule(plans))
    return replace(asked, trees=drawn, schedule=drawn_schedule)


@st.composite
def _migrations(draw: st.DrawFn, asked: Scenario, epochs: int) -> list[tuple[str, ...]]:
    """Per epoch, the trees that the query migrates to after it; mostly none."""
    if draw(st.sampled_from((True, True, False))):
        return [()] * epochs
    return [draw(trees(asked.query)) for _ in range(epochs)]


@st.composite
def aggregate_scenarios(draw: st.DrawFn) -> Scenario:
    """A scenario whose joined rows are grouped and aggregated, shown in one of the output modes."""
    asked = draw(scenarios(counts=(2, 2, 2, 3), origins_us=ORIGINS_US))
    windowed = asked.within is not None or bool(asked.windows)
    columns = [(f"{s.name}.{f.name}", f.type) for s in asked.streams for f in s.schema]
    numbers = [(name, kind) for name, kind in columns if is_numeric(kind)]
    group_by = [name for name, _ in draw(st.lists(st.sampled_from(columns), unique=True, max_size=2))]
    if draw(st.sampled_from((False, False, True))):
        group_by.append(f"{draw(st.sampled_from(numbers))[0]} + 1")
    modes = ["update", "complete"]
    if windowed and draw(st.sampled_from((True, True, True, False))):
        length = draw(st.sampled_from((1, 3, 8, 10, 25)))
        slide = draw(st.integers(1, length))
        group_by.append(f"window(result_time, '{length} microseconds', '{slide} microseconds')")
        modes += ["append"] * 3
    calls = draw(st.sampled_from((["count(*)"], ["count(*)"], [])))
    for _ in range(draw(st.integers(0 if calls or group_by else 1, 4))):
        if draw(st.booleans()):
            name, _ = draw(st.sampled_from(numbers))
            argument = draw(st.sampled_from((name, name, f"{name} * 2", f"abs({name})")))
            calls.append(f"{draw(st.sampled_from(('sum', 'avg', 'min', 'max')))}({argument})")
        else:
            name, _ = draw(st.sampled_from(columns))
            calls.append(
                draw(st.sampled_from((f"count({name})", f"count(DISTINCT {name})", f"min({name})", f"max({name})")))
            )
    schedule = asked.schedule
    if "append" in modes:
        schedule = tuple(
            replace(epoch, failures=(*epoch.failures, *draw(st.sampled_from(((), (), ("closing",))))))
            for epoch in schedule
        )
    select = [f"{call} AS x{i}" for i, call in enumerate(calls)] or [_selected(group_by[0])]
    grouped = tuple(dict.fromkeys(group_by))
    mode = draw(st.sampled_from(modes))
    found = replace(asked, select=tuple(select), group_by=grouped, mode=mode, schedule=schedule)
    return draw(with_weights(found)) if draw(st.booleans()) else found


def _selected(key: str) -> str:
    """A group key as a result column."""
    return "window.start AS key" if key.startswith("window") else f"{key} AS key"


@st.composite
def _classes(draw: st.DrawFn, count: int) -> list[frozenset[int]]:
    """The join graph, as the streams of each key class; column `k<n>` of a stream is its member of class n.

    Streams that no class connects to the others are linked by a comparison.
    """
    everyone = range(count)
    match draw(st.sampled_from(GRAPHS)):
        case "common":
            classes = [frozenset(everyone)]
        case "composite":
            classes = [frozenset(everyone)] * 2
        case "chain":
            classes = [frozenset(pair) for pair in pairwise(everyone)]
        case "star":
            classes = [frozenset((0, i)) for i in everyone if i]
        case "cycle":
            classes = [frozenset((i, (i + 1) % count)) for i in everyone]
        case "partial":
            classes = [frozenset(everyone), draw(_some(count))]
        case _:
            classes = draw(st.lists(_some(count), max_size=3))
    order = draw(st.permutations(everyone))
    return [frozenset(order[i] for i in members) for members in classes]


def _some(count: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(0, count - 1), min_size=2, max_size=count)


def _stream(
    draw: st.DrawFn,
    name: str,
    keys: dict[int, tuple[pa.DataType, ...]],
    windowed: bool,
    time_type: pa.DataType,
    delay_us: int,
) -> Stream:
    columns = [(f"k{i}", draw(st.sampled_from(family))) for i, family in keys.items()]
    columns.append(("p", draw(st.sampled_from(PAYLOAD_TYPES[:4]))))
    if draw(st.booleans()):
        columns.append(("s", draw(st.sampled_from(PAYLOAD_TYPES))))
    columns.insert(draw(st.integers(0, len(columns))), ("ts", time_type))
    timed = windowed or draw(st.booleans())
    return Stream(name, pa.schema(columns), "ts" if timed else None, delay_us)


@st.composite
def _windows(draw: st.DrawFn, names: str, window: int) -> tuple[str | None, dict[str, str]]:
    match draw(st.sampled_from(("within", "within", "within", "each", "some", "none"))):
        case "none":
            return None, {}
        case "within":
            return f"{window} microseconds", {}
        case "each":
            some = list(names)
        case _:
            some = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    sizes = st.sampled_from((window, window + 1, 2 * window, 1 + window // 2))
    return None, {name: f"{draw(sizes)} microseconds" for name in some}


@st.composite
def _equalities(draw: st.DrawFn, names: str, classes: list[frozenset[int]]) -> list[str]:
    """A tree over the streams of each class."""
    links = []
    for number, members in enumerate(classes):
        ordered = [names[i] for i in sorted(members)]
        for i, name in enumerate(ordered[1:], start=1):
            other = ordered[draw(st.integers(0, i - 1))]
            links.append(f"{other}.k{number} = {name}.k{number}")
    return [" AND ".join(draw(st.permutations(links)))] if links else []


@st.composite
def _links(draw: st.DrawFn, streams: tuple[Stream, ...], classes: list[frozenset[int]]) -> list[str]:
    """Comparisons that connect what the classes leave apart."""
    links = []
    bound = {0}
    while rest := set(range(len(streams))) - bound:
        reached = next((c for c in classes if c & bound and c & rest), None)
        if reached is None:
            near, far = draw(st.sampled_from(sorted(bound))), min(rest)
            op = draw(st.sampled_from(("<", "<=", "<>", ">=")))
            links.append(f"{streams[near].name}.p {op} {streams[far].name}.p")
            reached = {far}
        bound |= reached
    return links


@st.composite
def _residuals(draw: st.DrawFn, streams: tuple[Stream, ...]) -> list[str]:
    predicates = []
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2)))):
        x, y = draw(st.permutations(streams))[:2]
        left, right = f"{x.name}.p", f"{y.name}.p"
        op = draw(st.sampled_from(("<", "<=", "<>", ">", ">=", "=", "<=>")))
        forms = [
            f"{left} {op} {right}",
            f"{left} + 1 {op} {right}",
            f"{left} * 2 - {right} {op} 1",
            f"abs({left} - {right}) {op} 1",
            f"NOT ({left} {op} {right})",
            f"({left} {op} {right} OR {left} IS NULL)",
            f"({left} {op} {right} AND {right} IS NOT NULL OR {x.name}.ts IS NOT NULL AND {left} IN (0, 1, {right}))",
            f"{x.name}.ts {op} {y.name}.ts",
            f"{x.name}.ts - {y.name}.ts {op} INTERVAL 2 MICROSECONDS",
            f"near({left}, {right})",
            f"NOT near({left} + 1, {right})",
            f"({left} {op} {right} OR alike({left}, {right}))",
            f"alike({left}, {right})",
            f"small({left})",
            f"NOT small({left} * 2)",
        ]
        if not any(pa.types.is_decimal(stream.schema.field("p").type) for stream in (x, y)):
            forms.append(f"NOT alike({left}, {right}) AND 1 / ({left} - {right}) {op} 1")
        if len(streams) > 2:
            z = draw(st.sampled_from([s for s in streams if s not in (x, y)]))
            forms += [f"{left} - {right} {op} {z.name}.p", f"spread({left}, {right}, {z.name}.p)"]
        if "s" in x.schema.names and "s" in y.schema.names and x.schema.field("s").type == y.schema.field("s").type:
            forms.append(f"{x.name}.s {op} {y.name}.s")
        predicates.append(draw(st.sampled_from(forms)))
    return predicates


@st.composite
def _select(draw: st.DrawFn, streams: tuple[Stream, ...]) -> tuple[str, ...]:
    everything = [f"{s.name}.{column}" for s in streams for column in s.schema.names]
    chosen = draw(st.lists(st.sampled_from(everything), unique=True, max_size=8))
    if chosen and draw(st.booleans()):
        chosen.append(f"{chosen[0]} AS again")
    return tuple(chosen)


@st.composite
def _batches(draw: st.DrawFn, streams: tuple[Stream, ...], window: int, origin: int) -> list[dict[str, pa.Table]]:
    """Times advance by `drift` a batch, and spread `spread` back and forth: across batches too."""
    count = draw(st.integers(1, 6))
    drift = draw(st.sampled_from((1 + window // 3, window, 1 + window // 8, 0)))
    spread = draw(st.sampled_from((1 + window // 2, window, 1 + window // 6, 0)))
    distinct = draw(st.sampled_from((1, 1, 2, 2, 4, 9)))
    seed = draw(st.integers(0, 1 << 32))
    size_max = ROWS_MAX[len(streams)] // (1 if distinct > 1 else 2)
    batches = []
    for number in range(count):
        start = origin + number * drift
        batch = {}
        for stream in streams:
            size = draw(st.sampled_from((size_max, size_max, size_max, size_max, size_max, 1, 0, None)))
            if size is None:
                continue  # the stream has no entry in the batch
            numbers = draw(st.lists(st.integers(0, 3 * size_max), min_size=min(size // 3, 2), max_size=size))
            rows = [
                _row(stream, start, spread, distinct, Random(f"{seed}/{stream.name}/{number}/{n}")) for n in numbers
            ]
            batch[stream.name] = table_of(stream.schema, rows)
        batches.append(batch)
    return batches


def _row(stream: Stream, start: int, spread: int, distinct: int, rng: Random) -> list[Any]:
    """The row behind a number: rows shrink by being left out, and a number drawn twice is a duplicate."""
    row = {f.name: value(f.type, 9 if f.name in "ps" else distinct, rng) for f in stream.schema}
    time = start + rng.randint(-spread, spread)
    row["ts"] = None if rng.random() < NULLS / 3 else min(max(time, ENDS_US[0]), ENDS_US[1])
    return list(row.values())
