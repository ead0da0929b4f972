"""The line that Ctrl-C leaves of a query in a script."""

from dataclasses import replace

from tests.unit.adaptation.plans import chain
from watersmeet.epoch.after import initial_manifest
from watersmeet.runtime.spark.interrupt import closing_line


def test_how_far_a_query_came_and_whether_it_can_go_on():
    last = replace(initial_manifest(chain(), 1), epoch=7)
    assert closing_line("late", last, is_kept=True) == (
        "stopped by Ctrl-C: query late ended after epoch 7; start it again to go on"
    )
    assert closing_line("late", None, is_kept=False) == (
        "stopped by Ctrl-C: query late ended before its first epoch; its checkpoint was temporary"
    )
