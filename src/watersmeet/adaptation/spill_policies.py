"""Spill policies: which partition groups leave memory first. A policy scores every group, and the lowest go first.

| name                    | score                                    | from                                           |
|-------------------------|------------------------------------------|------------------------------------------------|
| `bottom-up`             | height of the stage, then chance         | S2; Liu et al. 2006, 3.1.1                     |
| `local-output`          | results of the own stage / size          | S2; 3.2.1                                      |
| `global-output`         | final results / size                     | S2; 3.2.2; push-less-productive in R1          |
| `global-output-penalty` | final results / (size + intermediate)    | S2; 3.2.3                                      |
| `push-more-productive`  | the reverse of `global-output`           | R1; the counterexample of its Figure 7         |
| `random`                | chance                                   | the baseline                                   |
| `largest`               | the reverse of size                      | XJoin (Urhan and Franklin 2000)                |
| `balanced`              | place in a balanced order                | hash-merge join (Mokbel et al. 2004)           |
| `rate-based`            | results expected of arrivals / size      | RPJ (Tao et al. 2005)                          |

A policy is a pure function of `GroupFigures`; any callable of that signature can be used. Chance is a hash of epoch,
stage and group, so a repeated decision is the same.

Deviation: the last three were made for one binary join, and XJoin flushes single buckets. Here whole groups are
spilled, of nodes with any number of inputs and of all stages of a slot. The docstrings of these policies say how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from watersmeet.adaptation.figures import Floats, GroupFigures, Ints
from watersmeet.errors import OptionError, unknown_name

Policy: TypeAlias = Callable[[GroupFigures], npt.ArrayLike]
"""Gives a score for every group. Of equal scores the lesser (stage, group) goes first."""

BALANCING_STEPS_MAX = 512
"""The most steps of finding a balanced order. With more groups, each step takes several groups."""


def bottom_up(figures: GroupFigures) -> Floats:
    return figures.height + random(figures)


def local_output(figures: GroupFigures) -> Floats:
    return _per_byte(figures.local, figures.size)


def global_output(figures: GroupFigures) -> Floats:
    return _per_byte(figures.output, figures.size)


def global_output_penalty(figures: GroupFigures) -> Floats:
    return _per_byte(figures.output, figures.size + figures.inter)


def push_more_productive(figures: GroupFigures) -> Floats:
    return -global_output(figures)


def random(figures: GroupFigures) -> Floats:
    """A number in [0, 1)."""
    mixed = np.full(len(figures), figures.epoch, dtype=np.int64).view(np.uint64)
    for more in (figures.stage, figures.group):
        mixed = _mixed(mixed ^ _mixed(more.astype(np.int64).view(np.uint64)))
    return (mixed >> np.uint64(11)) / 2.0**53


def largest(figures: GroupFigures) -> Floats:
    return -figures.size


def balanced(figures: GroupFigures) -> Floats:
    """The place of each group in an order that keeps the inputs of every stage balanced in memory.

    Each step takes the group of the highest worth: the bytes that it frees, plus the bytes by which the inputs of its
    stage come closer to balance (the sum of their distances from their mean). With two inputs this is the group with
    most of the larger input, or with most of both when the inputs are equal.
    """
    present = ~np.isnan(figures.sizes)
    sizes = np.where(present, figures.sizes, 0.0)
    place = np.zeros(len(figures))
    left = np.lexsort((figures.group, figures.stage))
    _, stage = np.unique(figures.stage, return_inverse=True)
    held = np.zeros((int(stage.max(initial=-1)) + 1, sizes.shape[1]))
    np.add.at(held, stage, sizes)
    batch = -(-len(figures) // BALANCING_STEPS_MAX)
    taken = 0
    while len(left):
        before, known = held[stage[left]], present[left]
        gain = _imbalance(before, known) - _imbalance(before - sizes[left], known)
        order = np.argsort(-(figures.size[left] + gain), kind="stable")
        chosen = left[order[:batch]]
        place[chosen] = np.arange(taken, taken + len(chosen))
        np.subtract.at(held, stage[chosen], sizes[chosen])
        left = np.delete(left, order[:batch])
        taken += len(chosen)
    return place


def rate_based(figures: GroupFigures) -> Floats:
    """Expected results per byte, if rows keep arriving as they have so far.

    A row that arrives at input i of the topmost node has, in its group, one candidate for every combination of the rows
    of the other inputs. So the number of candidates is the sum over i of arrivals_i times the product of rows_j, j !=
    i. The share of candidates that match is not known by group. It is taken to be the same for all groups of a stage,
    and such that the expected results of all groups equal the results that the stage has had.
    """
    known = ~np.isnan(figures.rows)
    arrived, rows = np.where(known, figures.arrived, 0.0), np.where(known, figures.rows, 1.0)
    candidates = np.zeros(len(figures))
    for i in range(rows.shape[1]):
        candidates += arrived[:, i] * np.delete(rows, i, axis=1).prod(axis=1)
    expected = np.zeros(len(figures))
    for stage in np.unique(figures.stage):
        here = figures.stage == stage
        whole = candidates[here].sum()
        if whole > 0:
            expected[here] = candidates[here] * (figures.local[here].sum() / whole)
    return _per_byte(expected, figures.size)


POLICIES: dict[str, Policy] = {
    "bottom-up": bottom_up,
    "local-output": local_output,
    "global-output": global_output,
    "global-output-penalty": global_output_penalty,
    "push-more-productive": push_more_productive,
    "random": random,
    "largest": largest,
    "balanced": balanced,
    "rate-based": rate_based,
}


DEFAULT_POLICY = "global-output-penalty"


def policy_named(name: str) -> Policy:
    """The policy of an option's value, in any case; an unknown one is refused with the nearest."""
    found = POLICIES.get(name.strip().lower())
    if found is not None:
        return found
    raise unknown_name("spill policy", "policies", name, POLICIES, "UNKNOWN_SPILL_POLICY")


