"""How long a plan is on trial."""

import pytest

from watersmeet.adaptation.trial import BATCHES_MAX, ROWS_ENOUGH, ROWS_MIN, has_ended


@pytest.mark.parametrize(
    ("batches", "rows", "asked_for", "expected"),
    [
        (1, ROWS_MIN, 3, False),
        (2, ROWS_ENOUGH, 3, False),
        (3, ROWS_MIN, 3, True),
        (3, ROWS_MIN - 1, 3, False),
        (4, ROWS_MIN, 3, True),
        (1, ROWS_ENOUGH + 1, 3, True),
        (BATCHES_MAX - 1, ROWS_MIN - 1, 3, False),
        (BATCHES_MAX, 0, 3, True),
        (1, 0, 1, True),
        (BATCHES_MAX, ROWS_MIN, 50, False),
        (50, ROWS_MIN, 50, True),
        (50, 0, 50, True),
    ],
)
def test_when_it_ends(batches, rows, asked_for, expected):
    assert has_ended(batches, rows, asked_for) is expected
