"""How much `make test` does, and what it leaves to `make soak`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest


def examples(quick: int) -> int:
    """How many examples of a property are drawn: `quick` in `make test`, WATERSMEET_EXAMPLES in `make soak`."""
    return int(os.environ.get("WATERSMEET_EXAMPLES", quick))


def mostly_long(cases: Iterable[Any], *often: Any) -> list[Any]:
    """The cases as parameters of a test. `make test` runs those named; the others are variants of them."""

    def left_to_soak(case: Any) -> Any:
        return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)

    return [case if case in often else left_to_soak(case) for case in cases]
