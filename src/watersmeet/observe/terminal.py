"""Progress of a running query in a terminal: a bar, and one line per epoch."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table

from watersmeet.epoch.events import Event
from watersmeet.observe.progress import EpochProgress
from watersmeet.state.measures import CLOSED_BYTES, LATE, MEMORY_BYTES, RESULTS, STATE_BYTES, STATE_ROWS
from watersmeet.units import format_bytes

LINES = 12
WIDE = 100
"""Terminals at least this wide show all columns of a table."""
COMPILING = "first micro-batch: Spark compiles the query, up to 20 s in a new session ..."


class LiveProgress:
    """A display that is redrawn with every call of `show`."""

    def __init__(self, console: Console, epochs_expected: int) -> None:
        self._expected = epochs_expected
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveProgress:
        self._live.__enter__()
        self.show([])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, epochs: Sequence[EpochProgress]) -> None:
        self._live.update(Group(*self._parts(epochs)), refresh=True)

    def _parts(self, epochs: Sequence[EpochProgress]) -> list[Padding | Table | str]:
        bar = Padding(ProgressBar(total=self._expected, completed=len(epochs), width=60), 0)  # a line of its own
        if not epochs:
            return [bar, COMPILING]
        return [bar, epoch_table(epochs[-LINES:], self._live.console.width)]


def epoch_table(epochs: Sequence[EpochProgress], width: int) -> Table:
    """One line per epoch: speed, results, state and lag; with fewer columns in a narrow terminal."""
    cells = [_cells(epoch) for epoch in epochs]
    shown = [name for name in cells[0] if width >= WIDE or name not in OF_WIDE_TABLES]
    shown = [name for name in shown if name not in RARE or any(each[name] != "-" for each in cells)]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for each in cells:
        table.add_row(*(each[name] for name in shown))
    return table


RARE = ("late", "spilled")
"""Columns that are left out while they are empty."""
OF_WIDE_TABLES = ("state rows", "in memory")


def _cells(epoch: EpochProgress) -> dict[str, str]:
    rows, late, closed = sum(epoch.rows.values()), epoch.count(LATE), epoch.count(CLOSED_BYTES)
    seconds = (epoch.join_ms + epoch.commit_ms + epoch.sink_ms) / 1000
    return {
        "epoch": str(epoch.epoch),
        "rows": f"{rows:,}",
        "rows/s": f"{rows / seconds:,.0f}" if seconds else "-",
        "results": f"{epoch.count(RESULTS):,}",
        "late": f"{late:,}" if late else "-",
        "state rows": f"{epoch.count(STATE_ROWS):,}",
        "state": format_bytes(epoch.count(STATE_BYTES)),
        "in memory": format_bytes(epoch.count(MEMORY_BYTES)),
        "spilled": format_bytes(closed) if closed else "-",
        "lag": _lag(epoch),
    }


def epoch_line(epoch: EpochProgress) -> str:
    """An epoch in one line: rows, results and state; and the groups that owe results."""
    rows, late = sum(epoch.rows.values()), epoch.count(LATE)
    seconds = (epoch.join_ms + epoch.commit_ms + epoch.sink_ms) / 1000
    closed = epoch.count(CLOSED_BYTES)
    what = "clean-up" if epoch.is_cleaning else f"{rows:,} rows in"
    return (
        f"epoch {epoch.epoch}: {what}, {epoch.count(RESULTS):,} results"
        + (f", {late:,} too late" if late else "")
        + f", state {epoch.count(STATE_ROWS):,} rows in {format_bytes(epoch.count(STATE_BYTES))}"
        + (f", {format_bytes(closed)} spilled" if closed else "")
        + (f", {epoch.owing_groups} groups owe results" if epoch.owing_groups else "")
        + f", {seconds:.1f} s"
        + "".join(f"\n  {_event_text(event)}" for event in epoch.events)
    )


def _event_text(event: Event) -> str:
    if event.kind == "plan":
        return f"plan {event.details['plan']}: {event.reason}"
    where = "" if event.slot is None else f" on slot {event.slot}"
    return f"{event.kind}{where}: {event.reason}"


def _lag(epoch: EpochProgress) -> str:
    """How far the watermark is behind the newest event."""
    times = [t for t in epoch.times_max_us if t is not None]
    if epoch.watermark_us is None or not times:
        return "-"
    return f"{(max(times) - epoch.watermark_us) / 1e6:.1f} s"
