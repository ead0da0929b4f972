"""Named places where a test can kill the process, so that recovery from each of them can be shown.

`WATERSMEET_FAILPOINT=name` kills the process with SIGKILL the first time it comes to that name, `name@3` the third
time. Without the variable a failpoint is one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "WATERSMEET_FAILPOINT"

_visits: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    target, _, visit = wanted.partition("@")
    if target == name:
        _visits[name] += 1
        if _visits[name] == int(visit or 1):
            os.kill(os.getpid(), signal.SIGKILL)
