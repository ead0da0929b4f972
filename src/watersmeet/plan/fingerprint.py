"""The fingerprint of a query, by name: a restart with any other value would join other rows.

The fingerprint of the *query* must not change. The *plan* is not part of it; every manifest names its own. Slots,
budgets and delays are absent on purpose: they may change between runs.
"""

from __future__ import annotations

from watersmeet.plan.aggregate import AggregatePlan
from watersmeet.plan.keys import class_text
from watersmeet.plan.layout import KeyValue, StoreLayout, fields_above
from watersmeet.plan.stages import JoinPlan, StagePlan
from watersmeet.plan.tree import Leaf, tree_text
from watersmeet.plan.weights import Part
from watersmeet.query.aggregates import Aggregate, ResultWindow
from watersmeet.query.expressions import Column, to_text
from watersmeet.query.logical import JoinQuery
from watersmeet.query.types import spark_name
from watersmeet.units import format_duration

HASH_NAME = "xxhash64"


def query_marks(query: JoinQuery, plan: JoinPlan) -> dict[str, str]:
    """The names and values that must not change. They are the same for all plans of the query."""
    marks = {"streams": ", ".join(plan.names)}
    for i, stream in enumerate(query.streams):
        columns = ", ".join(f"{field.name} {spark_name(field.type)}" for field in stream.schema)
        marks[f"schema of {stream.name}"] = columns
        window = query.windows_us[i]
        marks[f"window of {stream.name}"] = "unbounded" if window is None else format_duration(window)
        marks[f"event time of {stream.name}"] = stream.event_time or "none"
        read = [field.name for field in fields_above(query, Leaf(i)) if isinstance(field, Column)]
        marks[f"columns read of {stream.name}"] = ", ".join(read)
    marks["join key"] = "; ".join(class_text(query, c) for c in query.classes)
    marks["filters"] = "; ".join(sorted(f"{f.stream}: {f.sql}" for f in query.filters))
    marks["residual predicates"] = "; ".join(sorted(to_text(e) for e in query.residuals))
    marks["partitions"] = str(plan.partitions)
    marks["hash"] = HASH_NAME
    if derived := [f"{s.name}.{d.name}: {d.sql}" for s in query.streams for d in s.derived]:
        marks["derived columns"] = "; ".join(derived)
    if query.spark_residuals:
        marks["predicates on the results"] = "; ".join(sorted(p.sql for p in query.spark_residuals))
    if plan.aggregate is not None:
        marks |= _marks_of_groups(plan.aggregate)
    return marks


def marks_of_format_1(query: JoinQuery, plan: JoinPlan) -> dict[str, str]:
    """The fingerprint of checkpoints of format 1, of query and plan together."""
    marks = {name: mark for name, mark in query_marks(query, plan).items() if not name.startswith("columns read of ")}
    for stage in plan.stages:
        for layout in stage.inputs:
            marks[f"kept columns of {layout.label}"] = ", ".join(kept_names(layout))
    marks["plan"] = plan_text(plan)
    if any(layout.trail for stage in plan.stages for layout in stage.inputs):
        marks["trail"] = "groups under earlier keys"
    if hops := [hops_text(stage) for stage in plan.stages if stage.hops]:
        marks["hops"] = "; ".join(hops)
    return marks


def _marks_of_groups(plan: AggregatePlan) -> dict[str, str]:
    marks = {
        "group by": "; ".join(key.sql for key in plan.keys),
        "aggregates": "; ".join(aggregate_text(finish.aggregate) for finish in plan.finishes),
        "output mode": plan.mode,
    }
    if plan.confidence is not None:
        marks["intervals"] = "; ".join(aggregate_text(plan.finishes[i].aggregate) for i in plan.confidence.aggregates)
    if plan.window is not None:
        marks["window of the result time"] = window_text(plan.window)
    return marks


def aggregate_text(aggregate: Aggregate) -> str:
    """An aggregate as SQL over internal names."""
    argument = "*" if aggregate.argument is None else aggregate.argument.sql
    if aggregate.function == "count_distinct":
        return f"count(DISTINCT {argument})"
    return f"{aggregate.function}({argument})"


def window_text(window: ResultWindow) -> str:
    length = format_duration(window.length_us)
    return length if window.is_tumbling else f"{length}, every {format_duration(window.slide_us)}"


def kept_names(layout: StoreLayout) -> list[str]:
    """The names of the fields that a store keeps, without the values of its stage's own key."""
    names = []
    for field, source in layout.sources:
        if isinstance(field, KeyValue):
            names += [] if source.kind == "key" else [f"key {field.key_class}"]
        else:
            names.append(
                field.name
                if isinstance(field, Part) or isinstance(layout.tree, Leaf)
                else f"{field.stream}.{field.name}"
            )
    return names


def hops_text(stage: StagePlan) -> str:
    """The hops of a stage of a mixed node, such as `a → b, b → a`."""
    return ", ".join(
        f"{hop.node.inputs[0].label} → {' → '.join(layout.label for layout in hop.node.inputs[1:])}"
        for hop in stage.hops
    )


def plan_text(plan: JoinPlan) -> str:
    """The trees of the plan, by slot in turn."""
    return " | ".join(tree_text(tree, plan.names) for tree in plan.trees)
