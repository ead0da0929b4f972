"""Drivers that die between two commands of the commit protocol, without a kill."""

from collections import Counter
from contextlib import contextmanager

from watersmeet.epoch import protocol
from watersmeet.epoch.driving import Drive


class Died(Exception):
    pass


@contextmanager
def dying_before(kind: type, visit: int = 1):
    """Within, drivers die before they carry out the n-th command of a kind."""
    visits, play = Counter(), Drive.play

    def until_then(drive: Drive, event: protocol.Event) -> None:
        for command in drive.steps(event):
            visits[type(command)] += 1
            if isinstance(command, kind) and visits[kind] == visit:
                raise Died(f"before {kind.__name__}")

    Drive.play = until_then
    try:
        yield
    finally:
        Drive.play = play
