"""`watersmeet repair`: show what a checkpoint contains, check that its parts fit together, and repair them if not."""

from __future__ import annotations

import os
import shlex
import socket
import textwrap
from pathlib import Path

from watersmeet.errors import OptionError
from watersmeet.runtime.repair import Findings, Way, apply, look, require_tied
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.spark_log import LogEnd

WIDTH = 110
INDENT = 15
LOST_STATE = (
    "The state cannot be made again from what is here. Without it all results would be missing that rows to come have "
    "with rows of the batches that Spark has run."
)
NO_WAY = (
    "Restore the folders 'watersmeet' and 'spark' from backups of one moment, together with what the sink had then; or "
    "start with a new checkpointLocation and a new output, which reads the sources from their start."
)


def repair(location: Path, way: str | None) -> int:
    """Print the findings and apply the chosen repair. Returns 0 if the query can be started afterwards, else 1."""
    if not any((location / part).is_dir() for part in ("watersmeet", "spark")):
        raise OptionError(f"there is no checkpoint in {location}", hint="name the checkpointLocation of the query")
    checkpoint = Checkpoint(location)
    checkpoint.acquire(f"watersmeet repair, process {os.getpid()} on {socket.gethostname()}")
    try:
        found = look(checkpoint)
        print(findings_text(found, applied=way))
        if found.difference is None:
            return 0
        if way is None:
            return 1
        kept = apply(checkpoint, found, way)
        require_tied(checkpoint)
        print(f"\ndone: start the query again. What was taken out of Spark's log is in {kept}")
        return 0
    finally:
        checkpoint.release()


def findings_text(found: Findings, applied: str | None = None) -> str:
    """The findings as text: contents, problem and possible repairs. `applied` is the repair to be applied."""
    lines = [f"checkpoint {found.location}", _entry("state", _state(found)), _entry("Spark's log", _log(found.log))]
    if found.difference is None:
        return "\n".join([*lines, "", "They belong together: there is nothing to repair."])
    lines += ["", _wrapped(f"They do not belong together: {found.difference}.", 0)]
    if found.ending is None and found.log.ran >= 0:
        lines += ["", _wrapped(LOST_STATE, 0)]
    if found.way is not None:
        lines += ["", *_way(found.way)]
    if found.way is None or found.way.obstacle is not None:
        lines += ["", _wrapped(NO_WAY, 0)]
    elif applied is None:
        command = shlex.join(["watersmeet", "repair", str(found.location), "--apply", found.way.name])
        lines += ["", f"Nothing was changed. To do it:\n  {command}"]
    return "\n".join(lines)


def _state(found: Findings) -> str:
    ending = found.ending
    if ending is None:
        return "none: there is no manifest"
    batch = "no batch" if ending.batch is None else f"batch {ending.batch}"
    sent = (
        "acknowledged by the sink" if found.is_acknowledged else "not acknowledged by the sink: it will be sent again"
    )
    return f"ends with {batch}; epoch {ending.epoch}, {sent}; {ending.results:,} results so far"


def _log(log: LogEnd) -> str:
    if log.planned is None and log.committed is None:
        return "none: there are no offsets"
    planned, committed = ("none" if last is None else f"batch {last}" for last in (log.planned, log.committed))
    return f"last offsets: {planned}; last commit: {committed}"


def _way(way: Way) -> list[str]:
    lines = [
        _entry(way.name, f"{way.does}."),
        _entry("  lost", f"{way.lost}."),
        _entry("  repeated", f"{way.repeated}."),
    ]
    return lines if way.obstacle is None else [*lines, _entry("  but", f"it cannot be done: {way.obstacle}.")]


def _entry(name: str, text: str) -> str:
    return f"  {name:<{INDENT - 2}}{_wrapped(text, INDENT).lstrip()}"


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
