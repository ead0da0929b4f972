"""The checkpoint folder: who may use it, what was committed, what was acknowledged, and what may be thrown away.

    <checkpointLocation>/
      spark/                    Spark's own checkpoint: offsets and commits of the sources
      watersmeet/
        query.json              format version and fingerprint of the join it was made for
        lock                    held by the live driver
        manifests/<epoch>.json  created exclusively: whoever creates epoch e owns it, all others are fenced
        acks/<epoch>            the sink has the results of the epoch
        segments/               state
        trial/                  while the plan may still change: rows of the first micro-batches; afterwards, if it has:
                                what took the place of query.json, and the state that the change began with
        statistics.arrow        what is known of partition groups; it may be missing or old
        events.jsonl            adaptations with their reasons, older ones summed up (`event_log.py`)

An epoch lives through these steps, and a crash after any of them is recovered from what the folder says:

    segments durable → manifest created → sink written → acknowledged → (Spark commits its batch) → garbage removed
    └── repeat the epoch ──┘└── send the results again ──┘└── nothing to do ──────────────────────────────┘
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from watersmeet.errors import CheckpointError, FencedError
from watersmeet.failpoints import failpoint
from watersmeet.state.event_log import EventLog
from watersmeet.state.manifest import BEFORE_FIRST_EPOCH, FORMAT_VERSION, Manifest, from_json
from watersmeet.state.storage import TEMPORARY, create, names, remove, writing
from watersmeet.state.trial_files import TrialFiles

SCRATCH = ".scratch-"
STATISTICS = "statistics.arrow"


class Checkpoint:
    """A checkpoint folder opened for writing by one driver."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.folder = location / "watersmeet"
        self.segments = self.folder / "segments"
        self.trial = TrialFiles(self.folder / "trial")
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

    def require_same_join(self, marks: Mapping[str, str]) -> None:
        """Refuse a join that differs from the one that the checkpoint is for, naming every difference."""
        found = self._join()
        if found is None:
            return
        if found["format"] != FORMAT_VERSION:
            raise CheckpointError(
                f"the checkpoint has format {found['format']}, this watersmeet reads format {FORMAT_VERSION}",
                hint="open it with the version that wrote it, or start with a new checkpointLocation",
            )
        made_for = found["fingerprint"]
        differences = [
            f"{name}: checkpoint has '{made_for.get(name, 'none')}', query has '{marks.get(name, 'none')}'"
            for name in sorted(made_for.keys() | marks.keys())
            if made_for.get(name) != marks.get(name)
        ]
        if differences:
            raise CheckpointError(
                f"checkpoint {self.location} was made by a different join ({'; '.join(differences)})",
                hint="slots, budgets and delays may change, the join may not: use a new checkpointLocation",
                error_class="DIFFERENT_JOIN",
            )

    def remember_join(self, marks: Mapping[str, str], orders: Mapping[str, list[list[int]]]) -> None:
        """From now on the checkpoint is for this join: to be called when nothing is left that may refuse it. The probe
        orders of its nodes are kept too, though they may change."""
        path = self.folder / "query.json"
        if not path.exists():
            create(path, _join_text(marks, orders))

    def note_join(self, marks: Mapping[str, str], orders: Mapping[str, list[list[int]]]) -> str:
        """The join with another plan: the checkpoint is for it when a manifest names the file that is returned."""
        return self.trial.put(_join_text(marks, orders), ".json").name

    def remembered_plan(self) -> tuple[str, dict[str, list[list[int]]]] | None:
        """The plan of the join that the checkpoint is for, and its probe orders; None where it is for none yet."""
        found = self._join()
        return None if found is None else (found.get("fingerprint", {}).get("plan", ""), found.get("probeOrders", {}))

    def _join(self) -> dict[str, Any] | None:
        """What the checkpoint is for."""
        last = self.latest()
        path = self.folder / "query.json" if last is None or last.join is None else self.trial.folder / last.join
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            if last is None or last.join is None:
                return None
            raise CheckpointError(
                f"{path} is missing", hint="restore it, or start with a new checkpointLocation"
            ) from None
        return found

    def latest(self) -> Manifest | None:
        """The last committed manifest."""
        found = names(self.folder / "manifests")
        return self.read(int(found[-1].removesuffix(".json"))) if found else None

    def read(self, epoch: int) -> Manifest:
        return self._read(self._manifest(epoch))

    def before(self, manifest: Manifest) -> Manifest | None:
        """The manifest that an epoch ran on; None if it was the first."""
        if manifest.base is not None:
            return self._read(self.trial.folder / manifest.base)
        return self.read(manifest.epoch - 1) if manifest.epoch > 0 else None

    def _read(self, path: Path) -> Manifest:
        try:
            return from_json(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"manifest {path.name} cannot be read: {error}",
                hint="restore it, or start with a new checkpointLocation",
            ) from error

    def commit(self, manifest: Manifest) -> None:
        """Create the manifest of an epoch; raises FencedError if the epoch was committed by somebody else."""
        failpoint("before-manifest")
        if not create(self._manifest(manifest.epoch), manifest.to_json()):
            raise FencedError(
                f"epoch {manifest.epoch} was committed by another driver",
                hint="two drivers share this checkpoint; this one stops",
            )
        failpoint("after-manifest")

    def acknowledge(self, epoch: int) -> None:
        """The sink has the results of the epoch: it will not be sent again."""
        failpoint("before-ack")
        create(self._ack(epoch), b"")
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

    def write_events(self, lines: Sequence[str]) -> None:
        """Add lines to the event log; like statistics it is for people, and not worth a sync."""
        self.events.append([json.loads(line) for line in lines])

    def is_acknowledged(self, epoch: int) -> bool:
        return self._ack(epoch).exists()

    def sent_and_committed(self) -> tuple[int, int]:
        """The last epoch that the sink surely has, and the last that it may have; -1 is none."""
        last = self.latest()
        if last is None:
            return BEFORE_FIRST_EPOCH, BEFORE_FIRST_EPOCH
        return (last.epoch if self.is_acknowledged(last.epoch) else last.epoch - 1), last.epoch

    def discard_before(self, manifest: Manifest, older: Manifest | None) -> None:
        """Remove what only `older` needs; call it when `manifest` is acknowledged."""
        if older is None:
            return
        for name in older.segments.keys() - manifest.segments.keys():
            remove(self.segments / name)
        self.trial.remove(older.trial_files - manifest.trial_files)
        failpoint("during-discard")
        remove(self._manifest(older.epoch))
        remove(self._ack(older.epoch))

    def sweep(self, *live: Manifest | None) -> int:
        """Remove files that no live manifest names: leftovers of attempts that failed. Returns how many there were."""
        kept = {name for manifest in live if manifest is not None for name in manifest.segments}
        tried = {name for manifest in live if manifest is not None for name in manifest.trial_files}
        epochs = {manifest.epoch for manifest in live if manifest is not None}
        removed = 0
        folders = (self.segments, self.trial.folder, self.folder / "manifests", self.folder / "acks")
        for folder in (self.folder, *folders):
            entries = list(os.scandir(folder)) if folder.is_dir() else []
            for entry in entries:
                stale = entry.name.startswith((TEMPORARY, SCRATCH))
                stale |= folder == self.segments and entry.name not in kept
                stale |= folder == self.trial.folder and entry.name not in tried
                stale = stale or (
                    folder.name in ("manifests", "acks") and int(entry.name.partition(".")[0]) not in epochs
                )
                if stale:
                    shutil.rmtree(entry.path) if entry.is_dir() else remove(Path(entry.path))
                    removed += 1
        return removed

    def _manifest(self, epoch: int) -> Path:
        return self.folder / "manifests" / f"{epoch:012d}.json"

    def _ack(self, epoch: int) -> Path:
        return self.folder / "acks" / f"{epoch:012d}"


def _join_text(marks: Mapping[str, str], orders: Mapping[str, list[list[int]]]) -> bytes:
    kept = {"format": FORMAT_VERSION, "fingerprint": dict(marks), "probeOrders": dict(orders)}
    return json.dumps(kept, indent=1).encode()
