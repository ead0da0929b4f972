"""Pairs of rows: reports of slots by hand, and products over all of them."""

from watersmeet.epoch import pairs
from watersmeet.epoch.task import InputRows, NodeInput, SlotReport
from watersmeet.state.measures import Counts


def report(*nodes: tuple[int, str, dict[str, tuple[int, int]]], **counts: int) -> SlotReport:
    """Of nodes, each by stage and name, with the rows of its inputs: there, and new."""
    inputs = {NodeInput(stage, node, label): InputRows(*of[label]) for stage, node, of in nodes for label in of}
    return SlotReport(0, 0, 0, (), (), Counts.named(counts), inputs=inputs)


def with_pairs(reports: list[SlotReport]) -> dict[str, int]:
    return pairs.with_pairs(reports).by_name()


def test_rows_of_an_input_that_is_reported_twice_add_up():
    inputs, at = {}, NodeInput(0, "hop 0", "a")
    pairs.add_rows(inputs, at, InputRows(1, 2))
    pairs.add_rows(inputs, at, InputRows(10, 20))
    assert inputs == {at: InputRows(11, 22)}


def test_rows_are_added_up_over_slots_before_they_are_multiplied():
    slots = [report((0, "(a b)", {"a": (3, 1), "b": (2, 0)})), report((0, "(a b)", {"a": (0, 2), "b": (5, 4)}))]
    assert with_pairs(slots) == {"pairs.a~b": (3 + 3) * (7 + 4) - 3 * 7}


def test_a_slot_without_new_rows_is_part_of_the_product():
    slots = [report((0, "(a b)", {"a": (0, 10), "b": (0, 0)})), report((0, "(a b)", {"a": (0, 0), "b": (6, 0)}))]
    assert with_pairs(slots) == {"pairs.a~b": 60}


def test_in_a_hop_only_the_first_input_meets_the_others():
    hop = report((2, "hop 0", {"a": (0, 4), "b": (5, 0), "c": (7, 0)}))
    assert with_pairs([hop]) == {"pairs.a~b": 20, "pairs.a~c": 28}


def test_hops_and_stages_are_multiplied_each_on_its_own():
    hops = report((0, "hop 0", {"a": (0, 2), "b": (3, 0)}), (0, "hop 1", {"b": (0, 4), "a": (5, 0)}))
    assert with_pairs([hops, report((1, "hop 0", {"a": (0, 10), "b": (10, 0)}))]) == {"pairs.a~b": 6 + 20 + 100}


def test_slots_that_lack_a_node_are_taken_to_be_like_those_that_have_it():
    slots = [report((0, "(a b)", {"a": (4, 0), "b": (0, 3)})), report((0, "(b c)", {"b": (4, 0), "c": (0, 3)}))]
    assert with_pairs(slots) == {"pairs.a~b": 24, "pairs.b~c": 24}


def test_other_counts_are_added_up_and_an_epoch_without_new_rows_has_no_pairs():
    node = 0, "(a b)", {"a": (9, 0), "b": (9, 0)}
    slots = [report(node, results=1, **{"state_rows.(a b)": 2}), report(results=3)]
    assert with_pairs(slots) == {"results": 4, "state_rows.(a b)": 2}
