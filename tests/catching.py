"""What it means that a mutant is caught: that a check sees something wrong, not that the mutant's code breaks.

| kind    | what is raised                                   | counts as caught                          |
|---------|--------------------------------------------------|-------------------------------------------|
| wrong   | AssertionError, by a check in `tests/`           | yes                                       |
| noticed | an error of watersmeet's, a file that is missing | yes: the engine saw that state is damaged |
| crashed | anything else                                    | only if the mutant says why (`crashes`)   |
"""

import traceback
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path

from tests.mutants import Mutant
from watersmeet.errors import WatersmeetError

TESTS = Path(__file__).parent
Check = Callable[[], None]


class Caught(Enum):
    """Better ones last."""

    NOT = 0
    CRASHED = 1
    NOTICED = 2
    WRONG = 3


def caught_by(mutant: Mutant, checks: Iterable[Check], enough: Caught = Caught.NOTICED) -> Caught:
    """What the checks make of a mutant: the best of all, but no further check is tried after one that is enough."""
    best = Caught.NOT
    with mutant.applied():
        for check in checks:
            try:
                check()
            except Exception as error:
                best = max(best, kind_of(error), key=lambda kind: kind.value)
            if best.value >= enough.value:
                break
    return best


def is_caught(mutant: Mutant, checks: Iterable[Check]) -> bool:
    enough = Caught.NOTICED if mutant.crashes is None else Caught.CRASHED
    return caught_by(mutant, checks, enough).value >= enough.value


def kind_of(error: Exception) -> Caught:
    match error:
        case AssertionError():
            raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
            return Caught.WRONG if TESTS in raised_in.parents else Caught.CRASHED
        case WatersmeetError() | OSError():
            return Caught.NOTICED
        case _:
            return Caught.CRASHED
