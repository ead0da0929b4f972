"""The handle of a running join, with the surface of Spark's `StreamingQuery`.

It wraps Spark's query that runs underneath, and adds the join's progress to Spark's. However it ends, the checkpoint is
released (and removed, if it is temporary) and the memory tier emptied before `awaitTermination` returns.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.adaptation.coordinator import ASKED_FOR, STREAM_HAS_ENDED
from watersmeet.adaptation.migration import migration_now
from watersmeet.observe.group_cpu import with_cpu
from watersmeet.observe.progress import EpochProgress
from watersmeet.planning.planner import Planner, explain_mode
from watersmeet.runtime.spark import refusals
from watersmeet.runtime.spark.changing import Question
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.explaining import explained
from watersmeet.runtime.spark.interrupt import closing_line, end_with, settle, stop_quietly
from watersmeet.runtime.spark.join_pieces import JoinPieces
from watersmeet.runtime.spark.join_progress import Forwarding, JoinProgress, KeptProgress
from watersmeet.runtime.spark.memory import empty_run
from watersmeet.runtime.spark.outside import Stopped
from watersmeet.runtime.spark.plan_changes import PlanChanges
from watersmeet.runtime.spark.stopping import await_tasks, is_in_batch
from watersmeet.state.temporary import TemporaryFolder

if TYPE_CHECKING:
    from watersmeet.runtime.spark.stream_join import StreamJoin

Succeed = Callable[[EpochDriver, Callable[[], None], JoinPieces], "JoinQueryHandle"]
STOPPED_WITHIN_S = 5.0
"""How long the interpreter waits at exit for a query to end."""


class JoinQueryHandle:
    """A started stream join."""

    def __init__(
        self,
        spark: SparkSession,
        planner: Planner,
        found: EpochProgress,
        sink: str,
        memory: Path | None,
        *,
        is_finite: bool,
        temporary: TemporaryFolder | None = None,
    ) -> None:
        """`found` is the state at the start; `is_finite`: the stream ends by itself, and owed results are emitted at
        its end."""
        self._spark, self._is_finite = spark, is_finite
        self._kept = KeptProgress(found, sink)
        self._listeners: list[tuple[StreamingQueryListener, Forwarding]] = []
        self._planner, self._query = planner, planner.query
        self._memory, self._temporary = memory, temporary
        self._inner: StreamingQuery
        self._driver: EpochDriver
        self._watcher: IO[bytes] | None = None
        self._stopped = False
        self._error: Exception | None = None
        self._stop_asked, self._ended = threading.Event(), threading.Event()

    def _attach(
        self,
        inner: StreamingQuery,
        driver: EpochDriver,
        watcher: IO[bytes] | None,
        question: Question | None,
        succeed: Succeed,
    ) -> JoinQueryHandle:
        """Take charge of the started query; `succeed` starts another in its place."""
        self._inner, self._driver, self._watcher = inner, driver, watcher
        self._question, self._succeed = question, succeed
        threading.Thread(target=self._watch, name=f"watersmeet-{inner.runId}", daemon=True).start()
        threading.Thread(target=self._stop_when_asked, name=f"watersmeet-stop-{inner.runId}", daemon=True).start()
        atexit.register(self._stop_at_exit)
        return self

    @property
    def id(self) -> str:
        """The id of the query, the same after a restart from its checkpoint.

        >>> query.id
        '8c57e1ec-94b5-4c99-b100-f694162df0b9'
        """
        return self._inner.id

    @property
    def runId(self) -> str:
        """The id of this run, new after every start.

        >>> query.runId
        'ae505c5a-a64e-4896-8c28-c7cbaf926f16'
        """
        return self._inner.runId

    @property
    def name(self) -> str | None:
        """The name given with `queryName`, if any.

        >>> query.name
        'paid'
        """
        return self._inner.name

    @property
    def isActive(self) -> bool:
        """Whether the query takes in rows, or emits owed results after the last row.

        >>> query.isActive
        True
        """
        return self._inner.isActive or not (self._stopped or self._ended.is_set())

    @property
    def status(self) -> dict[str, Any]:
        """The status of Spark's query underneath.

        >>> query.status["message"]
        'Waiting for data to arrive'
        """
        return self._inner.status

    @property
    def lastProgress(self) -> JoinProgress | None:
        """The progress of the last trigger: Spark's, with the join as its state operator.

        >>> query.lastProgress.numInputRows, query.lastProgress["sink"]["numOutputRows"]
        (1000, 250)
        """
        found = self._inner.lastProgress
        return None if found is None else self._kept.merged(found)

    @property
    def recentProgress(self) -> list[JoinProgress]:
        """The progress of the last triggers, oldest first.

        >>> [progress.batchId for progress in query.recentProgress]
        [0, 1, 2]
        """
        return [self._kept.merged(found) for found in self._inner.recentProgress]

    def addListener(self, listener: StreamingQueryListener) -> None:
        """Call a listener with the events of this query from now on; their progress includes the join.

        >>> query.addListener(my_listener)
        """
        forwarding = Forwarding(listener, str(self.runId), self._kept.merged)
        self._listeners.append((listener, forwarding))
        self._spark.streams.addListener(forwarding)

    def removeListener(self, listener: StreamingQueryListener) -> None:
        """Stop calling a listener.

        >>> query.removeListener(my_listener)
        """
        for known, forwarding in [pair for pair in self._listeners if pair[0] is listener]:
            self._spark.streams.removeListener(forwarding)
            self._listeners.remove((known, forwarding))

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end of the query; raises the error that ended it. With a timeout in seconds, returns whether the
        query has ended. Ctrl-C raises KeyboardInterrupt.

        >>> query.awaitTermination(60)
        True
        """
        try:
            ended = self._ended.wait(timeout)
        except KeyboardInterrupt as interrupt:
            settle(self._spark, self._inner, self._ended)
            end_with(interrupt, self._closing_line)
            raise
        if ended and (error := self.exception()) is not None:
            raise error
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:
        """Wait until all data that has arrived so far is processed and in the sink.

        >>> query.processAllAvailable()
        """
        try:
            self._inner.processAllAvailable()
        except Exception as error:
            raise self._driver.failure or error from None

    def cleanUp(self) -> int:
        """Emit all results that spilled state owes, and return their number; arrivals wait meanwhile. At the end of a
        finite stream (`availableNow`, `once`) this happens by itself.

        >>> query.cleanUp()
        250
        """
        self._require_running("cleaned up")
        try:
            return self._driver.clean_up(ASKED_FOR)
        except Stopped:
            raise refusals.ended_meanwhile("cleaned up", "what is still owed is kept") from None

    def migrate(self, plan: str, strategy: str = "auto") -> None:
        """Change the join tree of the running query. Returns when the new plan runs, or has begun beside the old one
        (`backfill`, `parallel-track`). A plan or strategy that does not fit is refused before anything changes.

        >>> query.migrate("((a b) c)")
        """
        self._require_running("migrated")
        self._changes.migrate(plan, strategy)

    def abortMigration(self) -> None:
        """Give up the current migration: the query continues with its present plan.

        >>> query.abortMigration()
        """
        self._changes.give_up()

    def relocate(self, sender: int, receiver: int, share: float) -> int:
        """Move a share of the bytes that a slot has in use to another slot: its most productive partition groups.
        Returns the number of groups that have moved. What cannot move is refused, and nothing changes.

        >>> query.relocate(0, 1, 0.5)
        64
        """
        self._require_running("relocated")
        return self._changes.relocate(sender, receiver, share)

    def approve(self) -> None:
        """Approve what waits for it, and carry it out: a migration (`option("approval", "ask")`), or a change of the
        query (`option("onChange", "ask")`).

        >>> query.approve()
        """
        if self._question is None or self._question.pending is None:
            self._changes.approve()
            return
        self._question.approve()
        self._driver.recover()

    def change(self, join: StreamJoin) -> JoinQueryHandle:
        """Change the query: stop it, let its state follow as with `option("onChange", "migrate")`, and start `join` on
        its checkpoint, sink and trigger. Returns the handle of the changed query. A change that cannot be made is
        refused, and this query goes on.

        >>> query = query.change(join.where("a.v > 10"))
        """
        self._require_running("changed")
        if not isinstance(pieces := getattr(join, "_pieces", None), JoinPieces):
            raise refusals.not_a_join(join)
        return self._succeed(self._driver, self.stop, pieces)

    @property
    def _changes(self) -> PlanChanges:
        return PlanChanges(self._driver, self._planner, self.migration, self._ended.is_set())

    @property
    def pending(self) -> Mapping[str, Any] | None:
        """What waits for `approve()`, with its reason: a migration, with its predicted gain, or a change of the query.
        None if there is nothing.

        >>> query.pending["bestPlan"]
        '((a b) c)'
        """
        if self._question is not None and (change := self._question.pending) is not None:
            return change
        reoptimizer = self._driver.coordinator.reoptimizer
        return None if reoptimizer is None else reoptimizer.proposal

    @property
    def migration(self) -> Mapping[str, Any] | None:
        """The current migration, or the last one of this run; None if there was none.

        >>> query.migration["phase"], query.migration["plan"]
        ('done', '((a b) c)')
        """
        return migration_now(self._driver.state, self._kept.migrated)

    def stop(self) -> None:
        """Stop the query; an epoch in progress is abandoned, and repeated after a restart.

        >>> query.stop()
        """
        self._stopped = True
        self._driver.refuse_further_batches()
        had_tasks = is_in_batch(self._inner)
        self._inner.stop()
        self._ended.wait()
        if had_tasks:
            await_tasks(self._spark)

    def exception(self) -> Exception | None:
        """The error that ended the query, if it failed.

        >>> query.exception() is None
        True
        """
        if self._driver.failure is not None:
            return self._driver.failure
        if self._error is not None:
            return self._error
        return None if self._stopped else self._inner.exception()

    def partitionGroups(self) -> pa.Table:
        """A pyarrow table of all partition groups: P_size, P_output, P_inter, slot, closed generations, the figures
        that spill policies see, and CPU time.

        >>> query.partitionGroups().to_pandas()
        """
        return with_cpu(self._driver.group_table(), self._kept.last.totals)

    def explain(self, extended: bool | str = False) -> None:
        """Print the query and its plan. True or "extended": also Spark's plan of the last batch; "cost": also candidate
        plans, with their costs by the data so far; "diff": also the stores of another plan, the better or the last one.

        >>> query.explain("cost")
        """
        mode = explain_mode(extended)
        print(explained(self._planner, self._driver, self._kept, mode))
        if mode == "extended":
            self._inner.explain(True)

    def _require_running(self, what: str) -> None:
        if self._ended.is_set():
            raise refusals.has_ended(what)
        if self._question is not None and self._question.pending is not None:
            raise refusals.waits_for_approval(what)

    def _stop_inner(self) -> None:
        """Mark Spark's query as stopped, without waiting: called by its own batch, which must end before the query."""
        self._stop_asked.set()
        deadline = time.monotonic() + STOPPED_WITHIN_S
        while self._inner.isActive and time.monotonic() < deadline:
            time.sleep(0.01)

    def _stop_when_asked(self) -> None:
        """For callers that cannot wait for the query's end, or can no longer start a thread."""
        self._stop_asked.wait()
        if not self._ended.is_set():
            stop_quietly(self._spark, self._inner)

    def _stop_at_exit(self) -> None:
        """End a query that still runs when the interpreter exits (perhaps by Ctrl-C), without any output."""
        self._stopped = True
        self._driver.refuse_further_batches()
        self._stop_asked.set()
        self._ended.wait(STOPPED_WITHIN_S)

    def _closing_line(self) -> str:
        self._stop_at_exit()
        return closing_line(self.name or self.id, self._driver.state.last, is_kept=self._temporary is None)

    def _recover(self) -> None:
        """Send the results that an earlier run did not send, even if no rows arrive."""
        try:
            self._driver.recover()
        except Exception:
            self._inner.stop()
            raise

    def _watch(self) -> None:
        try:
            self._recover()
            self._inner.awaitTermination()
            if self._is_finite and not self._stopped:
                self._driver.clean_up(STREAM_HAS_ENDED)
        except Exception as error:  # exception() returns it, or the error kept by the driver or the inner query
            self._error = None if self._stopped else error
        finally:
            self._driver.close()
            if self._memory is not None:
                empty_run(self._memory)
            if self._watcher is not None:
                self._watcher.close()
            if self._temporary is not None:
                self._temporary.remove()
            atexit.unregister(self._stop_at_exit)
            self._ended.set()
            self._stop_asked.set()


def epochs_of(query: JoinQueryHandle) -> list[EpochProgress]:
    """Progress of the last epochs, oldest first: for the command line, the demo and tests."""
    return list(query._kept.epochs)


def resent_by(query: JoinQueryHandle) -> int:
    """How many results of an earlier run, which did not send them, this run has sent."""
    return sum(query._kept.resent.values())
