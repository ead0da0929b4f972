"""Whenever the power is cut, every result is in the sink once, and nothing is left over: see `tests/power_play.py`.

Each example is a query with up to three cuts; `make soak` draws thousands. A failure prints its seed.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.power import RAM
from tests.power_play import CUTS_MAX, play

EXAMPLES = examples(15)

pytestmark = pytest.mark.skipif(RAM is None, reason="needs a tmpfs, which uses no inode number twice")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.integers(0, 1 << 40))
@example(6_566_350_667)  # half of an entry is left, and no checksum
def test_a_power_cut_loses_and_repeats_nothing(seed: int):
    with tempfile.TemporaryDirectory(dir=RAM, prefix="watersmeet-power-") as folder:
        play(Path(folder), seed)


def test_most_cuts_come_to_pass():
    """Else the property would show little."""
    cuts = 0
    for seed in range(5):
        with tempfile.TemporaryDirectory(dir=RAM, prefix="watersmeet-power-") as folder:
            cuts += play(Path(folder), seed)
    assert cuts > 3 * CUTS_MAX
