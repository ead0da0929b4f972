"""Sinks that are functions of deliveries: epochs that show nothing are left out, modes that would lose rows refused."""

import pytest

from watersmeet.errors import SinkError
from watersmeet.runtime.spark.sinks import Delivery, Sink, batch_sink, console_sink, function_sink


def delivery(epoch: int, *, shows: bool) -> Delivery:
    return Delivery(epoch, shows, None, None, lambda: f"results of {epoch}")


def test_a_function_gets_every_epoch_that_may_show_something():
    got = []
    sink: Sink = function_sink(lambda results, epoch: got.append((results, epoch)))
    for epoch in range(4):
        sink.deliver(delivery(epoch, shows=epoch != 2))
    assert got == [("results of 0", 0), ("results of 1", 1), ("results of 3", 3)]


def test_they_leave_nothing_to_take_or_to_sweep():
    sink: Sink = console_sink(20, truncate=True)
    assert sink.for_run(None) is sink
    assert sink.part_folder(is_plain=True) is None
    assert sink.leftovers() == frozenset()


@pytest.mark.parametrize(("format", "is_refused"), [("kafka", False), ("noop", False), ("jdbc", True)])
def test_update_needs_a_format_in_which_later_rows_replace_earlier_ones(format, is_refused):
    sink = batch_sink(format, {})
    assert sink.description == f"BatchSink[{format}]"
    sink.require_mode("append")
    sink.require_mode("complete")
    if is_refused:
        with pytest.raises(SinkError, match=f"format '{format}' cannot be written in output mode 'update'"):
            sink.require_mode("update")
    else:
        sink.require_mode("update")
