"""A query and its plan as text: what is joined, on what, within what, and how it runs."""

from __future__ import annotations

from watersmeet.observe.progress import EpochProgress
from watersmeet.plan.mjoin import MJoinPlan
from watersmeet.query.expressions import to_text
from watersmeet.query.logical import JoinQuery
from watersmeet.query.types import spark_name
from watersmeet.units import format_bytes, format_duration


def explain_text(query: JoinQuery, plan: MJoinPlan, slots: int, epoch: EpochProgress | None = None) -> str:
    """The text that `explain()` prints; with the state of a running query where there is one."""
    lines = ["== Join =="]
    names = [stream.name for stream in query.streams]
    for component in query.key:
        columns = " = ".join(f"{name}.{column}" for name, column in zip(names, component.columns, strict=True))
        lines.append(f"key       {columns}  ({spark_name(component.type)})")
    for residual in query.residuals:
        lines.append(f"residual  {to_text(residual)}")
    for item in query.filters:
        lines.append(f"filter    {item.stream}: {item.sql}  (by Spark, at the source)")
    lines.append(f"select    {', '.join(item.name for item in query.select)}")
    lines += [
        "",
        "== Plan ==",
        f"mjoin({', '.join(names)})  [1 stage, {slots} slots, {plan.partitions} partition groups]",
    ]
    for i, (stream, store) in enumerate(zip(query.streams, plan.stores, strict=True)):
        branch = "└─" if i == len(names) - 1 else "├─"
        window = "unbounded" if store.window_us is None else f"within {format_duration(store.window_us)}"
        order = " → ".join(names[j] for j in plan.probe_orders[i])
        kept = ", ".join(name for name, _ in store.sources) or "key only"
        delay = f", delay {format_duration(stream.delay_us)}" if stream.delay_us else ""
        lines.append(
            f"{branch} {stream.name}: {window}{delay}; probes {order}; keeps {kept}{_state(stream.name, epoch)}"
        )
    if epoch is not None:
        memory, total = epoch.count("memory_bytes"), epoch.count("state_bytes")
        lines += ["", f"epoch {epoch.epoch}: state {format_bytes(total)}, {format_bytes(memory)} of it in memory"]
    return "\n".join(lines)


def _state(stream: str, epoch: EpochProgress | None) -> str:
    return "" if epoch is None else f"; holds {epoch.counts.get(f'state_rows.{stream}', 0):,} rows"
