"""Start a JVM without the lines that it prints at the start: for programs that talk to people.

The JVM inherits standard error, and its output before Spark reads any setting cannot be switched off. So it gets a pipe
instead. Output before the session is ready is kept, and shown if Spark does not start. Later output (errors, prints of
predicates) is passed on.
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


class StartOutput:
    """The last lines that a starting JVM printed."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)


@contextmanager
def quiet_start(*, verbose: bool = False) -> Iterator[StartOutput]:
    """Keep the output of a JVM started in this block until the block ends. Does nothing if a JVM runs already, or if
    `verbose`."""
    said = StartOutput()
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


def _pass_on(taken: int, real: int, ready: bytes, said: StartOutput) -> None:
    with open(taken, "rb") as lines, open(real, "wb", buffering=0) as out:
        for line in lines:
            if line.endswith(ready):
                break
            said.lines.append(line.decode(errors="replace").rstrip())
        while some := lines.read1():
            out.write(some)
