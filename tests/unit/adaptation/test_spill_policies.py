"""Spill policies on groups made by hand: who goes first, how many, and what becomes of a policy that is wrong."""

import numpy as np
import pytest

from watersmeet.adaptation.figures import GroupFigures
from watersmeet.adaptation.spill_policies import POLICIES, choose, name_of, policy_named, scores_of
from watersmeet.errors import OptionError

NAN = float("nan")


def groups(count=None, *, epoch=1, **given) -> GroupFigures:
    """Groups 0, 1, ... of stage 0 with the figures that are given; sizes add up to size if only one is given."""
    count = count or len(next(iter(given.values())))
    sizes = np.asarray(given.get("sizes", np.full((count, 2), 50.0)), dtype=float)
    if "size" in given and "sizes" not in given:
        sizes = np.repeat(np.asarray(given["size"], dtype=float)[:, None] / 2, 2, axis=1)
    columns = {
        "stage": np.zeros(count, dtype=np.int64),
        "group": np.arange(count),
        "height": np.zeros(count, dtype=np.int64),
        "size": np.nansum(sizes, axis=1),
        "sizes": sizes,
        "rows": sizes / 10,
        "arrived": np.zeros_like(sizes),
        "output": np.zeros(count),
        "local": np.zeros(count),
        "inter": np.zeros(count),
    }
    return GroupFigures(epoch, **columns | {name: np.asarray(values) for name, values in given.items()})


def order(name: str, figures: GroupFigures) -> list[int]:
    """All groups, the first to go first."""
    return choose(figures, policy_named(name), np.inf).tolist()


def test_the_least_productive_group_goes_first():
    figures = groups(output=[40.0, 10.0, 60.0], size=[100.0, 20.0, 300.0])  # per byte: 0.4, 0.5, 0.2
    assert order("global-output", figures) == [2, 0, 1]
    assert order("push-more-productive", figures) == [1, 0, 2]


def test_local_output_looks_at_the_own_stage_only():
    figures = groups(local=[10.0, 30.0], output=[99.0, 0.0])
    assert order("local-output", figures) == [0, 1]
    assert order("global-output", figures) == [1, 0]


def test_of_two_equally_productive_groups_the_penalty_picks_the_one_with_more_intermediate_results():
    """Figure 10 of the paper: equal size and output, 2 against 20 intermediate results per row."""
    figures = groups(size=[100.0, 100.0], output=[50.0, 50.0], inter=[2.0 * 80, 20.0 * 80])
    assert np.ptp(scores_of(figures, policy_named("global-output"))) == 0
    assert order("global-output", figures) == [0, 1]
    assert order("global-output-penalty", figures) == [1, 0]
    assert scores_of(figures, policy_named("global-output-penalty")) == pytest.approx([50 / 260, 50 / 1700])


def test_bottom_up_empties_the_lowest_stages_first_and_mixes_within():
    stage = np.repeat([0, 1, 2], 40)
    figures = groups(120, stage=stage, group=np.tile(np.arange(40), 3), height=np.repeat([1, 0, 2], 40))
    found = order("bottom-up", figures)
    assert stage[found].tolist() == [1] * 40 + [0] * 40 + [2] * 40
    assert figures.group[found][:40].tolist() != list(range(40))
    assert figures.group[found][:40].tolist() != figures.group[found][40:80].tolist()


def test_chance_is_the_same_for_a_repeated_epoch_and_another_for_the_next():
    first, again, later = (order("random", groups(200, epoch=epoch)) for epoch in (7, 7, 8))
    assert first == again
    assert first != later
    assert sorted(first) == list(range(200))
    scores = scores_of(groups(5000), policy_named("random"))
    assert np.histogram(scores, bins=10, range=(0, 1))[0] == pytest.approx(500, abs=100)


def test_chance_does_not_depend_on_which_other_groups_there_are():
    all_of_them = groups(50)
    some = np.array([3, 17, 40])
    assert (
        scores_of(all_of_them, POLICIES["random"])[some] == scores_of(all_of_them.take(some), POLICIES["random"])
    ).all()


def test_largest_is_by_bytes():
    assert order("largest", groups(size=[10.0, 30.0, 20.0])) == [1, 2, 0]


def test_balanced_takes_most_of_the_larger_input_and_once_even_most_of_both():
    # At 200 : 100 group 0 has most of the first input; at 120 : 90 group 3 has more of it than group 2, but would tip
    # the scales; at 80 : 60 either of the others would, and group 1 is larger.
    figures = groups(sizes=[[80.0, 10.0], [30.0, 60.0], [40.0, 30.0], [50.0, 0.0]])
    assert order("balanced", figures) == [0, 2, 1, 3]
    even = groups(sizes=[[90.0, 0.0], [0.0, 90.0], [40.0, 40.0], [30.0, 30.0]])
    assert order("balanced", even)[:2] == [2, 3]


@pytest.mark.parametrize("seed", range(4))
def test_balanced_evens_out_inputs_where_largest_does_not(seed):
    sizes = np.random.default_rng(seed).integers(1, 100, (60, 3)) * [1.6, 1.0, 1.0]
    figures = groups(sizes=sizes)

    def spread(name: str) -> float:
        gone = choose(figures, policy_named(name), 0.4 * figures.size.sum())
        left = np.delete(sizes, gone, axis=0).sum(axis=0)
        return float(np.ptp(left) / left.sum())

    assert spread("balanced") < 0.5 * spread("largest")


def test_balanced_sees_stages_apart_and_stages_with_fewer_stores():
    figures = groups(
        stage=[0, 0, 1, 1],
        group=[0, 1, 0, 1],
        sizes=[[10.0, 60.0, NAN], [60.0, 10.0, NAN], [50.0, 10.0, 10.0], [10.0, 10.0, 10.0]],
    )
    # Stage 0 is even, and either group would upset it; in stage 1, group 0 has what is too much.
    assert order("balanced", figures)[0] == 2


