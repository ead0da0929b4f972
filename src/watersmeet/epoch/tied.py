"""Whether the state and Spark's log belong together: pure comparisons that describe the difference in words.

A manifest names the last batch of the state, and its offsets in Spark's log. Spark's log may be one batch ahead; that
batch has not been joined yet:

| the state ends with  | Spark hands over    | the batch is                                              |
|----------------------|---------------------|-----------------------------------------------------------|
| nothing              | batch 0             | the first                                                 |
| batch n              | batch n + 1         | the next, if it starts at the offsets of the manifest     |
| batch n              | batch n             | known, if its offsets are the same: Spark has not         |
|                      |                     | committed it yet                                          |
| any                  | any other           | refused                                                   |

In all other cases a file was lost, restored or replaced: rows would silently be missing, or be joined twice.
"""

from __future__ import annotations

from watersmeet.errors import CheckpointError
from watersmeet.state.spark_log import NO_QUERY, Ended, LogEnd, Offsets

SHOWN_CHARACTERS = 60
SAME_CHARACTERS = 20
"""How many equal characters are shown before the first difference of two long offsets."""


def refused(what: str, checkpoint: str = "CHECKPOINT") -> CheckpointError:
    """The error that describes the difference."""
    return CheckpointError(
        f"the state and Spark's log do not belong together: {what}",
        hint=f"what can be done, and what it would lose or repeat, is said by: watersmeet repair {checkpoint}",
        error_class="DIFFERENT_BATCHES",
    )


def log_difference(last: Ended | None, log: LogEnd) -> str | None:
    """The difference when a driver starts; None if the state and the log belong together."""
    planned = -1 if log.planned is None else log.planned
    if last is None or last.batch is None:
        if log.ran >= 0:
            return f"there is no state, but Spark has run batch {log.ran}"
    elif last.offsets is not None and log.query not in (NO_QUERY, last.offsets.query):
        return _other_query(last.offsets, log.query)
    elif planned < last.batch:
        ends = "is empty" if planned < 0 else f"ends with batch {planned}"
        return f"the state ends with batch {last.batch}, but Spark's log {ends}"
    elif log.ran > last.batch:
        return f"the state ends with batch {last.batch}, but Spark has run batch {log.ran}"
    elif (found := _offsets_difference(last.batch, last.offsets, log.offsets)) is not None:
        return found
    if log.short_sources:
        return f"the log of file source {log.short_sources[0]} ends before the offsets of batch {planned}"
    return None


def batch_difference(last: Ended | None, number: int, start: Offsets | None, end: Offsets | None) -> str | None:
    """Why a batch that Spark hands over is refused; None if it is the next, or the last one again."""
    batch = None if last is None else last.batch
    if end is None:
        return f"Spark's log has no offsets of batch {number}, which it hands over"
    if batch is None:
        return None if number == 0 else f"there is no state, but Spark hands over batch {number}"
    assert last is not None
    if number == batch + 1:
        return _offsets_difference(batch, last.offsets, start)
    if number == batch:
        return _offsets_difference(batch, last.offsets, end)
    return f"the state ends with batch {batch}, but Spark hands over batch {number}"


def _offsets_difference(batch: int, ours: Offsets | None, theirs: Offsets | None) -> str | None:
    """How the offsets of a batch in Spark's log differ from those that the manifest names, if it names any."""
    if ours is None or ours == theirs:
        return None
    if theirs is None:
        return f"Spark's log has no offsets of batch {batch}, with which the state ends"
    if theirs.query != ours.query:
        return _other_query(ours, theirs.query)
    for source, mine in ours.sources.items():
        other = theirs.sources.get(source, mine)
        if mine != other:
            mine, other = _shortened(mine, other)
            return f"batch {batch} ends at {mine} of source {source} in the state, and at {other} in Spark's log"
    return f"Spark has made another batch {batch} than the one in the state"


def _other_query(ours: Offsets, query: str) -> str:
    return f"Spark's log is that of query {query or 'without an id'}, the state was made with query {ours.query}"


def _shortened(one: str, other: str) -> tuple[str, str]:
    """Two texts, cut to the part where they begin to differ."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    begin = max(0, same - SAME_CHARACTERS) if max(len(one), len(other)) > SHOWN_CHARACTERS else 0
    return _piece(one, begin), _piece(other, begin)


def _piece(text: str, begin: int) -> str:
    piece = text[begin : begin + SHOWN_CHARACTERS]
    return f"{'...' if begin else ''}{piece}{'...' if begin + SHOWN_CHARACTERS < len(text) else ''}"
