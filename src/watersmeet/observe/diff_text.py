"""Two plans side by side: which stores a migration from one to the other shares, reorders, builds and drops."""

from __future__ import annotations

from watersmeet.observe.tables import fitted, wrapped
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.layout import StoreName
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.state_matching import store_names
from watersmeet.plan.weights import is_weight

NO_OTHER_PLAN = "== Difference ==\n(there is no other plan: neither a migration so far, nor a better plan)"
_COLUMNS = ("store", "now", "then", "")


def diff_text(old: JoinPlan, new: JoinPlan, reason: str = "") -> str:
    """The stores of both plans. A store with the same streams and key, but other columns, is *reordered*: it is built
    from the same rows. Rows may get weights on the way; a store whose rows had some *starts empty*."""
    mine, other = store_names(old, 0), store_names(new, 0)
    rows = list(dict.fromkeys(_row(name, mine, other) for name in sorted(mine | other, key=_order)))
    title = [f"== Difference: {plan_text(old)} to {plan_text(new)} ==", *([reason] if reason else [])]
    return "\n".join(wrapped([*title, *fitted([_COLUMNS, *rows], has_notes=True)]))


def _order(name: StoreName) -> tuple[int, str, str]:
    return len(name.streams.split()), name.streams, name.key


def _row(name: StoreName, mine: set[StoreName], other: set[StoreName]) -> tuple[str, str, str, str]:
    label = f"{name.streams} by {name.key}" if name.key else name.streams
    there = {(each.streams, each.key) for each in mine}, {(each.streams, each.key) for each in other}
    if name in mine and name in other:
        return label, "yes", "yes", "shared"
    if all((name.streams, name.key) in side for side in there):
        return label, "yes", "yes", _made(name, mine, other)
    return (label, "yes", "", "dropped") if name in mine else (label, "", "yes", "built")


def _made(name: StoreName, mine: set[StoreName], other: set[StoreName]) -> str:
    """How a store comes to other columns."""
    before, after = _weights(name, mine), _weights(name, other)
    if before == after:
        return "reordered"
    return "gets weights" if before < after else "starts empty"


def _weights(name: StoreName, stores: set[StoreName]) -> set[str]:
    """The weights that stores of the same streams and key keep."""
    same = (each.layout for each in stores if (each.streams, each.key) == (name.streams, name.key))
    return {column for layout in same for column in layout.split(", ") if is_weight(column)}
