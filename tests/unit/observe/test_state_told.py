"""The state that explain tells is no less than what the engine then has in files, of tiny and of larger states."""

from pathlib import Path

import pytest

from benchmarks.calibration.queries import Workload
from benchmarks.state_growth import mixed
from watersmeet.observe.estimates import estimate
from watersmeet.observe.estimates_text import files_text
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.runtime.inprocess import InProcessQuery

SECONDS = 8
ONE_KEY, TWO_KEYS = ((0, 1, 2),), ((0, 1), (0, 2))


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("tree", ["(a b c)", "((a b) c)"])
@pytest.mark.parametrize(("rate", "classes"), [(2, ONE_KEY), (2, TWO_KEYS), (500, ONE_KEY), (500, TWO_KEYS)])
def test_files_hold_no_more_than_was_told(tmp_path, rate, classes, tree, slots):
    """Nearly every row has a key of its own, which takes most bytes a row."""
    values = 100 * rate
    workload = Workload("few", "star", 1, (rate,) * 3, (SECONDS,) * 3, classes, (values,) * len(classes), None)
    query, root = workload.query(), parse_tree(tree, "abc")
    known = Assumptions(dict.fromkeys("abc", float(rate)), keys=dict.fromkeys(range(len(classes)), 1 / values))
    told = estimate(query, plan_join(query, (root,), partitions=64), known)
    engine = InProcessQuery(
        query, Path(tmp_path), memory=tmp_path / "memory", slots=slots, hash_keys=mixed, trees=[root]
    )
    measured = 0
    for batch in workload.batches(2 * SECONDS):
        engine.run(batch)
        measured = max(measured, sum(each.bytes for each in engine.manifest.segments.values()))
    assert told.state_bytes < measured <= told.file_bytes_max(slots)
    assert measured > (told.file_bytes_max(slots) - told.fixed_bytes(slots)) * 0.9


def test_the_fixed_part_is_told():
    query = Workload("two", "star", 1, (1,) * 3, (8,) * 3, ONE_KEY, (100,), None).query()
    plan = plan_join(query, (parse_tree("(a b c)", "abc"),), partitions=64)
    said = files_text(estimate(query, plan, Assumptions({"a": 1.0, "b": 1.0, "c": 1.0})), 2)
    assert said == (
        "state in files: 192.9 KiB at most on all slots, 192.0 KiB of it fixed (32.0 KiB x 3 stores x 2 slots)"
    )