def name_of(policy: Policy) -> str:
    """The name of a policy: the value of the option, or the name of the Python function."""
    own = [name for name, known in POLICIES.items() if known is policy]
    return own[0] if own else str(getattr(policy, "__name__", type(policy).__name__))


def scores_of(figures: GroupFigures, policy: Policy) -> Floats:
    """The scores of a policy, checked: one number per group. Infinity is allowed, NaN is not."""
    name = name_of(policy)
    try:
        said = policy(figures)
    except Exception as error:
        raise _unusable(f"spill policy '{name}' failed: {type(error).__name__}: {error}") from error
    try:
        scores = np.asarray(said, dtype=np.float64)
    except (TypeError, ValueError):
        raise _unusable(f"spill policy '{name}' gave {type(said).__name__}, not numbers") from None
    if scores.shape != (len(figures),):
        raise _unusable(f"spill policy '{name}' gave scores of shape {scores.shape} for {len(figures)} groups")
    if np.isnan(scores).any():
        at = int(np.flatnonzero(np.isnan(scores))[0])
        raise _unusable(
            f"spill policy '{name}' gave NaN for group {figures.group[at]} of stage {figures.stage[at]}",
        )
    return scores


def choose(figures: GroupFigures, policy: Policy, bytes_to_go: float) -> Ints:
    """The indexes of the groups to spill, by ascending score, until their sizes reach the bytes to free.

    At least one group, but none of size 0.
    """
    order = np.lexsort((figures.group, figures.stage, scores_of(figures, policy)))
    order = order[figures.size[order] > 0]
    reached = np.cumsum(figures.size[order])
    return order[: int(np.searchsorted(reached, bytes_to_go)) + 1].astype(np.int64)


def _per_byte(figure: Floats, size: Floats) -> Floats:
    """A ratio; infinite for a group of size 0, since spilling it frees nothing."""
    return np.divide(figure, size, out=np.full(len(size), np.inf), where=size > 0)


def _imbalance(sizes: Floats, present: npt.NDArray[np.bool_]) -> Floats:
    """The sum of the distances of some sizes from their mean, row by row."""
    mean = sizes.sum(axis=1) / np.maximum(1, present.sum(axis=1))
    return (np.abs(sizes - mean[:, None]) * present).sum(axis=1)


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _unusable(text: str) -> OptionError:
    return OptionError(
        text,
        hint="a spill policy returns one number per group, the lowest for the group that goes first",
        error_class="INVALID_SPILL_POLICY",
    )
