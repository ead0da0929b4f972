"""Virtual time: the slowest slot and the network make an epoch, and a slow epoch makes the next batch larger."""

import numpy as np
import pytest

from watersmeet.simulation.clock import ClockPrices, VirtualClock, Work, epoch_s
from watersmeet.simulation.watching import Done, simulated

PRICES = ClockPrices(
    stored_s=1, looked_up_s=10, met_s=100, result_s=1000, disk_byte_s=0.5, sent_row_s=7, moved_byte_s=3, stage_s=0.25
)


def work(**values) -> Work:
    found = Work.none(3)
    for name, by_slot in values.items():
        getattr(found, name)[:] = by_slot
    return found


@pytest.mark.parametrize(
    ("what", "seconds"),
    [
        ({"stored": [1, 5, 2]}, 5),
        ({"looked_up": [1, 0, 2]}, 20),
        ({"met": [0, 0, 2]}, 200),
        ({"results": [3, 0, 2]}, 3000),
        ({"disk_bytes": [8, 2, 0]}, 4),
        ({"stored": [5, 0, 0], "looked_up": [0, 1, 0]}, 10),
        ({"stored": [5, 0, 0], "disk_bytes": [2, 0, 0]}, 6),
        ({"sent_rows": [1, 2, 1]}, 14),
        ({"moved_bytes": [4, 4, 0]}, 12),
        ({"stored": [5, 0, 0], "sent_rows": [0, 1, 0]}, 12),
    ],
)
def test_an_epoch_takes_its_slowest_slot_and_then_the_network(what, seconds):
    assert epoch_s(PRICES, work(**what), stages=2) == seconds + 0.5


class Slow:
    """Every epoch takes 3 seconds, and another one for every second of arrivals."""

    stages = 1

    def __init__(self):
        self.spans = []

    def run(self, since_s, until_s, now_s):
        self.spans.append((since_s, until_s, now_s))
        done = Work.none(1)
        done.stored[:] = 2.75 + (until_s - since_s) / 2
        return Done(0.0, np.zeros(1), np.zeros(1), done, ())


def test_a_slow_epoch_makes_the_next_batch_larger():
    query = Slow()
    moments = simulated(query, VirtualClock(2.0), 16, PRICES)
    assert query.spans == [(0, 2, 2), (2, 6, 6), (6, 11, 11), (11, 16.5, 16.5)]
    assert [moment.epoch_s for moment in moments] == [4, 5, 5.5, 5.75]
    assert [moment.lag_s for moment in moments] == [4, 5, 5.5, 5.75]


def test_rows_wait_at_the_source_when_batches_are_bounded():
    query = Slow()
    moments = simulated(query, VirtualClock(2.0, batch_s_max=2.0), 8, PRICES)
    assert [until - since for since, until, _ in query.spans] == [2, 2, 2, 2]
    assert [moment.lag_s for moment in moments] == [4, 6, 8, 10]
