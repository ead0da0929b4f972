"""A query through power cuts: the product's driver, checkpoint and sink folder, with stand-ins for what Spark writes.

The stand-ins write as Spark does: by rename, with Hadoop's checksums, and without a sync. They read as Spark does: a
log entry that is torn, or a checksum that is wrong, is an error, and a batch is made again unless it is logged.
Files of the streams are numbers, and their rows a function of these.

    disk/state/ck/spark       offsets, sources and commits, by `StandInStream`
    disk/state/ck/watersmeet  the product's
    disk/out                  the product's, but for the log's entries and the files of Spark's writers
"""

import json
import shutil
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from tests.power import Disk, PowerCut
from watersmeet.epoch import protocol
from watersmeet.epoch.after import Clock
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state import mapped, tiers
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.log_folder import LogFolder, number_of
from watersmeet.state.manifest import ResultFile
from watersmeet.state.part_files import ANYBODY
from watersmeet.state.sink_folder import LOG_FOLDER, Parts, SinkFolder
from watersmeet.state.storage import local_path

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
FILES, ROWS, KEYS = 4, 3, 2
COMPACT_EVERY = 4
CUTS_MAX = 3
EVENTS_MAX = 200
"""About as many as a run has."""
NAMED, NAMED_MAX = "named", 40
"""An entry of a log, or its checksum, has its name, and nobody has synced it: many cuts come just then."""
Event = Callable[..., None]


@cache
def query() -> JoinQuery:
    streams = [Stream(name, SCHEMA, None) for name in "ab"]
    return build_query(
        streams, where=["a.k = b.k"], within=None, windows={}, select=["a.k AS k", "a.v AS v", "b.v AS w"]
    )


