"""What the counter model predicts of a query: throughput, memory, moves and spills, as values and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.optimizer.join_graph import JoinGraph
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.stages import JoinPlan
from watersmeet.simulation.clock import VirtualClock
from watersmeet.simulation.counter_model import Cluster, CounterModel
from watersmeet.simulation.load import Load, zipf
from watersmeet.simulation.watching import Moment, events_of, relocations, results, simulated, unevenness
from watersmeet.units import format_bytes

EVENTS_SHOWN = 8
LAST = 0.25
"""The part of a run, at its end, whose rates count as lasting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be predicted."""

    plan: JoinPlan
    graph: JoinGraph
    cluster: Cluster
    seconds: float
    batch_s: float
    skew: float = 0.0
    """The exponent of Zipf's law over the partition groups of every key."""
    seed: int = 1
    """Of the order of groups."""


def predicted(asked: Asked, watch: Callable[[Moment], None] | None = None) -> list[Moment]:
    """Run the counter model."""
    keys = sorted({stage.key_text for stage in asked.plan.stages})
    spread = {key: zipf(asked.plan.partitions, asked.skew, asked.seed + i) for i, key in enumerate(keys)}
    load = Load([stream.rate for stream in asked.graph.streams], spread)
    model = CounterModel(asked.plan, asked.graph, load, asked.cluster)
    return simulated(model, VirtualClock(asked.batch_s), asked.seconds, asked.cluster.prices, watch)


def prediction_text(asked: Asked, moments: Sequence[Moment]) -> str:
    """The prediction as people read it."""
    cluster, last = asked.cluster, moments[-max(1, round(LAST * len(moments))) :]
    hosts = "1 host" if cluster.hosts == 1 else f"{cluster.hosts} hosts"
    lines = [f"== Simulation: {cluster.slots} slots on {hosts}, {_time(asked.seconds)} of arrivals"]
    lines.append(f"plan        {plan_text(asked.plan)}, {asked.plan.partitions:,} partition groups")
    rate = sum(stream.rate for stream in asked.graph.streams)
    lines.append(f"arrivals    {rate:,.0f} rows a second, over all streams")
    lines += [_results(asked, moments, last), _epochs(asked, moments), *_memory(asked, moments)]
    lines += _adaptations(moments)
    lines.append("")
    lines.append("Numbers per partition group are simulated, not rows; the coordinator and its policies are real.")
    if asked.plan.aggregate is not None:
        lines.append("Results are those of the join: the aggregation above it is left out.")
    return "\n".join(lines)


def _results(asked: Asked, moments: Sequence[Moment], last: Sequence[Moment]) -> str:
    began = moments[-len(last) - 1].at_s if len(last) < len(moments) else 0.0
    lasting = results(last) / max(1e-9, last[-1].at_s - began)
    return f"results     {lasting:,.0f} a second in the last quarter; {results(moments):,.0f} in all"


def _epochs(asked: Asked, moments: Sequence[Moment]) -> str:
    lengths = [moment.epoch_s for moment in moments]
    text = f"epochs      {len(moments):,}, of {np.mean(lengths):.2f} s on average and {max(lengths):.2f} s at most"
    last = moments[-1]
    span_s = last.arrived_s - (moments[-2].arrived_s if len(moments) > 1 else 0.0)
    if last.epoch_s > max(span_s, asked.batch_s):
        why = f"the last has the rows of {_time(span_s)} and takes {_time(last.epoch_s)}"
        return f"{text}\n            FALLS BEHIND: {why}"
    return f"{text}; a batch every {_time(asked.batch_s)}"


def _memory(asked: Asked, moments: Sequence[Moment]) -> list[str]:
    held = moments[-1].done.active_bytes
    most = max(float(moment.done.active_bytes.max()) for moment in moments)
    found = [
        f"memory      {format_bytes(int(held.sum()))} at the end, {format_bytes(int(held.max()))} on the fullest slot "
        f"({unevenness(held):.2f} times the mean); at most {format_bytes(int(most))} on a slot"
    ]
    budget = asked.cluster.budget_bytes
    if budget is None:
        found.append("            no memoryBudget is given, so nothing spills")
    elif most > budget:
        found.append(
            f"            the budget of a slot is {format_bytes(budget)}: slots of a host lend each other theirs"
        )
    if closed := float(moments[-1].done.closed_bytes.sum()):
        found.append(f"on disk     {format_bytes(int(closed))} of spilled state, whose results come later")
    return found


def _adaptations(moments: Sequence[Moment]) -> list[str]:
    moves, spills = events_of(moments, "relocate"), events_of(moments, "spill")
    groups, size = (sum(event.details[what] for _, event in moves) for what in ("groups", "bytes"))
    found = [f"moves       {relocations(moments)} relocations: {groups:,} groups, {format_bytes(size)}"]
    found.append(f"spills      {len(spills)}")
    told: dict[tuple[float, str], int] = {}
    for at_s, event in sorted([*moves, *spills], key=lambda each: each[0]):
        told[at_s, f"{event.kind}: {event.reason}"] = told.get((at_s, f"{event.kind}: {event.reason}"), 0) + 1
    for (at_s, what), _ in list(told.items())[:EVENTS_SHOWN]:
        found.append(f"  {_time(at_s):>8}  {what}")
    if len(told) > EVENTS_SHOWN:
        found.append(f"  ... and {len(told) - EVENTS_SHOWN} more decisions")
    return found


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
