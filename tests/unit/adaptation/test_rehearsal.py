"""Scripts of rehearsals: every verb, and an error with its place for all that cannot be read."""

import pyarrow as pa
import pytest

from watersmeet.adaptation.rehearsal import parse_script
from watersmeet.epoch.goals import CleanUp, Migrate, Relocate, SpillShare
from watersmeet.errors import OptionError
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query

STREAMS = [Stream(name, pa.schema([("k", pa.int64())])) for name in "abc"]
QUERY = build_query(STREAMS, where=["a.k = b.k AND b.k = c.k"], within=None, windows={}, select=[])


def plan_of(text: str) -> JoinPlan:
    return plan_join(QUERY, (parse_tree(text, "abc"),), partitions=8)


def test_every_verb_is_read_in_the_order_of_epochs():
    script = parse_script(
        "7: clean; 5: SPILL 0 0.3; 2: migrate ((a b) c) moving-state; 4: relocate 0 1 .5;", plan_of, 2
    )
    assert [entry.epoch for entry in script] == [2, 4, 5, 7]
    assert [entry.goal for entry in script] == [
        Migrate(plan_of("((a b) c)"), "moving-state", "rehearsal"),
        Relocate(0, 1, 0.5, "rehearsal"),
        SpillShare(0, 0.3, "rehearsal"),
        CleanUp("rehearsal"),
    ]


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("4: relocate", 11, "the slot that gives is missing"),
        ("4: relocate 0", 13, "the slot that takes is missing"),
        ("4: relocate 0 1", 15, "a share of the bytes, such as 0.5 is missing"),
        ("4: relocate x 1 0.5", 12, "'x' is not the number of a slot"),
        ("4: relocate 0 2 0.5", 14, "there is no slot 2, only 0 to 1"),
        ("4: relocate 1 1 0.5", 14, "a slot cannot give groups to itself"),
        ("4: relocate 0 1 1.5", 16, "'1.5' is not a share: more than 0 and at most 1"),
        ("4: relocate 0 1 0", 16, "'0' is not a share"),
        ("4: relocate 0 1 nan", 16, "'nan' is not a share"),
        ("4: relocate 0 1 0.5 now", 20, "'now' is too much"),
        ("1: clean; 5: spill 3 0.3", 19, "there is no slot 3"),
        ("5: spill 0", 10, "a share of the bytes, such as 0.3 is missing"),
        ("7: clean all", 9, "'all' is too much"),
        ("7: move 0 1", 3, "there is no 'move', only migrate, relocate, spill, clean"),
    ],
)
def test_an_unreadable_entry_is_refused_with_its_place(text, at, what):
    with pytest.raises(OptionError, match="rehearse") as caught:
        parse_script(text, plan_of, 2)
    lines = str(caught.value).splitlines()
    assert any(what in line for line in lines), lines
    marked = next(number for number, line in enumerate(lines) if line.strip() == "^")
    assert lines[marked].index("^") - lines[marked - 1].index(text) == at


def test_slots_that_nobody_knows_yet_are_not_checked():
    assert parse_script("4: relocate 0 9 0.5", plan_of)[0].goal == Relocate(0, 9, 0.5, "rehearsal")
