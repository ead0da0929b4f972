"""A warning at the start of a query whose state grows for ever."""

from __future__ import annotations

import warnings

from watersmeet.query.logical import JoinQuery


def warn_of_endless_state(query: JoinQuery) -> None:
    """Warn if rows never expire in a query that does not end."""
    kept = [stream.name for stream, window in zip(query.streams, query.windows_us, strict=True) if window is None]
    if kept:
        warnings.warn(
            f"rows of {', '.join(kept)} are kept for ever: no window bounds how long they wait for others. Add "
            "within('10 minutes'), or stream(..., window=...). A condition that bounds the difference of event times "
            "counts as a window where all streams have a delay. trigger(availableNow=True) is for finite streams.",
            UserWarning,
            stacklevel=4,
        )
