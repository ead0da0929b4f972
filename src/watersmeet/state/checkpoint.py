"""The checkpoint folder: who may use it, what was committed, what was acknowledged, and what may be thrown away.

    <checkpointLocation>/
      spark/                    Spark's own checkpoint: offsets and commits of the sources
      watersmeet/
        query.json              what identifies the query that it was made for
        lock                    held by the live driver
        manifests/<epoch>.json  created exclusively: whoever creates the last epoch owns it, all others are fenced
        acks/<epoch>            the sink has the results of the epoch
        segments/               state
        outbox/                 results that sinks are sent from
        tasks/                  what the tasks of a running job have to do
        statistics.arrow        what is known of partition groups; it may be missing or old
        events.jsonl            adaptations with their reasons, older ones summed up (`event_log.py`)

In which order these come and go is the commit protocol (`epoch/protocol.py`). A file that the last manifest names is
never removed, and of the others only what no driver that can still commit may name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from watersmeet.errors import CheckpointError
from watersmeet.failpoints import failpoint
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.event_log import EventLog
from watersmeet.state.format_1 import FORMAT_1, OldCheckpoint, is_format_1, read_old
from watersmeet.state.manifest import BEFORE_FIRST_EPOCH, Manifest, PlanText
from watersmeet.state.manifest_json import FORMAT_VERSION, from_value, plan_of, to_json
from watersmeet.state.storage import TEMPORARY, create, names, remove, write_durably, writing

SCRATCH = ".scratch-"
OF_FORMAT_1 = "trial"
"""A folder that only manifests of format 1 name files of."""
STATISTICS = "statistics.arrow"


class Checkpoint:
    """A checkpoint folder opened for writing by one driver."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.folder = location / "watersmeet"
        self.segments = self.folder / "segments"
        self.outbox = self.folder / "outbox"
        self.manifests = self.folder / "manifests"
        self.tasks = self.folder / "tasks"
        self.events = EventLog(self.folder)
        self._lock: BinaryIO | None = None

    @property
    def spark_location(self) -> Path:
        return self.location / "spark"

    def acquire(self, owner: str) -> None:
        """Take the folder for this driver; refused while another live one has it. Death releases it."""
        if (self.location / "offsets").is_dir() or (self.location / "metadata").is_file():
            raise CheckpointError(
                f"{self.location} is the checkpoint of a plain Spark query",
                hint="give the join a checkpointLocation of its own",
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a+b")
        except OSError as error:
            raise CheckpointError(f"cannot write to checkpointLocation {self.location}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().decode(errors="replace") or "another driver"
            lock.close()
            raise CheckpointError(
                f"checkpoint {self.location} is in use by {holder}",
                hint="stop that query first, or give this one a checkpointLocation of its own",
                error_class="CHECKPOINT_IN_USE",
            ) from None
        lock.truncate(0)
        lock.write(owner.encode())
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def identity(self) -> str:
        """A name for this checkpoint that no other one on the host has."""
        return hashlib.sha256(str(self.location.resolve()).encode()).hexdigest()[:16]

    def require_same_query(self, marks: Mapping[str, str], marks_1: Mapping[str, str]) -> None:
        """Refuse a query that differs from the one that the checkpoint is for, naming every difference; `marks_1` is
        what format 1 would have kept."""
        old = self.old()
        if old is not None:
            made_for, asked = old.marks, marks_1
        else:
            path = self.folder / "query.json"
            if not path.exists():
                return
            kept = json.loads(path.read_bytes())
            if kept["format"] == FORMAT_1:  # of a query that has not committed anything
                made_for, asked = {name: kept["fingerprint"].get(name, "") for name in marks}, marks
                made_for |= {name: mark for name, mark in marks.items() if name.startswith("columns read of ")}
            else:
                _require_format(kept["format"])
                made_for, asked = kept["fingerprint"], marks
        differences = [
            f"{name}: checkpoint has '{made_for.get(name, 'none')}', query has '{asked.get(name, 'none')}'"
            for name in sorted(made_for.keys() | asked.keys())
            if made_for.get(name) != asked.get(name)
        ]
        if differences:
            raise self.different(differences)

    def different(self, differences: Sequence[str]) -> CheckpointError:
        return CheckpointError(
            f"checkpoint {self.location} was made by a different join ({'; '.join(differences)})",
            hint="slots, budgets and delays may change, the join may not: use a new checkpointLocation",
            error_class="DIFFERENT_JOIN",
        )

    def remember_query(self, marks: Mapping[str, str]) -> None:
        """From now on the checkpoint is for this query: to be called when nothing is left that may refuse it."""
        text = json.dumps({"format": FORMAT_VERSION, "fingerprint": dict(marks)}, indent=1).encode()
        path = self.folder / "query.json"
        if not path.exists() or (path.read_bytes() != text and self.old() is None):
            write_durably(path, lambda file: file.write(text), replace=True)

    def plan(self) -> PlanText | None:
        """The plan that the state is for; None where there is no state yet."""
        value = self._last_value()
        if value is None:
            return None
        with self._reading():
            return read_old(self.folder, value).plan if is_format_1(value) else plan_of(value)

    def old(self) -> OldCheckpoint | None:
        """What a checkpoint of format 1 says; None if this is none."""
        value = self._last_value()
        if value is None or not is_format_1(value):
            return None
        with self._reading():
            return read_old(self.folder, value)

    def latest(self, plan: JoinPlan | None = None) -> Manifest | None:
        """The last committed manifest; one of format 1 can be read with the plan that its state is for."""
        value = self._last_value()
        if value is None:
            return None
        with self._reading():
            if plan is None or not is_format_1(value):
                return from_value(value)
            old = read_old(self.folder, value)
            old.require_acknowledged(self.is_acknowledged(value["epoch"]))
            return old.upgraded(plan)

    def _last_epoch(self) -> int | None:
        found = names(self.manifests)
        return int(found[-1].removesuffix(".json")) if found else None

    def _last_value(self) -> dict[str, Any] | None:
        found = self._last_epoch()
        if found is None:
            return None
        with self._reading():
            value: dict[str, Any] = json.loads(self._manifest(found).read_bytes())
            if not isinstance(value, dict):
                raise ValueError("it is not a manifest")
            return value

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What is wrong with the last manifest, as an error that names it."""
        try:
            yield
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(
                f"manifest {self._manifest(self._last_epoch() or 0).name} cannot be read: {error}",
                hint="restore it, or start with a new checkpointLocation",
            ) from error

    def commit(self, manifest: Manifest) -> bool:
        """Create the manifest of an epoch; False if the epoch was committed by somebody else.

        A driver that was paused for several epochs finds the name free again, because older manifests are removed. The
        last one never is: if there is a later one when ours has its name, ours came too late and is taken back.
        """
        failpoint("before-manifest")
        path = self._manifest(manifest.epoch)
        is_ours = create(path, to_json(manifest))
        failpoint("after-manifest")
        if is_ours and self._last_epoch() != manifest.epoch:
            remove(path)
            return False
        return is_ours

    def acknowledge(self, epoch: int) -> None:
        """The sink has the results of the epoch: it will not be sent again. Not worth a sync: what a power cut takes
        away is sent once more, as after a crash just before."""
        failpoint("before-ack")
        path = self._ack(epoch)
        with writing(path):
            try:
                os.rename(self._ack(epoch - 1), path)  # cheaper than a new file, and nobody asks for the one before
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        failpoint("after-ack")

    def write_statistics(self, table: pa.Table) -> None:
        """Keep a table of statistics; not worth a sync, because nothing depends on it."""
        path = self.folder / f"{TEMPORARY}statistics"
        with writing(self.folder / STATISTICS):
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            path.rename(self.folder / STATISTICS)

    def read_statistics(self) -> pa.Table | None:
        """The table that an earlier run has kept; None if there is none that can be read."""
        try:
            with pa.OSFile(str(self.folder / STATISTICS), "rb") as file:
                return pa.ipc.open_file(file).read_all()
        except (OSError, pa.ArrowInvalid):
            return None

    def is_acknowledged(self, epoch: int) -> bool:
        return self._ack(epoch).exists()

    def sent_and_committed(self) -> tuple[int, int]:
        """The last epoch that the sink surely has, and the last that it may have; -1 is none."""
        last = self._last_epoch()
        if last is None:
            return BEFORE_FIRST_EPOCH, BEFORE_FIRST_EPOCH
        return (last if self.is_acknowledged(last) else last - 1), last

    def discard(self, older: Manifest | None, newer: Manifest) -> None:
        """Remove what only `older` needs; call it when `newer` is acknowledged."""
        if older is None:
            return
        for name in older.segments.keys() - newer.segments.keys():
            remove(self.segments / name)
        for name in _in_outbox(older):
            remove(self.outbox / name)
        failpoint("during-discard")
        remove(self._manifest(older.epoch))
        remove(self._ack(older.epoch))

    def files(self) -> frozenset[str]:
        """All that lies in the folders of state, results, manifests and acknowledgements, and what attempts have left,
        as paths in the checkpoint."""
        found = set()
        for folder in (self.folder, self.segments, self.outbox, self.manifests, self.tasks, self.folder / "acks"):
            for entry in os.scandir(folder) if folder.is_dir() else ():
                is_leftover = entry.name.startswith((TEMPORARY, SCRATCH)) or entry.name == OF_FORMAT_1
                if is_leftover or folder != self.folder:
                    found.add(str(Path(entry.path).relative_to(self.folder)))
        return frozenset(found)

    def sweep(self, live: Manifest, seen: Iterable[str]) -> int:
        """Remove files that the last manifest does not name: leftovers of attempts that failed. How many there were.

        `seen` are `files` as they were before that manifest was committed: what came later is not ours to judge."""
        kept = {
            *(self.segments / name for name in live.segments),
            *(self.outbox / name for name in _in_outbox(live)),
            self._manifest(live.epoch),
            self._ack(live.epoch),
        }
        stale = [path for name in seen if (path := self.folder / name) not in kept]
        for path in stale:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else remove(path)
        return len(stale)

    def _manifest(self, epoch: int) -> Path:
        return self.manifests / f"{epoch:012d}.json"

    def _ack(self, epoch: int) -> Path:
        return self.folder / "acks" / f"{epoch:012d}"


def _in_outbox(manifest: Manifest) -> set[str]:
    """Files of results in the checkpoint that a manifest names."""
    return {file.name for file in manifest.outbox.files} if manifest.outbox.place == "checkpoint" else set()


def _require_format(found: Any) -> None:
    if found != FORMAT_VERSION:
        raise CheckpointError(
            f"the checkpoint has format {found}, this watersmeet reads format {FORMAT_VERSION}",
            hint="open it with the version that wrote it, or start with a new checkpointLocation",
        )
