"""The folder of a file sink on a local path: its owner, the durable epochs of its log, and leftover files.

    out/
      part-...                      results; readers through Spark see those that the log names
      _spark_metadata/<epoch>       Spark's log (`log_folder.py`)
      _spark_metadata/.watersmeet   the owner: the checkpoint whose epochs the log counts; made exclusively
      .watersmeet-<checkpoint>-*    files of Spark's writers for an epoch that is being sent

An epoch is durable in the log when its files, the log's entry and all folders on the path are synced, in this order:
files are durable before they are named, so a whole entry names whole files. An entry torn by a power cut is removed,
and its epoch is sent again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from watersmeet.errors import SinkError
from watersmeet.state.log_folder import COMPACT, LogFolder, number_of
from watersmeet.state.manifest import ResultFile
from watersmeet.state.part_files import Maker
from watersmeet.state.storage import local_path, make_folder, remove, sync_file, sync_folder, sync_way_to

LOG_FOLDER = "_spark_metadata"
SYNCS_AT_ONCE = 8
_SUFFIX = re.compile(r"part-\d+-[0-9a-f-]{36}[.-](c\d+\.)?")
"""The part of a file name by Spark's writers before the suffix of the format."""
Parts = Sequence[tuple[Path, ResultFile]]


@dataclass(frozen=True, slots=True)
class SinkFolder:
    folder: Path

    @property
    def log(self) -> LogFolder:
        return LogFolder(self.folder / LOG_FOLDER)

    def prepare(self) -> None:
        """Make the folder and its log folder durably."""
        make_folder(self.log.folder)
        sync_way_to(self.log.folder)

    def knows(self, epoch: int) -> bool:
        """Whether the log has an epoch; an entry torn by a power cut is removed."""
        name = self.log.entry(epoch)
        if name is None or self.log.is_whole(name):
            return name is not None
        self.log.remove(name)
        return False

    def settle(self, epoch: int) -> None:
        """Make the log's entry of an epoch durable."""
        name = self.log.entry(epoch)
        if name is None:
            raise SinkError(f"{self.log.folder} has no entry of epoch {epoch}, which was just written to it")
        self.log.sync([name])

    def deliver(self, epoch: int, write: Callable[[], Parts], name: Callable[[Parts], None]) -> None:
        """Make an epoch durable in the log. Unless the log has it, `write` its part files durably, and `name` them in
        the log."""
        if not self.knows(epoch):
            name(write())
        self.settle(epoch)

    def take_in(self, staged: Path, maker: Maker, epoch: int) -> Parts:
        """Turn files that Spark has written into a staging folder, with its own log, into part files: durable, with our
        names, in the same partitions. Nobody reads them until the log names them."""
        sources = [local_path(line["path"]) for line in _lines(staged / LOG_FOLDER / "0")]
        with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
            list(pool.map(sync_file, sources))
        parts = [self._move(path, staged, maker, epoch, number) for number, path in enumerate(sources)]
        for folder in {path.parent for path, _ in parts}:
            sync_folder(folder)
        return parts

    def _move(self, path: Path, staged: Path, maker: Maker, epoch: int, number: int) -> tuple[Path, ResultFile]:
        folder = self.folder / path.parent.relative_to(staged)
        make_folder(folder)
        target = folder / maker.part_name(epoch, number, _SUFFIX.sub("", path.name))
        path.rename(target)
        status = target.stat()
        return target, ResultFile(target.name, status.st_size, status.st_mtime_ns // 1_000_000)

    def leftovers(self, maker: Maker) -> frozenset[str]:
        """Files of the checkpoint that may be left over, as paths in the folder: part files, whether the log names them
        or not, files not sent yet, and unfinished entries of the log."""
        found = {str(path.relative_to(self.folder)) for path in self._parts() if maker.has_made(path.name)}
        found |= {path.name for path in self.folder.glob(f"{maker.staging}*")}
        return frozenset(found | {f"{LOG_FOLDER}/{name}" for name in self.log.unfinished()})

    def sweep(self, seen: Iterable[str]) -> int:
        """Remove the leftovers that the log does not name, and return their number. If the log has gaps or cannot be
        read, part files stay."""
        stale = {Path(name) for name in seen}
        parts = {path for path in stale if path.name.startswith("part-")}
        if parts:
            named = self._named()
            stale -= parts if named is None else {path for path in parts if path.name in named}
        for path in (self.folder / path for path in stale):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else remove(path)
        return len(stale)

    def _parts(self) -> Iterator[Path]:
        """Part files, including those in partition folders."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name.startswith("part-"):
                yield path
            elif "=" in path.name:
                yield from path.rglob("part-*")

    def _named(self) -> set[str] | None:
        """The names of all files in the log, without folders (names are unique); None if unknown. A compact entry
        repeats all entries before it."""
        entries = self.log.entries()
        last = max((i for i, name in enumerate(entries) if name.endswith(COMPACT)), default=0)
        numbers = [number_of(name) for name in entries[last:]]
        if not entries or (last == 0 and numbers[0] and not entries[0].endswith(COMPACT)):
            return None
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            return None
        try:
            return {Path(line["path"]).name for name in entries[last:] for line in _lines(self.log.folder / name)}
        except (OSError, ValueError, LookupError, TypeError):
            return None


def _lines(entry: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in entry.read_text().splitlines()[1:]]
