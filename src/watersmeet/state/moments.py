"""Saturating sums of event times with windows and delays. Event times are 64-bit microseconds, like Spark's.

A row of time t counts for others up to its *last* moment, t + W - 1. If that does not fit into 64 bits, it is beyond
every event time: the sum is then `LATEST_US`, and results do not change. The same holds for the first moment that a row
may meet, and for a watermark. So results are exact for every time that a timestamp can hold.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

EARLIEST_US, LATEST_US = -(1 << 63), (1 << 63) - 1


def last_moments(times: Ints, span_us: int | None) -> Ints:
    """The last moments at which rows with a window of this length count; None: for ever."""
    if span_us is None:
        return np.full(len(times), LATEST_US, dtype=np.int64)
    return np.minimum(times, np.int64(LATEST_US - span_us + 1)) + np.int64(span_us - 1)


def first_moments(times: Ints, span_us: int | None) -> Ints:
    """The first moments at which rows with a window of this length still count at the times given."""
    if span_us is None:
        return np.full(len(times), EARLIEST_US, dtype=np.int64)
    return np.maximum(times, np.int64(EARLIEST_US + span_us - 1)) - np.int64(span_us - 1)


def before_us(time_us: int, delay_us: int) -> int:
    """The moment before `time_us` by the delay, but not before the earliest moment."""
    return max(time_us - delay_us, EARLIEST_US)


def last_of_limits(limits: Ints) -> Ints:
    """Last moments, from the limits that stores keep: a limit is the moment after. For the latest moment it wraps
    around, and this function wraps it back."""
    return limits - np.int64(1)


def limits_of_last(moments: Ints) -> Ints:
    return moments + np.int64(1)
