"""Scenarios in which slots run different shapes, and partition groups and the number of slots change all the time."""

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from tests.drawn_trees import trees
from tests.scenarios import ALL_GROUPS, Scenario
from tests.strategies import aggregate_scenarios, scenarios
from watersmeet.plan.stages import plan_join
from watersmeet.plan.state_matching import differs_by_slot
from watersmeet.plan.tree import parse_tree

_MOVES = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.just(ALL_GROUPS), st.integers(0, 63)), st.integers(0, 3)), max_size=4
)


@st.composite
def shaped(draw: st.DrawFn, drawn: st.SearchStrategy[Scenario]) -> Scenario:
    """A drawn scenario with other shapes for its slots, groups that move, and restarts with other numbers of slots."""
    asked = draw(drawn)
    shapes = draw(trees(asked.query, kinds=("by slot",)))
    names = [stream.name for stream in asked.streams]
    plan = plan_join(asked.query, tuple(parse_tree(text, names) for text in shapes), partitions=1)
    assume(differs_by_slot(plan))
    epochs = []
    for number, epoch in enumerate(asked.schedule):
        restarts = number and draw(st.sampled_from((False, False, True)))
        slots = draw(st.integers(1, 4)) if restarts else None
        migrate = epoch.migrate if draw(st.sampled_from((False, False, True))) else ""
        spill = epoch.spill if draw(st.sampled_from((False, False, True))) else ()
        epochs.append(replace(epoch, move=tuple(draw(_MOVES)), slots=slots, migrate=migrate, spill=spill))
    setting = replace(asked.setting, slots=draw(st.integers(2, 4)))
    return replace(asked, trees=shapes, schedule=tuple(epochs), setting=setting)


shaped_scenarios = shaped(scenarios(counts=(3, 3, 4)))
shaped_aggregates = shaped(aggregate_scenarios().filter(lambda scenario: len(scenario.streams) > 2))
