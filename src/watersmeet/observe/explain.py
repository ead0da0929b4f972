"""A query and its plan as text: streams, predicates, windows, and stages."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.observe.progress import EpochProgress
from watersmeet.observe.tables import wrapped
from watersmeet.plan.aggregate import GROUPS_LABEL, AggregatePlan
from watersmeet.plan.fingerprint import aggregate_text, kept_names, plan_text, window_text
from watersmeet.plan.keys import class_text
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.spillable import kept_because
from watersmeet.plan.stages import JoinPlan, Place, StagePlan
from watersmeet.plan.tree import tree_text
from watersmeet.query.aggregates import aggregate_column, key_column
from watersmeet.query.as_sql import to_sql
from watersmeet.query.logical import JoinQuery
from watersmeet.query.types import spark_name
from watersmeet.state.measures import CLOSED_BYTES, CLOSED_ROWS, MEMORY_BYTES, STATE_BYTES, STATE_ROWS
from watersmeet.units import format_bytes, format_duration


def explain_text(query: JoinQuery, plan: JoinPlan, slots: int, epoch: EpochProgress | None = None) -> str:
    """The text that `explain()` prints; with the state of the query if it runs."""
    lines = ["== Join =="]
    for number, key_class in enumerate(query.classes):
        lines.append(f"key {number:<6}{class_text(query, key_class)}  ({spark_name(key_class.type)})")
    for residual in query.residuals:
        lines.append(f"residual  {to_sql(residual)}")
    for predicate in query.spark_residuals:
        lines.append(f"residual  {predicate.sql}  (by Spark, on the results)")
    for stream in query.streams:
        for derived in stream.derived:
            lines.append(f"derived   {stream.name}.{derived.name}: {derived.sql}  (by Spark, at the source)")
    for item in query.filters:
        lines.append(f"filter    {item.stream}: {item.sql}  (by Spark, at the source)")
    if plan.aggregate is not None:
        lines += _aggregation(plan.aggregate)
    if query.aggregation is not None and query.aggregation.having is not None:
        lines.append(f"having    {query.aggregation.having}  (by Spark, on the groups)")
    lines.append(f"select    {', '.join(item.name for item in query.select)}")
    for stream, window in zip(query.streams, query.windows_us, strict=True):
        delay = f", delay {format_duration(stream.delay_us)}" if stream.delay_us else ""
        source = " (by the condition)" if query.has_implied_windows and window is not None else ""
        lines.append(f"stream    {stream.name}: {_window(window)}{source}{delay}")
    lines += ["", f"== Plan {plan_text(plan)} ==", f"{slots} slots, {plan.partitions} partition groups"]
    if plan.aggregate is not None:
        lines += [*_group_stage(plan.aggregate, epoch), *_kept(plan, plan.aggregate.stage)]
    for number, stage in reversed(list(enumerate(plan.stages))):
        lines.append(f"stage {number} on {_key(query, stage)}{_destination(stage.feeds)}")
        if stage.hops:
            lines += [f"  {line}" for line in _hops(stage, number, plan, epoch)]
        for i, shape in enumerate(() if stage.hops else stage.shapes):
            if len(stage.shapes) > 1:
                lines.append(f"  slots {i}, {i + len(stage.shapes)}, ...")
            lines += [f"  {line}" for line in _node(shape, len(shape) - 1, plan, epoch)]
        lines += _kept(plan, number)
    if epoch is not None:
        memory, total = epoch.count(MEMORY_BYTES), epoch.count(STATE_BYTES)
        lines += ["", f"epoch {epoch.epoch}: state {format_bytes(total)}, {format_bytes(memory)} of it in memory"]
        if closed := epoch.count(CLOSED_BYTES):
            groups = f"{epoch.owing_groups} partition groups may owe results"
            lines.append(f"spilled: {format_bytes(closed)} in {epoch.count(CLOSED_ROWS):,} rows; {groups}")
    return "\n".join(wrapped(lines))


def _aggregation(plan: AggregatePlan) -> list[str]:
    """The lines about aggregates and groups."""
    keys = [f"{key_column(i)} = {key.sql}" for i, key in enumerate(plan.keys)]
    if plan.window is not None:
        keys.append(f"window of the result time: {window_text(plan.window)}")
    lines = [f"group by  {', '.join(keys) or 'nothing: one group'}"]
    for i, finish in enumerate(plan.finishes):
        has_interval = any(one.aggregate == i for one in plan.intervals)
        level = f", with an interval of {plan.confidence.level:.1%}" if plan.confidence and has_interval else ""
        lines.append(f"aggregate {aggregate_column(i)} = {aggregate_text(finish.aggregate)}{level}")
    return lines


def _group_stage(plan: AggregatePlan, epoch: EpochProgress | None) -> list[str]:
    where = "the slots accumulate, then exchange" if plan.by_engine else "joined rows are exchanged, Spark computes"
    rows = "" if epoch is None else f"; holds {epoch.counts.of(STATE_ROWS, GROUPS_LABEL):,} rows"
    accumulators = len(plan.accumulators)
    return [
        f"stage {plan.stage} on the groups, output mode {plan.mode} ({where})",
        f"  └─ store {GROUPS_LABEL}: keeps {accumulators} accumulator{'s' if accumulators > 1 else ''} a group"
        f"{' and pane' if plan.window is not None else ''}{rows}",
    ]


def _node(shape: tuple[NodePlan, ...], number: int, plan: JoinPlan, epoch: EpochProgress | None) -> list[str]:
    """A node and its children in the stage, as a tree."""
    node = shape[number]
    lines = [f"join {tree_text(node.tree, plan.names)}"]
    for i, layout in enumerate(node.inputs):
        last = i == len(node.inputs) - 1
        order = " → ".join(node.inputs[j].label for j in node.probe_orders[i])
        kept = ", ".join(kept_names(layout)) or "key only"
        rows = "" if epoch is None else f"; holds {epoch.counts.of(STATE_ROWS, layout.label):,} rows"
        lines.append(f"{'└─' if last else '├─'} store {layout.label}: probes {order}; keeps {kept}{rows}")
        child = node.children[i]
        if child is not None:
            lines += [f"{'   ' if last else '│  '}{line}" for line in _node(shape, child, plan, epoch)]
    return lines


def _hops(stage: StagePlan, number: int, plan: JoinPlan, epoch: EpochProgress | None) -> list[str]:
    """The probes and stores of a stage of a mixed node."""
    lines = [f"join {tree_text(stage.node, plan.names)}, hop by hop"]
    for hop in stage.hops:
        probed = " → ".join(layout.label for layout in hop.node.inputs[1:])
        lines.append(f"├─ {hop.node.inputs[0].label} probes {probed}{_destination(hop.feeds)}")
    for index in stage.indexes:
        keeper = index.kept_in[0]
        if keeper != number:
            lines.append(f"├─ reads store {index.layout.label} of stage {keeper}")
            continue
        kept = ", ".join(kept_names(index.layout)) or "key only"
        lines.append(f"├─ store {index.layout.label}: keeps {kept}")
    lines[-1] = lines[-1].replace("├─", "└─")
    return lines


def _kept(plan: JoinPlan, stage: int) -> list[str]:
    reason = kept_because(plan, stage)
    return [] if reason is None else [f"  does not spill: {reason}"]


def _key(query: JoinQuery, stage: StagePlan) -> str:
    if stage.on_one_slot:
        return "no key: one slot"
    return "; ".join(class_text(query, query.classes[i]) for i in stage.key)


def _destination(feeds: Sequence[Place]) -> str:
    if not feeds:
        return ""
    stages = sorted({place.stage for place in feeds})
    return f", results to stage{'s' if len(stages) > 1 else ''} {' and '.join(map(str, stages))} (exchange)"


def _window(window_us: int | None) -> str:
    return "unbounded" if window_us is None else f"within {format_duration(window_us)}"
