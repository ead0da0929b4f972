"""Mutants of drivers, checkpoints and what is decided between epochs: see `tests/mutants.py`.

By the check that must catch them: hand-written "scenarios", or one of `tests/protocol_checks.py`.
"""

from tests.mutants import Mutant
from tests.power_mutants import POWER_MUTANTS

_ADVANCE = "epoch.protocol:advance"
_TAKES_OVER = "return _run(replace(_expecting(state, Phase.LOOKING), seen=files), Takeover())"
_SWEEPS_FIRST = """state, commands = _run(replace(_expecting(state, Phase.LOOKING), seen=files), Takeover())
            return state, (Sweep(state.last, files), *commands)"""
_SEND = "runtime.inprocess:InProcessQuery._send"
_ADDS = "self.setup.parts.add(command.manifest.epoch, command.manifest.outbox.files)"
_REMOVES = """known = command.manifest.epoch in self.setup.parts.parts
            self.setup.parts.add(command.manifest.epoch, command.manifest.outbox.files)
            remove_results(self.slots.results, command.manifest.outbox.files if known else ())"""


PROTOCOL_MUTANTS = {
    "worlds": [
        Mutant(
            "an unsent epoch is not sent after a crash",
            "epoch.protocol:_started",
            "if not start.is_acknowledged:",
            "if False:",
        ),
        Mutant("takeover sweeps before it commits", _ADVANCE, _TAKES_OVER, _SWEEPS_FIRST),
        Mutant(
            "a fenced driver goes on",
            _ADVANCE,
            "return _closed(state), (GiveUp(_fenced(state)),)",
            "return _committed(state)",
        ),
        Mutant(
            "a batch seen before is joined again",
            "epoch.protocol:_batch_came",
            "if last is not None and batch.number == last.batch:",
            "if False:",
        ),
        Mutant(
            "a new driver does not take over",
            "epoch.protocol:_started",
            "return _look(state)",
            "return replace(state, phase=Phase.IDLE), ()",
        ),
        Mutant(
            "windows stay open after a batch",
            "epoch.protocol:_decided",
            "if epoch is None:",
            "if epoch is None or not isinstance(state.goal, JoinBatch):",
        ),
    ],
    "torn": [
        Mutant(
            "a batch may start anywhere",
            "epoch.tied:batch_difference",
            "return _offsets_difference(batch, last.offsets, start)",
            "return None",
        ),
        Mutant(
            "a batch made anew is taken for the known one",
            "epoch.tied:batch_difference",
            "return _offsets_difference(batch, last.offsets, end)",
            "return None",
        ),
        Mutant(
            "another query's batches are ours",
            "epoch.tied:_offsets_difference",
            "if ours is None or ours == theirs:",
            "if ours is None or (theirs is not None and ours.hash == theirs.hash):",
        ),
        Mutant(
            "a start does not miss the state",
            "epoch.tied:log_difference",
            "if log.ran >= 0:",
            "if False:",
        ),
        Mutant(
            "a start does not see that the log is ahead",
            "epoch.tied:log_difference",
            "elif log.ran > last.batch:",
            "elif False:",
        ),
        Mutant(
            "a start does not see that a batch is committed which the state lacks",
            "epoch.tied:log_difference",
            "elif log.ran > last.batch:",
            "elif planned - 1 > last.batch:",
        ),
        Mutant(
            "a start does not compare offsets",
            "epoch.tied:log_difference",
            "(found := _offsets_difference(last.batch, last.offsets, log.offsets)) is not None",
            "(found := None) is not None",
        ),
        Mutant(
            "a sound checkpoint is refused after a crash",
            "epoch.tied:log_difference",
            "log.ran > last.batch",
            "planned > last.batch",
        ),
        Mutant(
            "the first batch cannot be repeated",
            "epoch.tied:log_difference",
            "if log.ran >= 0:",
            "if log.planned is not None:",
        ),
        Mutant(
            "a batch joins without its offsets",
            "epoch.protocol:_batch_came",
            "JoinBatch(batch.number, batch.end)",
            "JoinBatch(batch.number, batch.start)",
        ),
    ],
    "untied": [
        Mutant(
            "without state any batch is the first",
            "epoch.tied:batch_difference",
            "None if number == 0 else",
            "None if True else",
        ),
        Mutant(
            "any later batch is taken for the next",
            "epoch.tied:batch_difference",
            "if number == batch + 1:",
            "if number > batch:",
        ),
        Mutant(
            "any earlier batch is taken for the known one",
            "epoch.tied:batch_difference",
            "if number == batch:",
            "if number <= batch:",
        ),
    ],
    "logs": [
        Mutant(
            "a batch is known by its offsets alone",
            "state.spark_log:SparkLog._offsets",
            "_hash(data)",
            "_hash(repr(sources_in(data)).encode())",
        ),
    ],
    "repair": [
        Mutant("a later batch stays in the log", "runtime.repair:_stale", "n > target.batch", "n > target.batch + 1"),
        Mutant(
            "another query's log stays another's",
            "runtime.repair:_written",
            "if target.is_foreign or (wanted.query",
            "if (wanted.query",
        ),
        Mutant(
            "the batch before the last is not made up",
            "runtime.repair:_written",
            "if target.batch > 0 and",
            "if False and",
        ),
    ],
    "scenarios": [
        Mutant(
            "a late driver is not fenced",
            "state.checkpoint:Checkpoint.commit",
            "if is_ours and self._last_epoch() != manifest.epoch:",
            "if False:",
        ),
        Mutant(
            "an epoch is acknowledged before it is sent",
            "runtime.inprocess:InProcessQuery._commit",
            "return protocol.Committed()",
            """self.checkpoint.acknowledge(command.manifest.epoch)
    return protocol.Committed()""",
        ),
        Mutant("an epoch that shows nothing is sent", _SEND, "if command.manifest.outbox.shows:", "if True:"),
        Mutant("a re-send deletes published parts", _SEND, _ADDS, _REMOVES),
        Mutant(
            "results are named, and gone",
            "runtime.inprocess:InProcessQuery._run",
            "left_over(outcome, after)",
            "[file for report in reports for file in report.files]",
        ),
        Mutant(
            "results that nobody is shown are left over",
            "epoch.after:left_over",
            "[] if after.outbox.shows else",
            "[] if True else",
        ),
        Mutant(
            "results that nobody is shown are counted",
            "epoch.after:counts_of",
            "counts if is_shown else",
            "counts if True else",
        ),
        Mutant(
            "discard removes what the newer manifest names",
            "state.checkpoint:Checkpoint.discard",
            "older.segments.keys() - newer.segments.keys()",
            "older.segments.keys()",
        ),
        Mutant(
            "results that were sent stay for ever",
            "state.checkpoint:Checkpoint.discard",
            "for name in _in_outbox(older):",
            "for name in ():",
        ),
        Mutant(
            "a sweep removes state",
            "state.checkpoint:Checkpoint.sweep",
            "*(self.segments / name for name in live.segments),",
            "",
        ),
        Mutant(
            "a takeover sweeps nothing",
            "epoch.protocol:_acknowledged",
            "if isinstance(ran, Takeover) else",
            "if False else",
        ),
        Mutant(
            "stages that did not run lose their extents",
            "epoch.after:_extents",
            "[dict(slot) for slot in before.extents]",
            "[{} for slot in before.extents]",
        ),
        Mutant(
            "what a clean-up finds is not shown",
            "epoch.kinds:shows",
            "return any(report.counts.of(found) for report in reports)",
            "return False",
        ),
        Mutant(
            "windows closed after a clean-up are not counted",
            "epoch.after:_counters",
            "return total([before,",
            "reports = [] if all('joined' not in r.counts.by_name() for r in reports) else reports\n"
            "    return total([before,",
        ),
        Mutant(
            "windows stay open after a clean-up",
            "adaptation.coordinator:Coordinator.next_epoch",
            "if (until_us := windows_to_close(self.plan, last)) is not None:",
            "if isinstance(goal, Rest) and (until_us := windows_to_close(self.plan, last)) is not None:",
        ),
    ],
    **POWER_MUTANTS,
    "manifests": [
        Mutant(
            "clean-up epochs move the watermark",
            "epoch.after:manifest_after",
            "            return after",
            "            return _with_times(plan, after, intake, clock)",
        ),
        Mutant(
            "epochs without rows forget the offsets",
            "epoch.after:manifest_after",
            "            return after",
            "            return replace(after, offsets=None)",
        ),
        Mutant(
            "the offsets of a batch are not kept",
            "epoch.after:manifest_after",
            "replace(after, batch=number, offsets=offsets)",
            "replace(after, batch=number)",
        ),
        Mutant(
            "the offsets are not read again",
            "state.manifest_json:offsets_of",
            "Offsets(*found)",
            "None",
        ),
        Mutant(
            "groups that lie apart are written together",
            "plan.placement:to_lists",
            "groupby(owners)",
            "groupby(sorted(owners))",
        ),
    ],
    "ledger": [
        Mutant(
            "epochs without rows decay upkept figures",
            "adaptation.coordinator:Coordinator.note",
            "with_rows=has_rows(epoch)",
            "with_rows=True",
        ),
        Mutant(
            "a clean-up settles a group too many",
            "adaptation.coordinator:Coordinator.note",
            ".within(low, high)",
            ".within(low, high + 1)",
        ),
        Mutant(
            "groups that were closed keep their figures",
            "adaptation.ledger:GroupLedger.spilled",
            "if self._upkeep.restarts:",
            "if False:",
        ),
    ],
    "sweep": [
        Mutant(
            "takeover sweeps what it did not see",
            "state.checkpoint:Checkpoint.sweep",
            "for name in seen if",
            "for name in self.files() if",
        ),
        Mutant(
            "all that lies there is swept",
            "state.checkpoint:Checkpoint.files",
            "if is_left_over(entry.name) or",
            "if True or",
        ),
    ],
    "stopping": [
        Mutant(
            "a driver that is stopped goes on", "epoch.driving:Drive.steps", "if self._is_stopped() and", "if False and"
        ),
        Mutant(
            "a driver that has failed is not closed",
            "epoch.protocol:advance",
            "return _closed(state), (GiveUp(error),)",
            "return state, (GiveUp(error),)",
        ),
    ],
}
