"""The checkpoint folder: its lock, commits, acknowledgements, and the removal of old files.

    <checkpointLocation>/
      spark/                    Spark's own checkpoint: offsets and commits of the sources
      watersmeet/
        query.json              the marks that identify the query
        id                      random: identifies the checkpoint in the sink's folder and in the memory tier
        lock                    held by the live driver
        manifests/<epoch>.json  created exclusively: the creator of the last epoch owns it, all others are fenced
        acks/<epoch>            the sink has the results of the epoch
        segments/               state
        outbox/                 results, from which sinks are served
        tasks/                  task files of a running job
        requests/               requests of other processes (`state/requests.py`)
        statistics.arrow        statistics of partition groups; may be missing or old
        events.jsonl            adaptations with their reasons, older ones summed up (`event_log.py`)

The commit protocol (`epoch/protocol.py`) defines in which order files are made and removed. A file that the last
manifest names is never removed. Any other file is removed only if no driver that can still commit may name it.

The folder may be damaged or hostile: files with other names are left alone, no link is followed
(`state/plain_files.py`), and contents are checked before use. A damaged file is refused by name; the last two files are
set aside and started again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import pyarrow as pa

from watersmeet.errors import CheckpointError
from watersmeet.failpoints import failpoint
from watersmeet.plan.stages import JoinPlan
from watersmeet.state.checkpoint_id import ID_BYTES, keep_id, read_id
from watersmeet.state.damage import Damage, damaged, reading
from watersmeet.state.event_log import EventLog
from watersmeet.state.file_names import (
    ATTEMPTS,
    FILES,
    OF_FORMAT_1,
    acknowledged_name,
    committed_name,
    is_folder_of_ours,
    is_left_over,
)
from watersmeet.state.format_1 import OldCheckpoint, is_format_1, read_old
from watersmeet.state.lock import cannot_write, taken
from watersmeet.state.manifest import BEFORE_FIRST_EPOCH, Manifest, PlanText
from watersmeet.state.manifest_json import from_value, offsets_of, plan_of, read_value, to_json
from watersmeet.state.measures import RESULTS, Counts
from watersmeet.state.plain_files import (
    NotPlainError,
    open_to_append,
    plain_status,
    read_plain,
    require_real_folder,
)
from watersmeet.state.query_file import Written, hash_of, write_marks
from watersmeet.state.query_identity import Identity, identity_of
from watersmeet.state.spark_log import Offsets, SparkLog
from watersmeet.state.spark_log_sync import SparkLogSync
from watersmeet.state.statistics_file import read_statistics, write_statistics
from watersmeet.state.storage import create, make_folder, names, remove, sync_way_to, writing

RESTORE_MANIFEST = (
    "restore the checkpoint from a backup, or start with a new checkpointLocation; an older manifest cannot stand in "
    "for it, because results of this one may have been sent and files of the older one removed"
)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of the state: the part of the last manifest that can be read without a plan, in all formats."""

    epoch: int
    batch: int | None
    offsets: Offsets | None = None
    results: int = 0
    """The number since the query was first started."""


