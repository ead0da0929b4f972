"""Plain text that fits a terminal of 80 columns: tables, and lines that are wrapped.

In a table, a label that leaves no room for the figures gets its own line above them; a note that does not fit gets its
own line below them. Only figures wider than the terminal make a line longer.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 80
LABEL_MIN = 12
_HEAD = re.compile(r"([ │├└─]*)((?:key [0-9]+|group by|aggregate|[a-z]+ ) +)?")
"""The branches of a tree before a line, and the label of a line about the query, which is followed by two spaces."""
_QUOTED, _TIED = re.compile(r"(?<!\w)'[^']{1,40}'(?!\w)"), "\0"


def wrapped(lines: Iterable[str]) -> list[str]:
    """Lines of text, those that are too long broken at spaces, but not within short quotes. What follows stands below
    the text after the label, or a little to the right of the beginning."""
    found = []
    for line in lines:
        head = _HEAD.match(line)
        assert head is not None
        tree, label = head[1], head[2] or ""
        if len(line) <= WIDTH:
            found.append(line)
            continue
        first, *rest = textwrap.wrap(
            _QUOTED.sub(lambda found: found[0].replace(" ", _TIED), line[len(tree) :]),
            WIDTH - len(tree),
            subsequent_indent=" " * (len(label) or 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
        below = tree.replace("├─", "│ ").replace("└─", "  ")
        found += [each.replace(_TIED, " ") for each in (tree + first, *(below + each for each in rest))]
    return found


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
