"""Bytes of a file that several slots name are divided among them, and add up."""

from watersmeet.state.groups import Groups
from watersmeet.state.manifest import ACTIVE, SETTLED, ExtentRef, SegmentRef
from watersmeet.state.shares import byte_shares, bytes_of


def extent(segment: str, rows: int, generation: int = ACTIVE) -> ExtentRef:
    return ExtentRef(segment, 0, 0, 0, rows, None, Groups.between(0, 8), generation)


def test_bytes_are_divided_by_rows_and_add_up():
    stage = [[extent("x", 30), extent("y", 5)], [extent("x", 10)], []]
    shares = byte_shares(stage)
    assert shares == [{"x": 0.75}, {"x": 0.25}, {}]
    segments = {name: SegmentRef(name, 1000, 0) for name in "xy"}
    assert [bytes_of({e.segment for e in held}, segments, shares[slot]) for slot, held in enumerate(stage)] == [
        1750,
        250,
        0,
    ]


def test_a_file_that_one_slot_probes_is_all_its_own():
    assert byte_shares([[extent("x", 30)], [extent("x", 10, SETTLED)]]) == [{"x": 1.0}, {"x": 0.25}]
