"""A start with another query than the checkpoint's: refused, or changed before the first micro-batch.

The old query is read from its texts in the checkpoint, so that its own driver can send what was not sent, emit what is
owed, and build the state of the new query (`plan/query_change.py`). That is one more commit: a driver that dies before
it leaves the old query in force, and one that dies after it the new one.

| changed                            | allowed                                                                         |
|------------------------------------|---------------------------------------------------------------------------------|
| select list, HAVING                | yes                                                                             |
| names and types of result columns  | for sinks without a schema: foreachBatch, memory, console, noop                 |
| the sink, partitionBy, output mode | no                                                                              |
| the streams                        | if all sources had names from the first start on (`source_names.py`)            |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from watersmeet.adaptation.coordinator import Coordinator
from watersmeet.epoch.after import plan_from_text
from watersmeet.epoch.goals import ChangeQuery
from watersmeet.errors import CheckpointError, WatersmeetError
from watersmeet.plan.aggregate import OutputMode
from watersmeet.plan.fingerprint import marks_of_format_1, query_marks
from watersmeet.plan.query_change import PlannedQuery, changes
from watersmeet.plan.stages import JoinPlan
from watersmeet.planning.planner import Planner
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.spark.driver import EpochDriver
from watersmeet.runtime.spark.join_pieces import JoinPieces
from watersmeet.runtime.spark.options import JoinOptions
from watersmeet.runtime.spark.output_marks import output_marks
from watersmeet.runtime.spark.outside import Outside
from watersmeet.runtime.spark.results import ResultPath
from watersmeet.runtime.spark.source_names import (
    Names,
    Sources,
    known_by,
    names_of,
    refused_streams,
    require_same_sources,
)
from watersmeet.state.checkpoint import Checkpoint
from watersmeet.state.manifest import PlanText
from watersmeet.state.query_file import Written
from watersmeet.state.query_identity import Identity, another_output

WITHOUT_SCHEMA = ("foreachbatch", "memory", "console", "noop")
OF_ANY_SINK = ("select list", "having")
AS_IT_WAS = "use a new checkpointLocation, or leave this part of the query as it was"


@dataclass(frozen=True, slots=True)
class Start:
    """A start on a checkpoint: the join, its planner and options, and its output."""

    join: JoinPieces
    planner: Planner
    options: JoinOptions
    format: str
    mode: OutputMode
    target: str
    partition_by: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class QueryChange:
    """A change that can be carried out: all that may refuse it has been checked."""

    goal: ChangeQuery
    plan: JoinPlan
    """The plan of the old query."""
    schema: StructType
    """The schema of the old query's results."""
    before: Written

    def carry_out(
        self,
        outside: Outside,
        after: Written,
        coordinator: Coordinator,
        path_of: Callable[[JoinQuery, StructType], ResultPath],
    ) -> None:
        """Run the old query to its end, build the state of the new one, and remember that one."""
        outside.checkpoint.expect_change(self.before, after)
        driver = EpochDriver(self.plan, replace(outside, results=path_of(self.goal.old, self.schema)), coordinator)
        driver.adapt(self.goal)
        outside.checkpoint.remember_query(after.marks, after.texts)


@dataclass(frozen=True, slots=True)
class Found:
    """What a start finds in its checkpoint."""

    is_new: bool
    """Whether nothing has been committed."""
    plan: JoinPlan
    """The plan that the query starts with; after a change, of the new query."""
    schema: StructType
    written: Written
    """The query as the checkpoint is to remember it."""
    names: Names | None
    """The names of its sources, if Spark is to know them by name."""
    change: QueryChange | None


