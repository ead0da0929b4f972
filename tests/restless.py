"""An optimiser that looks after every epoch or so and wishes plans at random: results must not notice."""

from random import Random

from watersmeet.adaptation.migration import BACKFILL, MOVING_STATE
from watersmeet.epoch.goals import Migrate
from watersmeet.optimizer.assumptions import Assumptions
from watersmeet.optimizer.dominating import Budget
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import Join, Leaf, Tree
from watersmeet.planning.planner import Planner
from watersmeet.planning.reoptimizing import Reoptimizer
from watersmeet.query.logical import JoinQuery

REASON = "a whim"


class Restless(Reoptimizer):
    """Its statistics and looks are real, its wishes are not."""

    def __init__(self, query: JoinQuery, slots: int, partitions: int, mode: str | None, seed: int) -> None:
        super().__init__(Planner(query, "auto", Assumptions({}), slots, partitions, Budget(), mode=mode))
        self._chance = Random(seed)
        self._partitions, self._mode = partitions, mode

    def _is_due(self) -> bool:
        return self._chance.random() < 0.6

    def _look(self, plan: JoinPlan) -> None:
        if all(self.recent._rows.get(name) for name in plan.names) and self.recent.seconds:
            super()._look(plan)
        query = self.planner.query
        tree = drawn_tree(len(query.streams), self._chance)
        goal = plan_join(query, (tree,), self._partitions, self._mode)
        self._wanted = Migrate(goal, self._chance.choice((MOVING_STATE, BACKFILL)), REASON)


class Eager(Reoptimizer):
    """Leaves the fallback after the first micro-batch that covers some time, however few rows there are."""

    def __init__(self, query: JoinQuery, slots: int, partitions: int, mode: str | None) -> None:
        super().__init__(Planner(query, "auto", Assumptions({}), slots, partitions, Budget(), mode=mode))

    def _is_due(self) -> bool:
        return self.recent.seconds > 0


def drawn_tree(streams: int, chance: Random) -> Join:
    """Any tree, by joining some inputs until one is left."""
    ahead: list[Tree] = [Leaf(i) for i in range(streams)]
    while len(ahead) > 1:
        chosen = chance.sample(range(len(ahead)), chance.randint(2, len(ahead)))
        node = Join(tuple(ahead[i] for i in sorted(chosen)))
        ahead = [*(each for i, each in enumerate(ahead) if i not in chosen), node]
    (tree,) = ahead
    assert isinstance(tree, Join)
    return tree
