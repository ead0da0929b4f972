"""Pairs of rows: reports of slots by hand, and products over all of them."""

from collections import Counter

from watersmeet.epoch.pairs import count_rows, with_pairs


def report(stage: int, node: str, **rows: tuple[int, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for label, (there, new) in rows.items():
        count_rows(counts, stage, node, label, there=there, new=new)
    return counts


def test_rows_are_added_up_over_slots_before_they_are_multiplied():
    slots = [report(0, "(a b)", a=(3, 1), b=(2, 0)), report(0, "(a b)", a=(0, 2), b=(5, 4))]
    assert with_pairs(slots) == {"pairs.a~b": (3 + 3) * (7 + 4) - 3 * 7}


def test_a_slot_without_new_rows_is_part_of_the_product():
    slots = [report(0, "(a b)", a=(0, 10), b=(0, 0)), report(0, "(a b)", a=(0, 0), b=(6, 0))]
    assert with_pairs(slots) == {"pairs.a~b": 60}


def test_in_a_hop_only_the_first_input_meets_the_others():
    assert with_pairs([report(2, "hop 0", a=(0, 4), b=(5, 0), c=(7, 0))]) == {"pairs.a~b": 20, "pairs.a~c": 28}


def test_hops_and_stages_are_multiplied_each_on_its_own():
    hops = report(0, "hop 0", a=(0, 2), b=(3, 0)) + report(0, "hop 1", b=(0, 4), a=(5, 0))
    assert with_pairs([hops, report(1, "hop 0", a=(0, 10), b=(10, 0))]) == {"pairs.a~b": 6 + 20 + 100}


def test_slots_that_lack_a_node_are_taken_to_be_like_those_that_have_it():
    slots = [report(0, "(a b)", a=(4, 0), b=(0, 3)), report(0, "(b c)", b=(4, 0), c=(0, 3))]
    assert with_pairs(slots) == {"pairs.a~b": 24, "pairs.b~c": 24}


def test_other_counts_are_added_up_and_an_epoch_without_new_rows_has_no_pairs():
    slots = [{"results": 1, "state_rows.(a b)": 2, **report(0, "(a b)", a=(9, 0), b=(9, 0))}, {"results": 3}]
    assert with_pairs(slots) == {"results": 4, "state_rows.(a b)": 2}
