"""The join graph and the estimated costs of a plan, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from watersmeet.observe.estimates import Estimates, estimate
from watersmeet.observe.tables import WIDTH, fitted, wrapped
from watersmeet.optimizer.assumptions import (
    RESIDUAL_SELECTIVITY,
    TEXT_BYTES,
    Assumptions,
    horizon_us,
    key_selectivity,
)
from watersmeet.optimizer.kept_rows import KEY_BYTES, STORE_FILE_BYTES
from watersmeet.plan.stages import JoinPlan
from watersmeet.query.as_sql import to_sql
from watersmeet.query.expressions import columns_of
from watersmeet.query.logical import JoinQuery, Stream
from watersmeet.units import format_bytes, format_duration


@dataclass(frozen=True, slots=True)
class Saying:
    """How a user can replace assumptions by hints."""

    rate: str
    selectivity: str
    after: str


ON_THE_COMMAND_LINE = Saying("--rate {name}=1000", "--selectivity '{name}=...'", " (--after)")
IN_CODE = Saying("hint('{name}', rowsPerSecond=1000)", "hint('{name}', selectivity=...)", "")


def join_graph_text(query: JoinQuery) -> str:
    """The streams and their predicates: one edge per pair; predicates over three or more streams are listed apart."""
    lines = ["== Join graph =="]
    between = list(_between(query))
    for left, right in combinations(query.streams, 2):
        links = [text for streams, text in between if streams == {left.name, right.name}]
        if links:
            lines.append(f"{left.name} ── {right.name}: {'; '.join(links)}")
    lines += [f"{', '.join(sorted(streams))}: {text}" for streams, text in between if len(streams) != 2]
    if len(lines) == 1:
        lines.append("no predicate links two streams: every combination within the windows is a result")
    return "\n".join(wrapped(lines))


def _between(query: JoinQuery) -> Iterator[tuple[set[str], str]]:
    for number, key_class in enumerate(query.classes):
        members = [
            (stream.name, _column_text(stream, column))
            for stream, column in zip(query.streams, key_class.columns, strict=True)
            if column is not None
        ]
        for (left, one), (right, other) in combinations(members, 2):
            yield {left, right}, f"{one} = {other} (key {number})"
    for number, residual in enumerate(query.residuals):
        yield {column.stream for column in columns_of(residual)}, f"{to_sql(residual)} (residual {number})"
    for number, predicate in enumerate(query.spark_residuals):
        yield {column.stream for column in predicate.refs}, f"{predicate.sql} (by Spark {number})"


def _column_text(stream: Stream, column: str) -> str:
    """A column, or the expression that it is derived from."""
    derived = [item.sql for item in stream.derived if item.name == column]
    return f"{derived[0]} of {stream.name}" if derived else f"{stream.name}.{column}"


def estimates_text(query: JoinQuery, plan: JoinPlan, given: Assumptions, slots: int) -> str:
    """The section of `watersmeet explain` on costs; it asks for missing rates."""
    lines = ["== Estimated costs (nothing was run) =="]
    if missing := [stream.name for stream in query.streams if stream.name not in given.rates]:
        return "\n".join([*lines, rates_wanted(missing, ON_THE_COMMAND_LINE)])
    found = estimate(query, plan, given)
    rows = [("store", "stage", "rows/s in", "rows max", "bytes/row", "bytes")]
    for store in found.stores:
        size = format_bytes(round(store.rows * store.row_bytes))
        kept = figure(store.rows_per_second), figure(store.rows), f"{store.row_bytes:,.0f}", size
        rows.append((store.label, str(store.stage), *kept))
    rows.append(("join", "stage", "matches/s", "results/s", "", ""))
    for node in found.nodes:
        results = figure(node.results_per_second) if node.results_per_second else "-"
        rows.append((node.label, str(node.stage), figure(node.matches_per_second), results, "", ""))
    said = [*_total(query, found, slots), *basis(query, given, ON_THE_COMMAND_LINE)]
    return "\n".join([*lines, *fitted(rows), *wrapped(said)])


def rates_wanted(missing: Sequence[str], say: Saying) -> str:
    """A demand for rates, with the hints to give: in one line if there is room."""
    hints = [say.rate.format(name=name) for name in missing]
    head, given = "no figures without arrival rates in rows a second:", f"give {' '.join(hints)}"
    forms = (f"{head} {given}", f"{head}\n    {given}")
    fits = (form for form in forms if max(map(len, form.splitlines())) <= WIDTH)
    return next(fits, "\n    ".join([f"{head} give", *hints]))


def _total(query: JoinQuery, found: Estimates, slots: int) -> list[str]:
    what = "joined rows/s to aggregate" if query.aggregation is not None else "results/s"
    rows = f"{format_bytes(round(found.state_bytes))} of rows"
    return [f"in all: {figure(found.results_per_second)} {what}; {rows}", files_text(found, slots)]


def files_text(found: Estimates, slots: int) -> str:
    """The maximum state of a running query, and the part that does not depend on its rows."""
    stores, fixed = len(found.stores), found.fixed_bytes(slots)
    each = format_bytes(STORE_FILE_BYTES)
    return (
        f"state in files: {format_bytes(round(found.file_bytes_max(slots)))} at most on all slots, "
        f"{format_bytes(fixed)} of it fixed ({each} x {stores} stores x {slots} slots)"
    )


def basis(query: JoinQuery, given: Assumptions, say: Saying) -> list[str]:
    """The basis of the figures: the known and the assumed ones, with the hints that would replace assumptions."""
    return [f"{'known' if is_known else 'assumed'}: {text}" for is_known, text in _basis(query, given, say)]


def _basis(query: JoinQuery, given: Assumptions, say: Saying) -> Iterator[tuple[bool, str]]:
    rates = ", ".join(f"{stream.name} {figure(given.rates[stream.name])} rows/s" for stream in query.streams)
    yield True, f"steady {rates}"
    if given.batch_s is None:
        yield False, "a micro-batch a second"
    else:
        yield True, f"a micro-batch every {given.batch_s:.3g} s"
    for number in range(len(query.classes)):
        default = key_selectivity(query, given, number)
        yield _share(f"key {number}", given.keys.get(number), default, "of the pairs", say)
    for number in range(len(query.residuals)):
        yield _share(f"residual {number}", given.residuals.get(number), RESIDUAL_SELECTIVITY, "of what it tests", say)
    for number in range(len(query.spark_residuals)):
        yield _share(f"by Spark {number}", given.by_spark.get(number), RESIDUAL_SELECTIVITY, "of what it tests", say)
    for number, item in enumerate(query.filters):
        of = f"of the rows ({item.stream}: {item.sql})"
        yield _share(f"filter {number}", given.filters.get(number), 1.0, of, say)
    if any(window is None for window in query.windows_us):
        after = format_duration(horizon_us(query, given))
        yield False, f"streams without a window: what they hold after {after}{say.after}"
    groups = "; groups of the aggregation are not counted" if query.aggregation is not None else ""
    yield False, f"texts take {TEXT_BYTES} bytes, the key of a store {KEY_BYTES}{groups}"


def _share(name: str, share: float | None, default: float, of: str, say: Saying) -> tuple[bool, str]:
    if share is None:
        return False, f"{name} lets pass {default:.4g} {of} ({say.selectivity.format(name=name)})"
    return True, f"{name} lets pass {share:.4g} {of}"


def figure(value: float) -> str:
    """A number with at least three digits, and with all digits before the point if they are few enough to read."""
    return f"{value:,.0f}" if 100 <= value < 1e12 else f"{value:.3g}"
