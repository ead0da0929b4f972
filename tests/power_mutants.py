"""Mutants of what is synced, and in which order: see `tests/protocol_mutants.py`."""

from tests.mutants import Mutant

_PREPARE = "state.checkpoint:Checkpoint.prepare"
_SPARK_SYNC = "state.spark_log_sync:SparkLogSync._sync"
_ALL_LOGS = "(self._offsets, *self._sources())"
_LOG_SYNC = "state.log_folder:LogFolder.sync"
_TAKE_IN = "state.sink_folder:SinkFolder.take_in"

POWER_MUTANTS = {
    "syncs": [
        Mutant("results are not synced", "state.outbox:ResultWriter.close", "sync_file(self._path)", "pass"),
        Mutant(
            "the names of results are not synced",
            "state.outbox:ResultWriter.close",
            "sync_folder(self._path.parent)",
            "pass",
        ),
        Mutant("state is not synced", "state.storage:_write_durably", "os.fsync(file.fileno())", "pass"),
    ],
    "power": [
        Mutant("names of state are not synced", "state.storage:_write_durably", "sync_folder(path.parent)", "pass"),
        Mutant("the checkpoint's folders are not synced", _PREPARE, "sync_way_to(self.folder)", "pass"),
        Mutant(
            "Spark's logs are not synced", "state.checkpoint:Checkpoint.commit", "self.spark_log_sync.sync()", "pass"
        ),
        Mutant("Spark's offsets are not synced", _SPARK_SYNC, _ALL_LOGS, "self._sources()"),
        Mutant("logs of sources are not synced", _SPARK_SYNC, _ALL_LOGS, "(self._offsets,)"),
        Mutant("folders of Spark's logs are not synced", _SPARK_SYNC, "self._sync_names_above(log.folder)", "pass"),
        Mutant("entries of logs are not synced", _LOG_SYNC, "sync_file(path)", "pass"),
        Mutant("names of entries are not synced", _LOG_SYNC, "sync_folder(self.folder)", "pass"),
        Mutant(
            "checksums of entries are not synced",
            _LOG_SYNC,
            "(self.folder / name, self._checksum(name))",
            "(self.folder / name,)",
        ),
        Mutant(
            "torn logs of Spark stay",
            "state.spark_log_sync:_may_be_torn",
            "return not log.is_whole(name)",
            "return False",
        ),
        Mutant(
            "a batch stays of which a source has lost its part",
            "state.spark_log_sync:SparkLogSync.mend",
            "or not self._has_sources(name)",
            "",
        ),
        Mutant("the sink's log is not synced", "state.sink_folder:SinkFolder.settle", "self.log.sync([name])", "pass"),
        Mutant(
            "the sink's folder is not synced",
            "state.sink_folder:SinkFolder.prepare",
            "make_folder(self.log.folder)\n    sync_way_to(self.log.folder)",
            "self.log.folder.mkdir(parents=True, exist_ok=True)",
        ),
        Mutant(
            "a torn entry of the sink's log is known",
            "state.sink_folder:SinkFolder.knows",
            "self.log.is_whole(name)",
            "True",
        ),
        Mutant("files of Spark's writers are not synced", _TAKE_IN, "list(pool.map(sync_file, sources))", "pass"),
        Mutant("names of files of Spark's writers are not synced", _TAKE_IN, "sync_folder(folder)", "pass"),
        Mutant(
            "folders of partitions are not synced",
            "state.sink_folder:SinkFolder._move",
            "make_folder(folder)",
            "folder.mkdir(parents=True, exist_ok=True)",
        ),
        Mutant(
            "the sweep of a sink removes what its log names",
            "state.sink_folder:SinkFolder.sweep",
            "if path.name in named",
            "if False",
        ),
        Mutant(
            "part files of dead drivers stay",
            "state.sink_folder:SinkFolder.leftovers",
            "if maker.has_made(path.name)",
            "if False",
        ),
        Mutant(
            "files of dead writers stay",
            "state.sink_folder:SinkFolder.leftovers",
            'self.folder.glob(f"{maker.staging}*")',
            "()",
        ),
        Mutant(
            "unfinished entries stay", "state.sink_folder:SinkFolder.leftovers", "in self.log.unfinished()", "in ()"
        ),
    ],
}
