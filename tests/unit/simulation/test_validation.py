"""The counter model against the real engine, in one small setting.

Results agree within 5 % where nothing spills, active bytes within 30 %. Relocations are as many, give or take two. With
a budget of 25 KB for a slot, files are of a few hundred rows and their fixed part counts: results within a third.
"""

import numpy as np
import pytest

from tests.effort import mostly_long
from tests.unit.simulation.settings import INTERVAL_S, Setting, steady_left
from watersmeet.simulation.watching import events_of, relocations, results

SECONDS = 400
MOVES_OFF = 2


def last_bytes(moments) -> float:
    """Over the last quarter of a run: single epochs differ by files that wait for a merge."""
    last = moments[-len(moments) // 4 :]
    return float(np.mean([moment.done.active_bytes.sum() for moment in last]))


@pytest.mark.parametrize(
    ("tree", "window", "policy"),
    mostly_long(
        [
            ("(a b c)", None, "off"),
            ("(a b c)", None, "lazy-disk"),
            ("(a b c)", None, "balance"),
            ("(a b c)", "200 seconds", "lazy-disk"),
            ("((a b) c)", "200 seconds", "lazy-disk"),
        ],
        ("(a b c)", None, "balance"),
        ("((a b) c)", "200 seconds", "lazy-disk"),
    ),
)
def test_both_simulations_tell_the_same(tmp_path, tree, window, policy):
    setting = Setting(policy, tree=tree, window=window, rate=40.0)
    model, engine = setting.of_model(SECONDS), setting.of_engine(tmp_path, SECONDS)
    assert len(model) == len(engine) == SECONDS / INTERVAL_S
    assert results(model) == pytest.approx(results(engine), rel=0.05)
    assert last_bytes(model) == pytest.approx(last_bytes(engine), rel=0.3)
    lengths = [np.mean([moment.epoch_s for moment in moments]) for moments in (model, engine)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.02)
    assert abs(relocations(model) - relocations(engine)) <= MOVES_OFF
    if policy == "off":
        assert relocations(engine) == 0
    else:
        times = [events_of(moments, "relocate")[0][0] for moments in (model, engine)]
        assert times[0] == pytest.approx(times[1], abs=INTERVAL_S), "the first move"


def test_both_simulations_spill_alike(tmp_path):
    setting = Setting("lazy-disk", budget_bytes=60_000, rate=40.0)
    model, engine = setting.of_model(SECONDS), setting.of_engine(tmp_path, SECONDS)
    spills = [len(events_of(moments, "spill")) for moments in (model, engine)]
    moves = [relocations(moments) for moments in (model, engine)]
    assert min(spills) >= 8
    assert spills[0] == pytest.approx(spills[1], rel=0.35)
    assert abs(moves[0] - moves[1]) <= 2
    assert results(model) == pytest.approx(results(engine), rel=0.33)
    whole = results(Setting("off", rate=40.0).of_model(SECONDS))
    assert max(results(model), results(engine)) < 0.9 * whole, "the budget matters"


def test_the_load_that_both_get_is_uneven(tmp_path):
    setting = Setting("off", spread=steady_left)
    for moments in (setting.of_model(60), setting.of_engine(tmp_path, 60)):
        held = moments[-1].done.active_bytes
        assert held.max() > 4 * held.min()
