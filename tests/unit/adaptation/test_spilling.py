"""When a slot spills, how much goes, and what is said about it."""

import numpy as np
import pytest

from tests.unit.adaptation.test_spill_policies import groups
from watersmeet.adaptation.spill_policies import POLICIES
from watersmeet.adaptation.spilling import SpillSettings, decide_spill
from watersmeet.errors import OptionError

MIB = 1 << 20


def settings(**given) -> SpillSettings:
    return SpillSettings(**{"policy": POLICIES["global-output"], "budget_bytes": 60 * MIB, **given})


def ten_groups(size: float = 1.0 * MIB):
    """The least productive first."""
    return groups(size=np.full(10, size), output=np.arange(10.0))


def test_under_the_budget_nothing_goes():
    assert decide_spill(settings(), 0, 60 * MIB, ten_groups()) is None


def test_without_active_groups_nothing_can_go():
    assert decide_spill(settings(), 0, 61 * MIB, groups(size=[0.0])) is None
    assert decide_spill(settings(), 0, 61 * MIB, groups(3).take(np.zeros(0, dtype=np.int64))) is None


def test_the_fraction_goes_when_little_is_over_the_budget():
    decision = decide_spill(settings(fraction=0.4), 3, 70 * MIB, ten_groups())
    assert decision is not None
    assert decision.slot == 3
    assert decision.groups == {0: (0, 1, 2, 3)}
    assert decision.bytes == 28 * MIB  # files have 7 bytes for each that is kept
    assert decision.reason == "active state 70.0 MiB over the budget of 60.0 MiB: 4 of 10 groups (28.0 MiB) go"


def test_all_that_is_over_the_budget_goes_even_if_it_is_more_than_the_fraction():
    decision = decide_spill(settings(fraction=0.2), 0, 150 * MIB, ten_groups())
    assert decision is not None
    assert decision.groups == {0: (0, 1, 2, 3, 4, 5)}
    assert decision.bytes == 90 * MIB


def test_a_budget_of_nothing_lets_all_go():
    decision = decide_spill(settings(budget_bytes=0), 0, 5, ten_groups())
    assert decision is not None
    assert decision.groups == {0: tuple(range(10))}


def test_groups_are_named_by_stage_in_order():
    figures = groups(4, stage=[2, 0, 2, 1], group=[9, 4, 3, 5], output=[0.0, 0.0, 0.0, 9.0])
    decision = decide_spill(settings(fraction=0.75), 0, 61 * MIB, figures)
    assert decision is not None
    assert decision.groups == {0: (4,), 2: (3, 9)}


def test_settings_that_make_no_sense_are_refused():
    for fraction in (0.0, -0.1, 1.5, float("nan")):
        with pytest.raises(OptionError, match="fraction"):
            settings(fraction=fraction)
    with pytest.raises(OptionError, match="negative"):
        settings(budget_bytes=-1)
    with pytest.raises(OptionError, match="did you mean 'ewma'"):
        settings(upkeep="ewmaa")
