"""Attacks on a checkpoint: each kind of file x each kind of damage, on checkpoints that a real query has made.

A query is opened as the writer on Spark opens it, and goes on to its end. What may come of an attack is the same
results, or one error of ours; and a tree of files outside is byte for byte as it was.
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tests.crashing import EpochSink
from watersmeet.epoch import protocol
from watersmeet.epoch.after import Clock
from watersmeet.errors import WatersmeetError
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.fingerprint import marks_of_format_1, plan_text, query_marks
from watersmeet.plan.stages import plan_join
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.query_identity import another_join

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.string())])
PARTITIONS, SLOTS = 8, 1
BATCHES_BEFORE, BATCHES = 3, 4


def query(within: str = "10 seconds") -> JoinQuery:
    streams = [Stream(name, SCHEMA, "ts") for name in "ab"]
    return build_query(streams, where=["a.k = b.k"], within=within, windows={}, select=["a.k", "a.v", "b.v AS w"])


def batch(number: int) -> dict[str, pa.Table]:
    rng = random.Random(number)

    def rows(name: str) -> pa.Table:
        keys = [rng.randrange(6) for _ in range(12)]
        times = [number * 2_000_000 + rng.randrange(3_000_000) for _ in keys]
        values = [f"{name}{number}.{i}" for i in range(len(keys))]
        return pa.table([pa.array(keys), pa.array(times).cast(SCHEMA.field("ts").type), pa.array(values)], SCHEMA)

    return {name: rows(name) for name in "ab"}


@dataclass
class Run:
    """A query on a folder, with a sink that outlives it."""

    folder: Path
    sink: EpochSink = field(default_factory=EpochSink)

    def open(self, asked: JoinQuery | None = None) -> InProcessQuery:
        """As the writer does it: all that may refuse the query comes before the first write."""
        asked = asked or query()
        plan = plan_join(asked, (default_tree(asked),), PARTITIONS)
        with closing(_Held(self.folder)) as held:
            checkpoint = held.checkpoint
            known = checkpoint.plan()
            marks = query_marks(asked, plan)
            checkpoint.require_same_query(marks, marks_of_format_1(asked, plan))
            if known is not None and known.trees != plan_text(plan):
                raise another_join(checkpoint.location, ["plan"])
            engine = InProcessQuery(
                asked, self.folder, slots=SLOTS, partitions=PARTITIONS, keeps_results=True, sink=self.sink
            )
            if (kept := checkpoint.read_statistics()) is not None:
                engine.coordinator.ledger.restore(kept)
            engine.checkpoint.remember_query(marks)
            if (last := engine.checkpoint.latest()) is not None:
                engine.checkpoint.events.restore(last.epoch, [{"epoch": last.epoch, "kind": "restored"}])
        return engine

    def go_on(self, until: int, *, dies_before: type | None = None) -> None:
        """Join the batches up to a number; in the last one the driver may die before a command."""
        engine = self.open()
        engine.recover()
        last = engine.checkpoint.latest()
        first = 0 if last is None or last.batch is None else last.batch + 1
        for number in range(first, until):
            for command in engine.steps(number, batch(number), Clock()):
                if number == until - 1 and dies_before is not None and isinstance(command, dies_before):
                    return
            engine.checkpoint.events.append([{"epoch": engine.manifest.epoch, "kind": "joined", "rows": 24}])
            engine.checkpoint.write_statistics(engine.coordinator.ledger.table(engine.manifest.placement))

    def results(self) -> Counter[str]:
        return Counter(repr(row) for table in self.sink.received.values() for row in table.to_pylist())


class _Held:
    """The lock of a checkpoint, released however it ends."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = Checkpoint(folder)
        self.checkpoint.acquire("an attack")

    def close(self) -> None:
        self.checkpoint.release()


STATES = {"acknowledged": None, "unsent": protocol.Send, "sent": protocol.Acknowledge}
"""What a checkpoint may be left as: complete, or by a driver that died before a command."""


def make(folder: Path, state: str) -> EpochSink:
    """A checkpoint in one of the states, and a copy of an older one; the sink, as it is then."""
    run = Run(folder / "ck")
    run.go_on(BATCHES_BEFORE - 1, dies_before=protocol.Discard)
    shutil.copytree(folder / "ck", folder / "older")
    run.go_on(BATCHES_BEFORE, dies_before=STATES[state])
    return run.sink


