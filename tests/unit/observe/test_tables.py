"""Tables fit 80 columns: those of explain, and the lines of epochs in a terminal of 80 and of 120."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from watersmeet.observe.progress import EpochProgress
from watersmeet.observe.tables import WIDTH, fitted, wrapped
from watersmeet.observe.terminal import COMPILING, LiveProgress, epoch_table
from watersmeet.state.measures import Counts

LONG = "(((orders payments) (parcels scans)) reviews complaints)"
COUNTS = {"results": 12_345_678, "state_rows": 123_456_789, "state_bytes": 1023 << 20, "memory_bytes": 1023 << 20}
EPOCH = EpochProgress(
    epoch=11_000,
    batch=11_000,
    slots=2,
    rows={"a": 20_000_000, "b": 3_000_000},
    counts=Counts.named(COUNTS),
    slot_counts=(),
    totals=Counts(),
    watermark_us=0,
    times_max_us=(3_599_900_000, None),
    segments=1,
    join_ms=900,
    commit_ms=10,
    sink_ms=10,
)
LATE = replace(EPOCH, counts=Counts.named({**COUNTS, "late": 12_345, "closed_bytes": 1023 << 20}))


def test_a_label_that_leaves_no_room_has_a_line_of_its_own():
    figures = ("1,000,000", "1,000,000", "1,000,000", "1,000,000")
    assert fitted([("store", "in", "out", "max", "kept"), ("a", *figures), (LONG, *figures)]) == [
        "store         in        out        max       kept",
        "a      1,000,000  1,000,000  1,000,000  1,000,000",
        LONG,
        "       1,000,000  1,000,000  1,000,000  1,000,000",
    ]


def test_a_note_that_does_not_fit_is_below_and_empty_columns_are_left_out():
    rows = [("plan", "CPU", "", "state", ""), (LONG, "1.0", "", "15.0 MiB", "mjoin"), ("b", "2", "", "0 B", "short")]
    assert fitted(rows, has_notes=True) == [
        f"{'plan':<56}  CPU     state",
        f"{LONG}  1.0  15.0 MiB  mjoin",
        f"{'b':<56}    2       0 B  short",
    ]
    lines = fitted([(*row[:-1], row[-1] and "over budget: CPU 1.5x") for row in rows], has_notes=True)
    assert lines[1:3] == [f"{LONG}  1.0  15.0 MiB", "    over budget: CPU 1.5x"]
    assert max(map(len, lines)) <= WIDTH


def drawn(epochs: list[EpochProgress], width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(epoch_table(epochs, width))
    return out.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [80, 120])
def test_every_epoch_is_one_line_of_the_terminal(width):
    for epochs in ([EPOCH, EPOCH], [EPOCH, LATE]):
        lines = drawn(epochs, width)
        assert len(lines) == 3
        assert all(len(line.rstrip()) <= width and "…" not in line for line in lines)
        assert lines[1].split()[:2] == ["11000", "23,000,000"]
    assert ("in memory" in lines[0]) == (width == 120)
    assert "spilled" in lines[0]
    assert "spilled" not in drawn([EPOCH], width)[0]


def test_before_the_first_epoch_the_display_says_that_spark_compiles():
    out = io.StringIO()
    with LiveProgress(Console(file=out, width=80), 12) as live:
        live.show([])
    assert COMPILING in out.getvalue().splitlines()
    assert len(COMPILING) <= 80


def test_long_lines_are_wrapped_below_their_text_and_within_their_branch():
    many = ", ".join(f"column{i}" for i in range(20))
    short = "a line of 80 columns at most stays as it is,  with its spaces"
    lines = wrapped(
        [short, f"select    {many}", f"  ├─ store a: keeps {many}", f"  └─ store b: keeps {many}", f"known: {many}"]
    )
    assert lines[0] == short
    assert max(map(len, lines)) <= WIDTH
    starts = [line[: len(line) - len(line.lstrip(" │├└─"))] for line in lines[1:]]
    assert list(dict.fromkeys(starts)) == ["", " " * 10, "  ├─ ", "  │      ", "  └─ ", "         ", "    "]
    assert " ".join(" ".join(lines).replace("│", "").split()).count("column19") == 4


def test_what_is_quoted_stays_in_one_line():
    said = "assumed: residual 0 lets pass 0.3333 of what it tests (--selectivity 'residual 0=...')"
    assert wrapped([said]) == [said[:68], f"    {said[69:]}"]
    bare = "x" * 100
    assert wrapped([bare]) == [bare]
