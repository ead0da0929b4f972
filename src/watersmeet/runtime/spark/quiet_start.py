"""A new JVM without the lines that it prints while it starts: for programs that talk to people.

The JVM inherits standard error, and what it prints before any setting of Spark is read cannot be switched off there. So
it gets a pipe in its place. What comes through it until the session is ready is kept, to be shown if Spark does not
start; all that comes later (errors, what predicates print) is passed on.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

LINES_KEPT = 50


class Said:
    """The last lines of a JVM that was starting."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)


@contextmanager
def quiet_start(*, verbose: bool = False) -> Iterator[Said]:
    """Keep what a JVM that is started in this block prints until the block ends. Nothing changes if there is one
    already, or if `verbose`."""
    said = Said()
    if verbose or SparkContext._gateway is not None:
        yield said
        return
    sys.stderr.flush()
    taken, given = os.pipe()
    real, ready = os.dup(2), f"{secrets.token_hex(16)}\n".encode()
    os.dup2(given, 2)
    reader = threading.Thread(target=_pass_on, args=(taken, real, ready, said), daemon=True)
    reader.start()
    try:
        yield said
    finally:
        os.dup2(real, 2)
        os.write(given, ready)
        os.close(given)


def _pass_on(taken: int, real: int, ready: bytes, said: Said) -> None:
    with open(taken, "rb") as lines, open(real, "wb", buffering=0) as out:
        for line in lines:
            if line.endswith(ready):
                break
            said.lines.append(line.decode(errors="replace").rstrip())
        while some := lines.read1():
            out.write(some)