class Checkpoint:
    """A checkpoint folder opened for writing by one driver."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.folder = location / "watersmeet"
        self.segments = self.folder / "segments"
        self.outbox = self.folder / "outbox"
        self.manifests = self.folder / "manifests"
        self.tasks, self.acks = self.folder / "tasks", self.folder / "acks"
        self.requests = self.folder / "requests"
        self.attempts = self.tasks / f"{uuid.uuid4().hex}{ATTEMPTS}"
        """Where this driver's attempts announce their segments (`state/attempts.py`)."""
        self.events = EventLog(self.folder)
        self.spark_log_sync = SparkLogSync(self.spark_location)
        self.is_prepared = False
        self._uid: str | None = None
        self._lock: BinaryIO | None = None
        self._query: str | None = None
        """The hash of the query that manifests are written for."""
        self._next: str | None = None

    @property
    def spark_location(self) -> Path:
        return self.location / "spark"

    @property
    def spark_log(self) -> SparkLog:
        return SparkLog(self.spark_location)

    def acquire(self, owner: str) -> None:
        """Take the lock for this driver; refused while another live driver holds it. The end of the process releases
        it."""
        if (self.location / "offsets").is_dir() or (self.location / "metadata").is_file():
            raise CheckpointError(
                f"{self.location} is the checkpoint of a plain Spark query",
                hint="give the join a checkpointLocation of its own",
            )
        self._require_folders()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self.location, error) from error
        self._lock = taken(self.folder / "lock", self.location, owner)

    def _require_folders(self) -> None:
        for path in (self.folder, *(self.folder / name for name in FILES), self.folder / OF_FORMAT_1):
            with reading(path, "put the folder itself there: a checkpoint is one folder, and no link is followed"):
                require_real_folder(path)

    def prepare(self) -> None:
        """Make the folders of this run durably, so that no file can be lost with its folder, and write the checkpoint's
        id. Call it after all checks that may refuse the query."""
        with writing(self.folder):
            for folder in (self.segments, self.outbox, self.manifests, self.tasks, self.acks):
                folder.mkdir(parents=True, exist_ok=True)
            sync_way_to(self.folder)
        keep_id(self.folder / "id", bytes.fromhex(self.uid()), self.location)
        self.is_prepared = True

    def release(self) -> None:
        """Release the lock; this driver's attempts may no longer write."""
        if self._lock is not None:
            shutil.rmtree(self.attempts, ignore_errors=True)
            self._lock.close()
            self._lock = None

    def mend_spark_log(self, sources: Collection[str] = ()) -> None:
        """Remove the torn entries of a planned batch after a power cut, before Spark reads them, and those of a batch
        that was planned for others than these named sources."""
        value = self._last_value()
        self.spark_log_sync.mend(None if value is None else value["batch"], sources)

    def uid(self) -> str:
        """A unique name that stays when the checkpoint is moved; a new one until `prepare`."""
        if self._uid is None:
            self._uid = (read_id(self.folder / "id") or secrets.token_bytes(ID_BYTES)).hex()
        return self._uid

    def identity(self) -> str:
        """A name of this checkpoint, unique on the host: a copy in another folder has another name."""
        return hashlib.sha256(bytes.fromhex(self.uid()) + os.fsencode(self.location.resolve())).hexdigest()[:32]

    def require_same_query(
        self, join: Mapping[str, str], marks_1: Mapping[str, str], output: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Refuse a query whose join or output differs from the checkpoint's (`state/query_identity.py`)."""
        self.identified(join, marks_1, output).require_same(self.location)

    def identified(
        self, join: Mapping[str, str], marks_1: Mapping[str, str], output: Mapping[str, str] = MappingProxyType({})
    ) -> Identity:
        """The query of the checkpoint beside the given one; `marks_1` are the marks of its join in format 1."""
        last, old = self._last_value(), self.old()
        return identity_of(self.folder / "query.json", last, old, join, marks_1, output)

    def remember_query(self, marks: Mapping[str, str], texts: Mapping[str, Any] | None = None) -> None:
        """Tie the checkpoint to this query. Call it after all checks that may refuse the query."""
        self._query = hash_of(marks)
        if self.old() is None:
            write_marks(self.folder / "query.json", Written(marks, texts))

    def expect_change(self, before: Written, after: Written) -> None:
        """Note that a commit will change the query: until then the one before is in force."""
        self._query, self._next = hash_of(before.marks), hash_of(after.marks)
        write_marks(self.folder / "query.json", before, after)

    def plan(self) -> PlanText | None:
        """The plan of the state; None if there is no state yet."""
        value = self._last_value()
        if value is None:
            return None
        return read_old(self.folder, value).plan if is_format_1(value) else plan_of(value)

    def old(self) -> OldCheckpoint | None:
        """The contents of a checkpoint of format 1; None for other formats."""
        value = self._last_value()
        return None if value is None or not is_format_1(value) else read_old(self.folder, value)

    def latest(self, plan: JoinPlan | None = None) -> Manifest | None:
        """The last committed manifest; one of format 1 can only be read with the plan of its state."""
        value = self._last_value()
        if value is None:
            return None
        with reading(self._manifest(value["epoch"]), RESTORE_MANIFEST):
            if plan is None or not is_format_1(value):
                return from_value(value)
            old = read_old(self.folder, value)
            old.require_acknowledged(self.is_acknowledged(value["epoch"]))
            return old.upgraded(plan)

    def ending(self) -> Ending | None:
        """The end of the state; None if there is no state."""
        value = self._last_value()
        if value is None:
            return None
        with reading(self._manifest(value["epoch"]), RESTORE_MANIFEST):
            counts = Counts.named(value["totals"] if is_format_1(value) else value["counters"])
            return Ending(value["epoch"], value["batch"], offsets_of(value), counts.of(RESULTS))

    def _last_epoch(self) -> int | None:
        found = self._names("manifests")
        return int(found[-1].removesuffix(".json")) if found else None

    def _names(self, folder: str) -> list[str]:
        return [name for name in names(self.folder / folder) if FILES[folder].fullmatch(name)]

    def _last_value(self) -> dict[str, Any] | None:
        """The last manifest, checked; a damaged or missing one is refused."""
        self._require_folders()
        acknowledged, last = self._names("acks"), self._last_epoch()  # in this order: a live driver may commit between
        sent = int(acknowledged[-1]) if acknowledged else BEFORE_FIRST_EPOCH
        if sent > (BEFORE_FIRST_EPOCH if last is None else last):
            raise damaged(
                self._manifest(sent),
                "it is missing, and so are later ones, though its results were sent",
                RESTORE_MANIFEST,
            )
        if last is None:
            return None
        with reading(self._manifest(last), RESTORE_MANIFEST):
            try:
                value = read_value(read_plain(self._manifest(last)))
            except FileNotFoundError:
                if self._last_epoch() == last:
                    raise
                return self._last_value()  # a live driver has committed the next one
            if value["epoch"] != last:
                raise Damage(f"it is the manifest of epoch {value['epoch']}")
            return value

    def commit(self, manifest: Manifest, *, changes_query: bool = False) -> bool:
        """Create the manifest of an epoch; when it exists, the whole epoch is durable, Spark's logs included. False if
        another driver has committed the epoch. From an epoch that changes the query on, the expected one is in force.

        A driver that was paused for several epochs finds the name free again, because older manifests are removed. The
        last one never is: if a later one exists once ours is created, ours came too late and is removed. If ours is the
        last, the one before is removed at once: if ours gets lost, no driver may continue from the one before.
        """
        failpoint("before-manifest")
        self.spark_log_sync.sync()
        path = self._manifest(manifest.epoch)
        self._query = self._next if changes_query else self._query
        is_ours = create(path, to_json(manifest, self._query))
        failpoint("after-manifest")
        if is_ours and self._last_epoch() != manifest.epoch:
            remove(path)
            return False
        if is_ours:
            remove(self._manifest(manifest.epoch - 1))
        return is_ours

    def acknowledge(self, epoch: int) -> None:
        """Record that the sink has the results of the epoch: it will not be sent again. This is not synced: an epoch
        whose record is lost in a power cut is sent again, as after a crash just before."""
        failpoint("before-ack")
        path, before = self._ack(epoch), self._ack(epoch - 1)
        with writing(path):
            try:
                plain_status(before)
                os.rename(before, path)  # cheaper than a new file, and the one before is not needed
            except (FileNotFoundError, NotPlainError):
                make_folder(path.parent)
                open_to_append(path).close()
        failpoint("after-ack")

    def write_statistics(self, table: pa.Table) -> None:
        write_statistics(self.folder, table)

    def read_statistics(self) -> pa.Table | None:
        return read_statistics(self.folder)

    def is_acknowledged(self, epoch: int) -> bool:
        with reading(self._ack(epoch), "remove it: the results are sent again"):
            try:
                plain_status(self._ack(epoch))
                return True
            except FileNotFoundError:
                return False

    def sent_and_committed(self) -> tuple[int, int]:
        """The last epoch that the sink has for certain, and the last that it may have; -1 if none."""
        last = self._last_epoch()
        if last is None:
            return BEFORE_FIRST_EPOCH, BEFORE_FIRST_EPOCH
        return (last if self.is_acknowledged(last) else last - 1), last

    def discard(self, older: Manifest | None, newer: Manifest, unnamed: Iterable[str] = ()) -> None:
        """Remove files that only `older` names, and segments of the epoch that `newer` does not name; call it when
        `newer` is acknowledged."""
        for name in unnamed:
            remove(self.segments / name)
        if older is None:
            return
        for name in older.segments.keys() - newer.segments.keys():
            remove(self.segments / name)
        for name in _in_outbox(older):
            remove(self.outbox / name)
        failpoint("during-discard")
        remove(self._ack(older.epoch))

    def files(self) -> frozenset[str]:
        """All our files in the folders of state, results, manifests, acknowledgements and tasks, and leftovers of
        attempts, as paths in the checkpoint. Files with other names are not ours."""
        found = set()
        for name in ("", *FILES):
            folder = self.folder / name
            for entry in os.scandir(folder) if folder.is_dir() else ():
                if is_left_over(entry.name) or (name and FILES[name].fullmatch(entry.name)):
                    found.add(f"{name}/{entry.name}" if name else entry.name)
        return frozenset(found)

    def sweep(self, live: Manifest, seen: Iterable[str]) -> int:
        """Remove files that the last manifest does not name (leftovers of failed attempts), and return their number.

        `seen` is the result of `files` before that manifest was committed: later files may be in use."""
        kept = {
            *(self.segments / name for name in live.segments),
            *(self.outbox / name for name in _in_outbox(live)),
            self._manifest(live.epoch),
            self._ack(live.epoch),
        }
        stale = [path for name in seen if (path := self.folder / name) not in kept]
        for path in stale:
            if is_folder_of_ours(path.name) and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            remove(path)
        return len(stale)

    def _manifest(self, epoch: int) -> Path:
        return self.manifests / committed_name(epoch)

    def _ack(self, epoch: int) -> Path:
        return self.acks / acknowledged_name(epoch)


def _in_outbox(manifest: Manifest) -> set[str]:
    """Files of results in the checkpoint that a manifest names."""
    return {file.name for file in manifest.outbox.files} if manifest.outbox.place == "checkpoint" else set()
