"""Spark's logs of a stream, in the folder `spark` of a checkpoint: made durable before a manifest depends on them.

| log             | content                        | if it is lost and the manifest of its batch is not              |
|-----------------|--------------------------------|-----------------------------------------------------------------|
| `offsets/<n>`   | where batch n ends             | Spark makes another batch n, which the state takes for the same |
| `sources/i/<m>` | the files of offset m          | they come again, in another batch                               |
| `commits/<n>`   | batch n is done                | Spark hands batch n over again: it is known                     |

So offsets and sources are synced before each commit (`sync`; started while the job runs), and commits are not. After a
power cut, entries of a batch after the last manifest may be torn or missing. Then they are removed before Spark starts
(`mend`), and Spark plans that batch again. The state has no rows of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from math import inf
from pathlib import Path

from watersmeet.state.log_folder import LogFolder, number_of
from watersmeet.state.spark_log import file_number, sources_in
from watersmeet.state.storage import remove, sync_file, sync_folder, writing

_NAME = re.compile(r"\w+", re.ASCII)


class SparkLogSync:
    """The logs of one stream, and the entries that this driver knows to be durable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets = LogFolder(folder / "offsets")
        self._durable: dict[Path, set[str]] = {}
        self._syncing: Future[None] | None = None

    def begin_sync(self) -> None:
        """Start to sync new entries in the background."""
        pool = ThreadPoolExecutor(1, "watersmeet-sync")
        self._syncing = pool.submit(self._sync)
        pool.shutdown(wait=False)

    def sync(self) -> None:
        """Make all entries of batches up to the running one durable."""
        syncing, self._syncing = self._syncing, None
        with writing(self.folder):
            self._sync() if syncing is None else syncing.result()

    def _sync(self) -> None:
        for log in (self._offsets, *self._sources()):
            known = self._durable.get(log.folder)
            if known is None and log.folder.is_dir():
                self._sync_names_above(log.folder)
            new, names = log.entries_beside(known or ())
            if new:
                log.sync(new)
            self._durable[log.folder] = names

    def _sync_names_above(self, folder: Path) -> None:
        while folder != self.folder:
            folder = folder.parent
            sync_folder(folder)
        with suppress(FileNotFoundError):
            sync_file(self.folder / "metadata")
            sync_file(self.folder / ".metadata.crc")
        sync_folder(self.folder.parent)

    def mend(self, last_batch: int | None, sources: Collection[str] = ()) -> None:
        """Remove entries of batches after the last one in the state, if they may be torn or are incomplete. Entries
        that the state depends on were durable: if one is torn nevertheless, that is damage, and Spark will report it.
        If sources have names, a batch that was planned for others is removed too: its offsets would count as read where
        they are not."""
        offsets, rests_on = self._offsets, -1 if last_batch is None else last_batch
        planned = [name for name in offsets.entries() if number_of(name) > rests_on]
        torn = [log for log in self._sources() if self._drop_torn(log, self._reached(log, last_batch), _may_be_torn)]
        for name in reversed(planned):
            if torn or _may_be_torn(offsets, name) or not self._has_sources(name) or self._is_of_others(name, sources):
                offsets.remove(name)
        self._drop_torn(LogFolder(self.folder / "commits"), -1, self._is_torn)
        if last_batch is None and (self.folder / "metadata").exists() and not _is_json(self.folder / "metadata"):
            remove(self.folder / "metadata")
            remove(self.folder / ".metadata.crc")

    def _reached(self, source: LogFolder, last_batch: int | None) -> float:
        """The last entry of a source that the state depends on."""
        if last_batch is None:
            return -1
        name = self._offsets.entry(last_batch)
        if name is None or self._is_torn(self._offsets, name):
            return inf
        found = self._ends(name).get(source.folder.name, -1)  # of a source that the state does not know: nothing
        return inf if found is None else found

    def _drop_torn(self, log: LogFolder, reached: float, is_torn: Callable[[LogFolder, str], bool]) -> bool:
        """Remove torn entries from the end of the log, but none up to `reached`; returns whether there were any."""
        found = False
        for name in reversed(log.entries()):
            if number_of(name) <= reached or not is_torn(log, name):
                break
            log.remove(name)
            found = True
        return found

    def _is_torn(self, log: LogFolder, name: str) -> bool:
        if log.has_checksums():
            return not log.is_whole(name)
        return not (log.folder / name).read_bytes().strip(b"\0")

    def _has_sources(self, name: str) -> bool:
        """Whether the logs of sources reach as far as an entry of the offsets says."""
        return all(
            end is None or LogFolder(self.folder / "sources" / source).entry(end) is not None
            for source, end in self._ends(name).items()
        )

    def _is_of_others(self, name: str, sources: Collection[str]) -> bool:
        return bool(sources) and self._ends(name).keys() != set(sources)

    def _ends(self, name: str) -> dict[str, int | None]:
        """Where an entry of the offsets ends in the log of each source; None where a source has none."""
        found = sources_in((self._offsets.folder / name).read_bytes())
        return {source: file_number(offset) for source, offset in found.items()}

    def _sources(self) -> list[LogFolder]:
        sources = self.folder / "sources"
        try:
            names = os.listdir(sources)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [LogFolder(sources / name) for name in sorted(names) if _NAME.fullmatch(name)]


def _may_be_torn(log: LogFolder, name: str) -> bool:
    """Whether an entry is torn, or nobody knows because its checksum is missing: a power cut may leave half of an entry
    and no checksum in the whole log. Spark plans again what is removed, so being wrong costs nothing."""
    return not log.is_whole(name)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True