def rows_of(source: int, files: list[int]) -> pa.Table:
    chance = [Random(f"{source} {file}") for file in files]
    rows = [
        {"k": each.randrange(KEYS), "v": file * ROWS + i}
        for each, file in zip(chance, files, strict=True)
        for i in range(ROWS)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def expected() -> Counter[tuple[int, int, int]]:
    a, b = (rows_of(source, list(range(FILES))).to_pylist() for source in range(2))
    return Counter((x["k"], x["v"], y["v"]) for x in a for y in b if x["k"] == y["k"])


class StandInLog:
    """A log of Spark's: entries are renamed into place, then their checksums; nothing is synced."""

    def __init__(self, folder: Path, event: Event) -> None:
        self.log, self._event = LogFolder(folder), event

    def write(self, name: str, lines: list[str]) -> None:
        folder, data = self.log.folder, "\n".join(["v1", *lines]).encode()
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{name}.{uuid.uuid4()}.tmp"
        sums = b"".join(zlib.crc32(data[i : i + 512]).to_bytes(4, "big") for i in range(0, len(data), 512))
        checksum = folder / f".{temporary.name}.crc"
        for path, content in ((temporary, data), (checksum, b"crc\0" + (512).to_bytes(4, "big") + sums)):
            path.write_bytes(content)
            self._event()
        temporary.rename(folder / name)
        self._event(NAMED)
        checksum.rename(folder / f".{name}.crc")
        self._event(NAMED)

    def read(self, name: str) -> list[str]:
        checksum = self.log.folder / f".{name}.crc"
        assert not checksum.exists() or self.log.is_whole(name), f"{name} of {self.log.folder} has a wrong checksum"
        version, *lines = (self.log.folder / name).read_text().splitlines() or [""]
        assert version == "v1", f"{name} of {self.log.folder} is incomplete"
        assert all(map(_is_json, lines)), f"{name} of {self.log.folder} has a torn line"
        return lines


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True


class StandInStream:
    """Hands over micro-batches of the files of two streams, as Spark does with file sources."""

    def __init__(self, folder: Path, chance: Random, event: Event) -> None:
        self.offsets, self.commits = (StandInLog(folder / name, event) for name in ("offsets", "commits"))
        self.sources = [StandInLog(folder / "sources" / str(i), event) for i in range(2)]
        self._chance = chance

    def batches(self) -> Iterator[tuple[int, Mapping[str, pa.Table]]]:
        """Every batch that is not committed yet; it is when the next one is asked for."""
        planned, done = (set(map(number_of, log.log.entries())) for log in (self.offsets, self.commits))
        number = max(planned, default=0)
        number += number in done
        while number in planned or self._plan(number):
            yield number, self._batch(number)
            self.commits.write(str(number), ["{}"])
            number += 1

    def _plan(self, number: int) -> bool:
        """Log the next batch: of each source, none to all of the files that no entry names."""
        ends, is_over = [], True
        for source in self.sources:
            entries = source.log.entries()
            seen = {json.loads(line) for name in entries for line in source.read(name)}
            left = [file for file in range(FILES) if file not in seen]
            end = number_of(entries[-1]) if entries else -1
            is_over &= not left
            if left and (some := self._chance.randrange(3)):
                end += 1
                source.write(str(end), [str(file) for file in left[:some]])
            ends.append(end)
        if is_over and ends == self._ends(number - 1):
            return False
        self.offsets.write(str(number), ["{}", *(json.dumps({"logOffset": end}) for end in ends)])
        return True

    def _batch(self, number: int) -> dict[str, pa.Table]:
        batch = {}
        for i, (start, end) in enumerate(zip(self._ends(number - 1), self._ends(number), strict=True)):
            names = [str(entry) for entry in range(start + 1, end + 1)]
            files = [json.loads(line) for name in names for line in self.sources[i].read(name)]
            batch["ab"[i]] = rows_of(i, files)
        return batch

    def _ends(self, number: int) -> list[int]:
        if number < 0:
            return [-1, -1]
        return [json.loads(line)["logOffset"] for line in self.offsets.read(str(number))[1:]]


class StandInSink:
    """Names part files in the log as Spark's does, and writes files as its writers do, where tasks have not."""

    def __init__(self, folder: Path, event: Event, *, takes_parts: bool) -> None:
        self.folder, self.sink = folder, SinkFolder(folder)
        self._log, self._event = StandInLog(folder / LOG_FOLDER, event), event
        self.takes_parts = takes_parts

    def add(self, epoch: int, files: object) -> None:
        raise AssertionError("epochs are delivered with their manifests")

    def deliver(self, epoch: int, files: tuple[ResultFile, ...], shown: pa.Table | None) -> None:
        def write() -> Parts:
            if shown is None or self.takes_parts:
                return [(self.folder / file.name, file) for file in files]
            staged = self.folder / f"{ANYBODY.staging}{uuid.uuid4().hex}"
            try:
                self._write(staged, shown)
                return self.sink.take_in(staged, ANYBODY, epoch)
            finally:
                shutil.rmtree(staged, ignore_errors=True)

        self.sink.deliver(epoch, write, lambda parts: self._name(epoch, parts))

    def _write(self, staged: Path, shown: pa.Table) -> None:
        """A file for each key, in a partition of its own."""
        lines = []
        for key in sorted(set(shown["k"].to_pylist())):
            path = staged / f"k={key}" / f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(shown.filter(pa.compute.equal(shown["k"], key)), path)
            lines.append(json.dumps({"path": path.as_uri()}))
            self._event()
        StandInLog(staged / LOG_FOLDER, self._event).write("0", lines)

    def _name(self, epoch: int, parts: Parts) -> None:
        lines, name = [json.dumps({"path": path.as_uri()}) for path, _ in parts], str(epoch)
        if (epoch + 1) % COMPACT_EVERY == 0:
            lines, name = self._named() + lines, f"{epoch}.compact"
        self._log.write(name, lines)

    def _named(self) -> list[str]:
        entries = self._log.log.entries()
        last = max((i for i, name in enumerate(entries) if name.endswith(".compact")), default=0)
        return [line for name in entries[last:] for line in self._log.read(name)]

    def results(self) -> Counter[tuple[int, int, int]]:
        """What a reader sees; an error if the log or a file is torn."""
        files = [local_path(json.loads(line)["path"]) for line in self._named()]
        try:
            tables = [pq.ParquetFile(file).read() for file in files]
        except pa.ArrowInvalid as error:
            raise AssertionError("the log names a file that is torn") from error
        return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())

    def check_leftovers(self) -> None:
        named = {Path(json.loads(line)["path"]).name for line in self._named()}
        left = {path.name for path in self.folder.rglob("part-*")} - named
        left |= {path.name for path in self.folder.glob(".watersmeet-*")} | set(self.sink.log.unfinished())
        assert not left, f"{left} are left over"


