"""Tables of plain text that fit a terminal of 80 columns.

A label that leaves no room for the figures gets its own line above them; a note that does not fit gets its own line
below them. Only figures wider than the terminal make a line longer.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 80
LABEL_MIN = 12


def fitted(rows: Sequence[Sequence[str]], *, gap: int = 2, has_notes: bool = False) -> list[str]:
    """Lines of a table. Each row is a label, figures, and with `has_notes` a note; labels and notes are left-aligned,
    figures right-aligned. Columns without any text are left out."""
    figures = [row[1:-1] if has_notes else row[1:] for row in rows]
    widths = [max(map(len, column)) for column in zip(*figures, strict=True)]
    room = max(WIDTH - sum(width + gap for width in widths if width), LABEL_MIN)
    label_width = max(len(row[0]) for row in rows if len(row[0]) <= room)
    lines = []
    for row, own in zip(rows, figures, strict=True):
        label, note = row[0], row[-1] if has_notes else ""
        if len(label) > label_width:
            lines.append(label)
            label = ""
        cells = [f"{cell:>{width}}" for cell, width in zip(own, widths, strict=True) if width]
        line = (" " * gap).join([f"{label:<{label_width}}", *cells])
        if len(line) + 2 + len(note) <= WIDTH:
            lines.append(f"{line}  {note}".rstrip())
        else:
            lines += [line.rstrip(), f"    {note}"]
    return lines
