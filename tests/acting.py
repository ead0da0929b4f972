"""Scenarios acted out by the in-process runner, mishaps and adaptations included, and held against the oracle."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from tests.asking import asked, moving, spilling, target
from tests.crashing import EpochSink, Player
from tests.lending import shares_checked
from tests.oracle import canonical
from tests.scenarios import Epoch, Scenario, Setting
from tests.spoiling import spoil_copies
from tests.staging import starter
from watersmeet.adaptation.group_loads import Prices
from watersmeet.engine import generations, layers, mjoin, panes, work
from watersmeet.epoch.after import Clock
from watersmeet.epoch.owing import is_owing
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state import run
from watersmeet.state.measures import LATE, RESULTS, Counts
from watersmeet.state.tiers import epoch_of

CLEAN_UPS_MAX = 300
BYTE_BOUNDS = (
    (run, "RUN_BYTES_MAX"),
    (mjoin, "BYTES_MAX"),
    (mjoin, "UNEVEN_BYTES_MAX"),
    (layers, "HELD_BYTES_MAX"),
    (work, "HELD_BYTES_MAX"),
    (panes, "BYTES_AT_ONCE"),
    (generations, "BYTES_AT_ONCE"),
)
RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None


def run_in_process(scenario: Scenario) -> pa.Table:
    """The results of all batches, through the whole schedule."""
    return pa.concat_tables(epoch.results for epoch in epochs_in_process(scenario))


def check_file(scenario: Scenario) -> None:
    """The oracle and the file agree."""
    expected = scenario.answer.results
    assert expected == scenario.expected, difference(expected, scenario.expected, "oracle", "file")
    assert dict(scenario.answer.late) == dict(scenario.late), "late rows of oracle and file differ"


def check_every_epoch(scenario: Scenario) -> None:
    """In-process: after each epoch the results so far are the oracle's, and state, memory and counts are in order.

    While generations owe each other results, those so far are among the oracle's; in the end they are the same.
    """
    so_far, expected = Counter(), Counter()
    for number, epoch in enumerate(epochs_in_process(scenario)):
        found = canonical(epoch.results)
        so_far += found
        expected += scenario.answer.batches[number]
        if not is_owing(epoch.engine.plan, epoch.engine.manifest):
            assert so_far == expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        assert so_far <= expected, f"epoch {number}: {difference(so_far, expected, 'engine', 'oracle')}"
        if not epoch.has_cleaned and not _decides_by_itself(scenario.setting):
            assert all(canonical(attempt) == found for attempt in epoch.attempts), "a repeated attempt found others"
        assert epoch.results.schema.equals(scenario.output_schema), "results have other types"
        epoch.check_files()
    totals = epoch.totals.by(LATE)
    assert so_far == expected, f"in the end: {difference(so_far, expected, 'engine', 'oracle')}"
    late = dict(scenario.answer.late)
    assert totals == late, f"late rows: engine {totals}, oracle {late}"


def _decides_by_itself(setting: Setting) -> bool:
    """Whether epochs beside those of the schedule may emit owed results, or other groups be closed after a crash."""
    return setting.spill is not None or setting.relocation is not None or setting.restless is not None or setting.young


@dataclass(frozen=True)
class Committed:
    """What a batch has come to, mishaps included, while its files are there; `attempts` are what lost ones found."""

    results: pa.Table
    engine: InProcessQuery
    attempts: tuple[pa.Table, ...] = ()
    has_cleaned: bool = False
    has_lost_attempts: bool = False
    has_rivals: bool = False

    @property
    def totals(self) -> Counts:
        return self.engine.manifest.totals

    def check_files(self) -> None:
        manifest, setup = self.engine.manifest, self.engine.setup
        files = {path.name: path.stat().st_size for path in self.engine.checkpoint.segments.glob("*")}
        named = {ref.name: ref.bytes for ref in manifest.segments.values()}
        if self.has_rivals:  # what these left is swept by the next driver
            files = {name: size for name, size in files.items() if name in named}
        assert files == named, f"segments on disk {files}, in the manifest {named}"
        used = {extent.segment for extent in manifest.all_extents()}
        assert used == set(named), "the manifest names segments without extents, or the other way round"
        results = {path.name for path in self.engine.slots.results.glob("*")}
        told = {file.name for file in manifest.outbox.files}
        assert told <= results, f"results {told - results} are named and gone"
        is_swept = setup.parts is None and not self.has_lost_attempts  # nobody reads parts that no log names
        assert not is_swept or results == told, f"results {results - told} are left over"
        is_built = any(event["kind"].startswith("migrat") for event in manifest.events)  # the next epoch sweeps
        closed = {extent.segment for extent in manifest.all_extents() if not extent.is_active}
        active = {extent.segment for extent in manifest.all_extents() if extent.is_active}
        for memory in setup.memories:
            held = {path.name: path.stat().st_size for path in memory.glob("*")}
            written = {name for name in held if name.endswith(".seg")}
            stale = {name for name in written - named.keys() if epoch_of(name) < manifest.epoch}
            if setup.hosts > 1:  # the next task there sweeps it
                stale -= {*self.engine._drops.recent.get(manifest.epoch, ())}
            assert not stale or is_built, f"memory holds {stale}, which the manifest no longer names"
            if setup.memory_budget_bytes is not None:
                budget = setup.memory_budget_bytes * -(-manifest.slots // setup.hosts)
                resident = sum(held.values())
                assert resident <= budget, f"memory holds {resident}, over the budget {budget} of its host"
                stale = {name for name in written & (closed - active) if epoch_of(name) >= manifest.epoch}
                assert not stale, f"memory holds {stale}, which is closed"


def epochs_in_process(scenario: Scenario) -> Iterator[Committed]:
    """Act the scenario out; each batch is handed over when it is committed, with all that followed from it."""
    with (
        tempfile.TemporaryDirectory(dir=RAM, prefix="watersmeet-test-") as folder,
        _bytes_bounded(scenario.setting.merge_bytes),
        shares_checked(),
    ):
        setting = scenario.setting
        player = Player(starter(scenario, Path(folder), setting), EpochSink(replaces=scenario.mode == "complete"))
        for number, (batch, epoch) in enumerate(zip(scenario.batches, scenario.epochs, strict=True)):
            if epoch.slots is not None or epoch.budget is not None:
                setting = replace(setting, slots=epoch.slots or setting.slots, budget=epoch.budget or setting.budget)
                player.restart(starter(scenario, Path(folder), setting))
            for memory in player.engine.setup.memories:
                if epoch.wiped:
                    shutil.rmtree(memory, ignore_errors=True)
                if epoch.spoiled:
                    spoil_copies(memory)

            def prepare(engine: InProcessQuery, epoch: Epoch = epoch, slots: int = setting.slots) -> None:
                if engine.manifest.slots != slots:  # an epoch before the batch changes that
                    return
                moves = moving(engine.plan, engine.manifest, epoch.move)
                engine.order(spilling(engine.plan, engine.manifest.placement, epoch.spill), moves)

            clock = Clock(epoch.now_ms, setting.idle_timeout_ms, scenario.starts_ms[number])
            player.join(number, batch, clock, epoch.failures, prepare)
            # Those of a clean-up or a migration follow, and find something else.
            lost = tuple(map(player.engine.slots.results_of, player.engine.attempts.lost))
            shown = [player.sink.new()]
            kept = range(player.engine.manifest.slots) if epoch.keep else ()
            if epoch.clean:
                failures = (*(("crash",) if epoch.lost else ()), *epoch.clean_failures)
                player.clean_up(failures, bytes_at_once=1000, kept_slots=kept, epochs_max=epoch.clean)
            if epoch.migrate:
                player.migrate(epoch.migrate_failures, *target(scenario, epoch.migrate, setting))
            if epoch.abort:
                player.abort()
            for goal in asked(scenario, epoch.ask, setting):
                player.pursue(goal)
            if batch is scenario.batches[-1]:
                player.clean_up(bytes_at_once=3000, kept_slots=kept, epochs_max=CLEAN_UPS_MAX)
                owes = is_owing(player.engine.plan, player.engine.manifest)
                assert not owes, f"the clean-up has not ended after {CLEAN_UPS_MAX} epochs"
            shown.append(player.sink.new())
            found = [results for results in shown if results is not None]
            found = found[-1:] if player.sink.replaces else found
            assert not player.sink.torn, f"epochs {player.sink.torn} were begun and never ended"
            player.sink.check_parts()
            counted = player.engine.manifest.totals.of(RESULTS)
            assert counted == player.sink.rows, f"{counted} results were counted, the sink has {player.sink.rows}"
            yield Committed(
                pa.concat_tables(found or [player.engine.slots.nothing_shown()]),
                player.engine,
                lost,
                shown[-1] is not None,
                player.has_lost_attempts,
                player.has_rivals,
            )


@contextmanager
def _bytes_bounded(bytes_max: int | None) -> Iterator[None]:
    """All that is bounded by bytes, bounded by so few; and prices that follow no clock."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(Prices, "of", lambda _: Prices(1.0, 2.0)))
        for module, name in BYTE_BOUNDS if bytes_max is not None else ():
            patches.enter_context(patch.object(module, name, bytes_max))
        yield


def difference(found: Counter, expected: Counter, ours: str, theirs: str) -> str:
    extra, missing = found - expected, expected - found
    too_many = f"{ours} has {extra.total()} too many {_few(extra)}"
    return f"{too_many} and lacks {missing.total()} {_few(missing)} of {theirs}"


def _few(rows: Counter) -> list:
    return list(rows.items())[:5]