class PoweredQuery(InProcessQuery):
    """The driver in process, with a sink that is told of every epoch, and swept."""

    def __init__(self, folder: Path, sink: StandInSink) -> None:
        self.stand_in = sink
        super().__init__(
            query(), folder, partitions=4, keeps_results=True, parts=sink if sink.takes_parts else None, slots=2
        )

    def _send(self, command: protocol.Send) -> protocol.Event:
        box = command.manifest.outbox
        shown = None
        if box.shows:
            shown = self.slots.shown(command.manifest, None)
        self.stand_in.deliver(command.manifest.epoch, box.files, shown)
        return protocol.Sent()

    def _look(self, command: protocol.Look) -> protocol.Event:
        left = self.stand_in.sink.leftovers(ANYBODY)
        return protocol.Looked(self.checkpoint.files() | {f"sink:{name}" for name in left})

    def _sweep(self, command: protocol.Sweep) -> None:
        of_sink = {name for name in command.seen if name.startswith("sink:")}
        self.checkpoint.sweep(command.live, command.seen - of_sink)
        self.stand_in.sink.sweep({name.removeprefix("sink:") for name in of_sink})


def run_to_the_end(root: Path, chance: Random, event: Event, *, takes_parts: bool) -> StandInSink:
    """A driver starts on what is there, and takes in all files of the streams."""
    tiers._verified.clear()  # a process after a cut knows nothing
    mapped._mapped.clear()
    sink = StandInSink(root / "sinks" / "out", event, takes_parts=takes_parts)
    Checkpoint(root / "state" / "ck").mend_spark_log()
    engine = PoweredQuery(root / "state" / "ck", sink)
    sink.sink.prepare()
    stream = StandInStream(engine.checkpoint.spark_location, chance, event)
    for _ in engine.recovery():
        event()
    for number, batch in stream.batches():
        for _ in engine.steps(number, batch, Clock()):
            event()
    return sink


def play(folder: Path, seed: int) -> int:
    """A query through some cuts, and then to its end: it has all results once. How many cuts there were."""
    chance, root, cuts = Random(seed), folder / "disk", 0
    takes_parts = chance.random() < 0.5
    root.mkdir()
    while True:
        kind, events_max = chance.choice(((None, EVENTS_MAX), (NAMED, NAMED_MAX)))
        disk = Disk(root, chance, chance.randrange(1, events_max) if cuts < CUTS_MAX else None, kind)
        disk.settle()
        try:
            with disk.recorded():
                sink = run_to_the_end(root, chance, disk.event, takes_parts=takes_parts)
            break
        except PowerCut:
            cuts += 1
            shutil.rmtree(root)
            disk.after.rename(root)
    found, right = sink.results(), expected()
    assert found == right, f"seed {seed}: {(found - right).total()} too many, {(right - found).total()} missing"
    sink = run_to_the_end(root, chance, lambda *_: None, takes_parts=takes_parts)  # which takes over, and sweeps
    assert sink.results() == right, f"seed {seed}: a restart has changed the results"
    sink.check_leftovers()
    return cuts
