"""How long the plan of a young query is on trial.

A plan is chosen by what the first micro-batch shows, and that may be little: with 200 pairs that match, the share of
pairs that a key lets pass is known to 7 %, and a plan that should have been within its memory budget is not. So rows of
the first micro-batches are kept, and the plan is chosen once more by all of them, with the next as the last of them:

| micro-batches seen, and their rows                  | the trial                                      |
|-----------------------------------------------------|------------------------------------------------|
| over ROWS_ENOUGH rows, or one was asked for         | ends                                           |
| as many as were asked for, and ROWS_MIN kept rows   | ends                                           |
| BATCHES_MAX (or as many as were asked for, if more) | ends; with fewer than ROWS_MIN, the plan stays |

Kept rows are those that filters let pass; whether there are enough of them is known when the plan is to be chosen.

If another tree is chosen then, the state is made anew by joining the rows of these micro-batches again, with the
results thrown away (`runtime/replay.py`): the sink has them. That is exact as long as nothing is owed, so a spill ends
the trial.
"""

from __future__ import annotations

ROWS_MIN = 1000
"""Fewer rows say too little."""
ROWS_ENOUGH = 100_000
"""More rows than this would take long to join again, and need not be."""
BATCHES_DEFAULT = 3
BATCHES_MAX = 10


def has_ended(batches: int, rows: int, asked_for: int) -> bool:
    """Whether the plan is chosen for good, by so many micro-batches and rows."""
    if asked_for == 1 or rows > ROWS_ENOUGH or batches >= max(BATCHES_MAX, asked_for):
        return True
    return batches >= asked_for and rows >= ROWS_MIN