def test_a_balanced_order_of_very_many_groups_is_found_in_few_steps():
    sizes = np.random.default_rng(1).integers(1, 100, (3000, 2)).astype(float)
    assert sorted(scores_of(groups(sizes=sizes), policy_named("balanced"))) == list(range(3000))


def test_rates_weigh_what_arriving_rows_will_find():
    # Both groups hold 10 and 100 rows. Rows of the first input find 100 candidates each, those of the second 10.
    figures = groups(
        rows=[[10.0, 100.0], [10.0, 100.0]], arrived=[[1.0, 50.0], [50.0, 1.0]], local=[100.0, 0.0], size=[200.0, 200.0]
    )
    candidates = np.array([1 * 100 + 50 * 10, 50 * 100 + 1 * 10])
    assert scores_of(figures, policy_named("rate-based")) == pytest.approx(candidates / candidates.sum() * 100 / 200)
    assert order("rate-based", figures) == [0, 1]


def test_rates_of_a_three_way_group_are_products_of_the_other_two():
    figures = groups(
        sizes=np.full((2, 3), 10.0), rows=[[2, 3, 5], [1, 1, 1]], arrived=[[1, 1, 1], [4, 4, 4]], local=[43.0, 0.0]
    )
    candidates = np.array([3 * 5 + 2 * 5 + 2 * 3, 12])
    assert scores_of(figures, policy_named("rate-based")) == pytest.approx(candidates / 43 * 43 / 30)


def test_rates_of_stages_are_made_comparable_by_what_they_have_yielded():
    figures = groups(
        stage=[0, 1],
        group=[0, 0],
        sizes=[[10.0, 10.0, 10.0], [15.0, 15.0, NAN]],
        rows=[[100.0, 100.0, 100.0], [3.0, 3.0, NAN]],
        arrived=[[10.0, 10.0, 10.0], [1.0, 1.0, NAN]],
        local=[3.0, 30.0],
    )
    assert scores_of(figures, policy_named("rate-based")) == pytest.approx([3 / 30, 30 / 30])


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_repeatable_and_takes_an_empty_slot_and_silent_groups(name):
    policy = policy_named(name)
    assert scores_of(groups(3).take(np.zeros(0, dtype=np.int64)), policy).shape == (0,)
    figures = groups(5)
    assert (scores_of(figures, policy) == scores_of(figures, policy)).all()
    assert sorted(choose(figures, policy, np.inf)) == [0, 1, 2, 3, 4]
    assert name_of(policy) == name


def test_groups_go_until_their_sizes_reach_the_amount_and_one_at_least():
    figures = groups(size=[30.0, 20.0, 10.0, 40.0], output=[30.0, 40.0, 30.0, 400.0])  # order 0, 1, 2, 3
    policy = policy_named("global-output")
    for amount, count in [(0, 1), (1, 1), (30, 1), (31, 2), (50, 2), (60, 3), (61, 4), (1000, 4)]:
        assert choose(figures, policy, amount).tolist() == [0, 1, 2, 3][:count]


def test_groups_without_state_never_go():
    assert choose(groups(size=[0.0, 5.0, 0.0]), lambda f: np.zeros(3), 100).tolist() == [1]
    assert choose(groups(size=[0.0]), policy_named("largest"), 100).tolist() == []


def test_of_equal_scores_the_lesser_stage_and_group_goes_first():
    figures = groups(4, stage=[1, 0, 1, 0], group=[2, 9, 1, 3])
    assert choose(figures, lambda f: np.ones(4), np.inf).tolist() == [3, 1, 2, 0]


def test_any_callable_is_a_policy():
    def oldest_number_first(figures):
        return (-figures.group).tolist()

    assert choose(groups(3), oldest_number_first, 1).tolist() == [2]
    assert name_of(oldest_number_first) == "oldest_number_first"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (lambda f: np.zeros(2), r"scores of shape \(2,\) for 3 groups"),
        (lambda f: f.sizes, r"shape \(3, 2\)"),
        (lambda f: 1.0, r"shape \(\)"),
        (lambda f: None, "shape|NoneType"),
        (lambda f: "abc", "gave str, not numbers"),
        (lambda f: [0.0, NAN, 1.0], "NaN for group 1 of stage 0"),
        (lambda f: f.nothing, "failed: AttributeError"),
        (lambda f: f.size.sort(), "failed: ValueError"),
    ],
)
def test_a_policy_that_is_wrong_is_told_so(policy, said):
    with pytest.raises(OptionError, match=said) as caught:
        choose(groups(3), policy, 1)
    assert caught.value.error_class == "INVALID_SPILL_POLICY"


def test_an_unknown_policy_is_refused_with_the_nearest():
    assert policy_named(" Global-Output ") is POLICIES["global-output"]
    with pytest.raises(OptionError, match="did you mean 'bottom-up'"):
        policy_named("botom-up")
    with pytest.raises(OptionError, match="known policies: bottom-up, local-output"):
        policy_named("?")


def test_figures_are_taken_by_row_and_cannot_be_changed():
    figures = groups(output=[1.0, 2.0, 3.0])
    some = figures.take(np.array([2, 0]))
    assert some.output.tolist() == [3.0, 1.0]
    assert some.sizes.shape == (2, 2)
    assert len(some) == 2
    with pytest.raises(ValueError, match="read-only"):
        some.output[0] = 9
    with pytest.raises(ValueError, match="output has 2 rows, not 3"):
        groups(3, output=[1.0, 2.0])
