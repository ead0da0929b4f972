"""What each kind of epoch runs and shows."""

import pytest

from tests.unit.adaptation.plans import chain
from tests.unit.epoch.plans import aggregate_plan
from watersmeet.epoch.kinds import (
    Batch,
    Clean,
    Cleaning,
    Closing,
    Epoch,
    Spill,
    Takeover,
    has_rows,
    orders_of,
    shows,
    stages_of,
)
from watersmeet.epoch.task import SlotReport
from watersmeet.state.measures import Counts

ORDERS = (Spill(0, 0, (1, 2)), Clean(1, 0, 0, 8))
EPOCHS: list[tuple[Epoch, bool]] = [
    (Batch(3, ORDERS), True),
    (Cleaning(ORDERS, "asked for"), False),
    (Closing(5), False),
    (Takeover(), False),
]


def report(**counts: int) -> SlotReport:
    return SlotReport(0, 0, 0, (), (), Counts.named(counts))


@pytest.mark.parametrize(("epoch", "with_rows"), EPOCHS)
def test_only_a_batch_brings_rows(epoch, with_rows):
    assert has_rows(epoch) == with_rows


def test_batches_and_clean_ups_carry_out_orders():
    assert [orders_of(epoch) for epoch, _ in EPOCHS] == [ORDERS, ORDERS, (), ()]


def test_the_stages_of_an_epoch():
    plan = aggregate_plan()
    assert plan.stage_count == 2
    assert [list(stages_of(plan, epoch)) for epoch, _ in EPOCHS] == [[0, 1], [0, 1], [1], []]
    assert [list(stages_of(chain(), epoch)) for epoch, _ in EPOCHS] == [[0, 1, 2], [0, 1, 2], [], []]


@pytest.mark.parametrize(("reports", "cleaning_shows"), [([report()], False), ([report(), report(results=1)], True)])
def test_a_batch_shows_even_that_there_is_nothing_and_a_clean_up_only_what_it_finds(reports, cleaning_shows):
    shown = [shows(chain(), epoch, reports) for epoch, _ in EPOCHS]
    assert shown == [True, cleaning_shows, True, False]


def test_a_clean_up_changes_groups_if_it_joins_anything():
    """The aggregation may emit all its groups again, though none has changed."""
    cleaning = Cleaning(ORDERS, "asked for")
    assert not shows(aggregate_plan("complete", None), cleaning, [report(results=7)])
    assert shows(aggregate_plan("complete", None), cleaning, [report(joined=1)])
