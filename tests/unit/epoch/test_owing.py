"""Which groups owe results."""

import pytest

from tests.unit.adaptation.plans import CLOSED, extent
from watersmeet.epoch.owing import owing_ranges
from watersmeet.state.manifest import ACTIVE, SETTLED


@pytest.mark.parametrize(
    ("extents", "owing"),
    [
        ([], []),
        ([extent(ACTIVE), extent(ACTIVE)], []),
        ([extent(SETTLED)], []),
        ([extent(CLOSED), extent(CLOSED)], []),
        ([extent(CLOSED), extent(ACTIVE)], [(0, 8)]),
        ([extent(CLOSED), extent(CLOSED + 1)], [(0, 8)]),
        ([extent(SETTLED, 0, 4), extent(ACTIVE, 4, 8)], []),
        ([extent(SETTLED, 0, 5), extent(ACTIVE, 3, 8)], [(3, 5)]),
        ([extent(CLOSED, 0, 2), extent(CLOSED, 6, 8), extent(ACTIVE)], [(0, 2), (6, 8)]),
        ([extent(CLOSED, 0, 2), extent(SETTLED, 2, 4), extent(ACTIVE)], [(0, 4)]),
    ],
)
def test_groups_of_several_generations_owe(extents, owing):
    assert owing_ranges(extents) == owing