def expected() -> Counter[str]:
    """What comes of the query if nothing happens to it."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        run.go_on(BATCHES)
        return run.results()


# Files, as paths of one that is there


def _last(ours: Path, folder: str) -> Path:
    return max((ours / folder).iterdir())


FILES: dict[str, Callable[[Path], Path]] = {
    "lock": lambda ours: ours / "lock",
    "query.json": lambda ours: ours / "query.json",
    "last manifest": lambda ours: _last(ours, "manifests"),
    "acknowledgement": lambda ours: _last(ours, "acks"),
    "segment": lambda ours: _last(ours, "segments"),
    "results": lambda ours: _last(ours, "outbox"),
    "statistics.arrow": lambda ours: ours / "statistics.arrow",
    "events.jsonl": lambda ours: ours / "events.jsonl",
}
FOLDERS = ("", "segments", "outbox", "manifests", "acks", "tasks", "trial")

# Damages of a file; `outside` has canaries

Damage = Callable[[Path, Path], None]


def _write(content: bytes) -> Damage:
    return lambda path, _: _replaced(path, lambda: path.write_bytes(content))


def _replaced(path: Path, put: Callable[[], object]) -> None:
    path.unlink()
    put()


def _cut(length: Callable[[int], int]) -> Damage:
    return lambda path, _: os.truncate(path, length(path.stat().st_size))


def flip(path: Path, rng: random.Random) -> None:
    """One bit of the file, in place."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _flip(path: Path, _: Path) -> None:
    if path.stat().st_size:
        flip(path, random.Random(path.stat().st_size))


def _older(path: Path, _: Path) -> None:
    """The file of this kind that an earlier epoch has left, under this name."""
    is_top = path.parent.name == "watersmeet"
    older = path.parents[2 if is_top else 3] / "older" / "watersmeet"
    found = older / path.name if is_top else _last(older, path.parent.name)
    shutil.copyfile(found, path)


def _as_folder(path: Path, _: Path) -> None:
    _replaced(path, path.mkdir)
    (path / "kept").write_bytes(b"in a folder")


DAMAGES: dict[str, Damage] = {
    "a bit flipped": _flip,
    "cut to 0 bytes": _cut(lambda size: 0),
    "cut to 1 byte": _cut(lambda size: min(size, 1)),
    "cut to half": _cut(lambda size: size // 2),
    "cut by 1 byte": _cut(lambda size: max(0, size - 1)),
    "deleted": lambda path, _: path.unlink(),
    "link to a file outside": lambda path, outside: _replaced(path, lambda: path.symlink_to(outside / "file")),
    "link to nothing outside": lambda path, outside: _replaced(path, lambda: path.symlink_to(outside / "new")),
    "link to a folder outside": lambda path, outside: _replaced(path, lambda: path.symlink_to(outside / "folder")),
    "hard link to a file outside": lambda path, outside: _replaced(path, lambda: path.hardlink_to(outside / "file")),
    "a folder": _as_folder,
    "a pipe": lambda path, _: _replaced(path, lambda: os.mkfifo(path)),
    "an older copy": _older,
    "the text 5": _write(b"5"),
    "the text []": _write(b"[]"),
    "the text null": _write(b"null"),
    "the text {}": _write(b"{}"),
    "deep nesting": _write(b'{"a":' * 200_000),
    "zeros": _write(bytes(5000)),
    "noise": _write(random.Random(0).randbytes(5000)),
}
FOLDER_DAMAGES: dict[str, Damage] = {
    "link to a folder outside": lambda path, outside: path.symlink_to(outside / "folder"),
    "link to nothing outside": lambda path, outside: path.symlink_to(outside / "new"),
    "a file": lambda path, _: path.write_bytes(b"a file"),
}

# What must not change


def plant(outside: Path) -> None:
    (outside / "folder" / "segments").mkdir(parents=True)
    for name in ("file", "folder/1-0-0-abc-0.seg", "folder/000000000001.json", "folder/segments/1-0-0-abc-0.seg"):
        (outside / name).write_bytes(f"canary {name}".encode())


def looks(outside: Path) -> dict[str, tuple[bytes, int]]:
    """All that lies outside: contents, and when they were changed."""
    return {
        str(path.relative_to(outside)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in sorted(outside.rglob("*"))
    }


class Attacked:
    """A copy of a checkpoint that can be damaged, with canaries beside it."""

    def __init__(self, made: Path, sink: EpochSink, at: Path) -> None:
        shutil.copytree(made, at)
        self.run = Run(at / "ck", EpochSink(dict(sink.received)))
        self.ours, self.outside = at / "ck" / "watersmeet", at / "outside"
        plant(self.outside)

    def outcome(self, right: Counter[str]) -> str:
        """What comes of it: "the same results", or the text of the error; anything else is an AssertionError."""
        before = looks(self.outside)
        try:
            self.run.go_on(BATCHES)
        except WatersmeetError as error:
            found = str(error)
            assert not self.run.results() - right, "results that are not right were sent before the error"
        else:
            assert self.run.results() == right, "wrong results"
            self.run.open()  # and nothing is left that the next driver stumbles over
            found = "the same results"
        assert looks(self.outside) == before, "something outside the checkpoint has changed"
        return found
