"""When micro-batches run: the triggers of Spark that a join takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.runtime.spark import arguments

TRIGGERS = ("processingTime", "once", "availableNow")
FINITE_TRIGGERS = ("availableNow", "once")


def checked_trigger(kinds: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """The one trigger that is given, as Spark takes it; `others` have no micro-batches."""
    for name, value in others.items():
        if value is not None:
            raise OptionError(
                f"trigger({name}=...) has no micro-batches, and the join runs in them",
                hint="use processingTime='1 second', or availableNow=True",
            )
    given = {name: value for name, value in kinds.items() if value is not None}
    if len(given) != 1:
        raise OptionError(
            f"trigger takes exactly one of {', '.join(TRIGGERS)}, not {' and '.join(sorted(given)) or 'none'}",
            hint="write trigger(processingTime='10 seconds'), or trigger(availableNow=True)",
        )
    for name in FINITE_TRIGGERS:
        if name in given and given[name] is not True:
            raise OptionError(
                f"trigger({name}=...) takes True, not {given[name]!r}", hint=f"write trigger({name}=True)"
            )
    if "processingTime" in given:
        every = arguments.duration_us("processingTime", given["processingTime"])
        return {"processingTime": f"{every} microseconds"}
    return given
