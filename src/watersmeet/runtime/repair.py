"""Repairs for a state and a Spark log that do not fit together: proposed first, applied on request.

State is never changed: there are no manifests of other epochs. Only the end of Spark's log can be changed, so both ways
make it end with the last batch of the state:

| way      | if Spark's log                                        | lost    | repeated                             |
|----------|-------------------------------------------------------|---------|--------------------------------------|
| put-back | lacks batches that are in the state, or is another's  | nothing | nothing                              |
| rewind   | has run batches that are not in the state             | nothing | results of these, where sinks have   |
|          |                                                       |         | them                                 |

The offsets come from the copy in the manifest. A file source also needs its own log, of which there is no copy. Files
removed from Spark's log are kept in a folder `repaired-<n>` of the checkpoint. Without state there is no way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from watersmeet.epoch.tied import log_difference, refused
from watersmeet.errors import CheckpointError
from watersmeet.state.checkpoint import Checkpoint, Ending
from watersmeet.state.spark_log import NO_QUERY, LogEnd, Offsets, SparkLog, file_number
from watersmeet.state.storage import create, sync_folder

PUT_BACK = "put-back"
REWIND = "rewind"
WAYS = (PUT_BACK, REWIND)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to repair, and its consequences."""

    name: str
    does: str
    lost: str
    repeated: str
    obstacle: str | None = None
    """Why it cannot be applied."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The contents of a checkpoint, and the possible repairs."""

    location: Path
    ending: Ending | None
    is_acknowledged: bool
    log: LogEnd
    difference: str | None
    """The mismatch; None if there is none."""
    way: Way | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    """The required end of Spark's log, and the parts of it that exist."""

    batch: int
    wanted: Offsets | None
    found: Offsets | None
    is_foreign: bool
    """Whether the log is another query's."""

    @property
    def is_there(self) -> bool:
        is_same = self.wanted is not None and self.found is not None and self.wanted.hash == self.found.hash
        return is_same and not self.is_foreign


def require_tied(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose state and Spark log do not fit together."""
    if (difference := look(checkpoint).difference) is not None:
        raise refused(difference, str(checkpoint.location))


def look(checkpoint: Checkpoint) -> Findings:
    """Inspect a checkpoint; nothing is changed."""
    ending = checkpoint.ending()
    log = checkpoint.spark_log.end(ending)
    is_acknowledged = ending is not None and checkpoint.is_acknowledged(ending.epoch)
    difference, way = log_difference(ending, log), None
    if difference is not None and ending is not None and (target := _target(ending, log)) is not None:
        way = _way(ending.epoch, target, log, _obstacle(target, checkpoint.spark_log))
    return Findings(checkpoint.location, ending, is_acknowledged, log, difference, way)


def apply(checkpoint: Checkpoint, found: Findings, name: str) -> Path:
    """Apply the way of this name, and return the folder of the removed files. The caller holds the checkpoint's lock,
    and `found` are its present findings."""
    way, ending, log = found.way, found.ending, checkpoint.spark_log
    if way is None or way.name != name or way.obstacle is not None:
        why = f"cannot be done: {way.obstacle}" if way is not None and way.name == name else "is no way here"
        raise CheckpointError(f"{name} {why}", hint="without --apply, repair says what can be done")
    target = _target(ending, found.log)
    assert target is not None
    kept = next(path for n in count(1) if not (path := checkpoint.location / f"repaired-{n}").exists())
    kept.mkdir()
    written = _written(target, log)
    for path in list(_stale(target, log, written)):
        aside = kept / path.relative_to(checkpoint.location)
        aside.parent.mkdir(parents=True, exist_ok=True)
        path.rename(aside)
    for path, data in written.items():
        create(path, data)
    sync_folder(checkpoint.location)
    return kept


def _target(ending: Ending | None, log: LogEnd) -> _Target | None:
    if ending is None or ending.batch is None:
        return None
    is_foreign = ending.offsets is not None and log.query not in (NO_QUERY, ending.offsets.query)
    return _Target(ending.batch, ending.offsets or log.offsets, log.offsets, is_foreign)


def _way(epoch: int, target: _Target, log: LogEnd, obstacle: str | None) -> Way:
    batch, ran = target.batch, log.ran
    if ran <= batch or target.is_foreign:
        does = f"Spark's log ends with batch {batch} again, by the copy of its offsets in the manifest"
        return Way(PUT_BACK, does, "nothing", "nothing", obstacle)
    again = f"batch {ran} is" if ran == batch + 1 else f"batches {batch + 1} to {ran} are"
    return Way(
        REWIND,
        f"Spark's log ends with batch {batch} again: {again} read once more, perhaps in other portions",
        "nothing, if the sources still have these rows",
        f"results after epoch {epoch}, where a sink has them. A function that remembers epochs must first forget those "
        f"after {epoch}; a folder of files must come from the same backup as the state",
        obstacle,
    )


def _obstacle(target: _Target, log: SparkLog) -> str | None:
    """The reason why Spark's log cannot be made to end with the batch, if any."""
    if target.wanted is None or not (target.is_there or target.wanted.has_copy):
        return "the manifest has no copy of the offsets"
    sources = target.wanted.sources
    files = [source for source, offset in sources.items() if file_number(offset) is not None]
    if files and target.is_foreign:
        return f"file source {files[0]} needs its own log, and this is another query's"
    if files and target.found is not None and not target.is_there:
        return f"file source {files[0]} has listed other files for batch {target.batch}"
    for source in log.short_sources(sources):
        return f"the log of file source {source} ends too early, and there is no copy of it"
    return None


def _written(target: _Target, log: SparkLog) -> dict[Path, bytes]:
    """The files that the log lacks. Without a commit Spark hands over the last batch again, and the state knows it. Its
    start is unknown if the batch before is missing; that does not matter, because its rows are not read."""
    offsets, wanted, found = log.folder / "offsets", target.wanted, {}
    assert wanted is not None
    last = offsets / str(target.batch)
    if target.is_foreign or (wanted.query and not log.query()):
        found[log.folder / "metadata"] = json.dumps({"id": wanted.query}, separators=(",", ":")).encode()
    if not target.is_there:
        found[last] = wanted.text.encode()
    if target.batch > 0 and (target.is_foreign or log.offsets(target.batch - 1) is None):
        found[offsets / str(target.batch - 1)] = found.get(last) or last.read_bytes()
    return found


def _stale(target: _Target, log: SparkLog, written: Iterable[Path]) -> Iterator[Path]:
    """Files that Spark must not find: later batches, and files with the names of those to be written."""
    later = [log.folder / f / str(n) for f in ("commits", "offsets") for n in log.numbers(f) if n > target.batch]
    for path in (*later, *written):
        for there in (path, path.with_name(f".{path.name}.crc")):  # Hadoop's checksum of it
            if there.exists():
                yield there