def found_in(checkpoint: Checkpoint, start: Start) -> Found:
    """Compare a query with that of its checkpoint. Another one is refused, unless it is to be changed and can be."""
    known, planner, query = checkpoint.plan(), start.planner, start.planner.query
    plan = planner.first_plan() if known is None else planner.remembered_plan(known)
    schema = start.join.schema(query, plan)
    marks = query_marks(query, plan)
    output = output_marks(query, schema, start.mode, start.target, start.partition_by)
    identity = checkpoint.identified(marks, marks_of_format_1(query, plan), output)
    sources = Sources(known_by(checkpoint.spark_log, identity.texts), names_of(start.join.frames_by_name))
    require_same_sources(sources, start.join.spark, checkpoint.location)
    change = change_of(start, identity, known, checkpoint.location, sources)
    if change is None:
        identity.require_same(checkpoint.location)
    else:
        plan = change.goal.new.plan
    written = Written(marks | output, {**texts_of(start.join, schema), **sources.texts()})
    return Found(known is None, plan, schema, written, sources.names, change)


def change_of(
    start: Start, identity: Identity, known: PlanText | None, location: Path, sources: Sources
) -> QueryChange | None:
    """The change that leads from the checkpoint's query to this one; None if they are the same, or if a change is to be
    refused. One that cannot be made is refused here, with its reasons."""
    differing, options = identity.differing, start.options
    if not differing or known is None or options.on_change == "refuse":
        return None
    _require_output(start, identity, location)
    old = _old_pieces(start, identity)
    try:
        query = old.query()
        partitions = int(identity.made_for["partitions"])
        mode = start.planner.mode
        plan = plan_from_text(query, known, partitions, mode)
        marks = query_marks(query, plan)
    except (WatersmeetError, KeyError, ValueError) as error:
        raise _unreadable(str(error)) from error
    if any(identity.made_for.get(name) != mark for name, mark in marks.items()):
        raise _unreadable("its texts do not fit its marks")
    if codes := [name for name in differing if name.startswith("predicate ") and name in identity.made_for]:
        raise _refused(f"the code of {', '.join(codes)} has changed, and only its name is kept: use another name")
    if "intervals" in {*identity.made_for, *identity.asked}:
        raise _refused("aggregates with confidence intervals count all rows since the first start")
    if (found := refused_streams(sources, start.planner.query, query)) is not None:
        raise _refused(*found)
    reason = "; ".join(map(str, changes(identity.made_for, identity.asked)))
    goal = ChangeQuery(
        query,
        PlannedQuery(start.planner.query, start.planner.plan_of_change(known)),
        f"the query has changed: {reason}",
        stuffs=options.on_change == "stuff",
    )
    goal.carry(plan)
    assert identity.texts is not None
    return QueryChange(goal, plan, StructType.fromJson(identity.texts["result"]), identity.written)


def texts_of(join: JoinPieces, schema: StructType) -> dict[str, Any]:
    """The query as it is written into a checkpoint, with the schema of its results."""
    return {**join.texts(), "result": schema.jsonValue()}


def _require_output(start: Start, identity: Identity, location: Path) -> None:
    free = (*OF_ANY_SINK, "result columns") if start.format in WITHOUT_SCHEMA else OF_ANY_SINK
    found = [name for name in identity.differing if name in identity.output]
    if fixed := [name for name in found if name not in free and not name.startswith("predicate ")]:
        made_for, asked = identity.made_for, identity.asked
        texts = [f"{n}: checkpoint has '{made_for.get(n, 'none')}', query has '{asked.get(n, 'none')}'" for n in fixed]
        raise another_output(location, texts)


def _old_pieces(start: Start, identity: Identity) -> JoinPieces:
    texts: Mapping[str, Any] | None = identity.texts
    if texts is None:
        raise _unreadable("an earlier version has written it, without the texts of the query")
    try:
        return start.join.as_written(texts)
    except (KeyError, TypeError, ValueError, WatersmeetError) as error:
        raise _unreadable(str(error)) from error


def _unreadable(reason: str) -> CheckpointError:
    return CheckpointError(
        f"the query of the checkpoint cannot be read back: {reason}",
        hint="start it once as it was before, with its registered functions, and change it then",
        error_class="CANNOT_CHANGE_QUERY",
    )


def _refused(reason: str, hint: str = AS_IT_WAS) -> CheckpointError:
    return CheckpointError(
        f"the query cannot be changed: {reason}",
        hint=hint,
        error_class="CANNOT_CHANGE_QUERY",
    )
