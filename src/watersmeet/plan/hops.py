"""A node over several keys (a *mixed* node): the path of probes of each input, and the stages that serve all paths.

(a b c) on a.x = b.x AND b.y = c.y has no key that all its inputs share. Each input follows its own path of *steps*. A
step is a sequence of probes without an exchange between them:

    a:  x: b   then  y: c
    b:  x: a   then  y: c
    c:  y: b   then  x: a

Between two steps rows are exchanged. Steps of different inputs under one key share a stage (here x, y, x: three stages
serve all paths). Paths follow the probe orders of the node, in few stages (`hop_schedule.py`). Without probe orders a
rule makes paths for few stages. The next stage serves the input that has taken the fewest steps; among several, the one
with the fewest possible next keys. Of these keys it takes the one under which most inputs can step. So inputs at the
edge of the join graph go first, reach the same partial results as others, and continue together with them.

With n inputs linked as a tree, each pair by a key of its own, at least 2n - 3 stages are needed. For any two keys, rows
from one end of the tree meet one key first, and rows from the other end meet the other. So only one key can occur in a
single stage; all others occur twice. Chains and stars reach this minimum by the rule, other trees take a few more
(`benchmarks/hop_stages.py`).

A store is indexed under each key that it is probed by. The first stage that probes an index keeps it; later stages with
that key read it. A step with the empty key joins inputs that no key covers: on one slot, comparing every pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.plan.hop_schedule import few_stages
from watersmeet.plan.keys import Key, node_key
from watersmeet.plan.probe_orders import ProbeOrder
from watersmeet.plan.tree import Join, Tree
from watersmeet.query.logical import JoinQuery


@dataclass(frozen=True, slots=True)
class Step:
    """The rows of tree `rows`, which started at input `origin` of the node, probe the inputs `targets` under a key."""

    origin: int
    rows: Tree
    key: Key
    targets: tuple[int, ...]
    last: bool

    def joined(self, node: Join) -> Join:
        """The tree of the results of the step."""
        return Join((self.rows, *(node.inputs[j] for j in self.targets)))


@dataclass(frozen=True, slots=True)
class HopStage:
    """The steps that one stage runs."""

    key: Key
    steps: tuple[Step, ...]


def is_mixed(query: JoinQuery, node: Join) -> bool:
    """Whether no key is shared by all inputs of a node, but some key by some of them."""
    if node_key(query, node):
        return False
    pairs = (Join((a, b)) for i, a in enumerate(node.inputs) for b in node.inputs[:i])
    return any(node_key(query, pair) for pair in pairs)


def hop_stages(query: JoinQuery, node: Join, orders: tuple[ProbeOrder, ...] | None = None) -> list[HopStage]:
    """The stages of a mixed node, in the order they run."""
    by_rule = _by_rule(query, node)
    if orders is None or orders == hop_orders(by_rule, len(node.inputs)):
        return by_rule
    walks = [_walk(query, node, origin, order) for origin, order in enumerate(orders)]
    stages = []
    for key in few_stages([[step.key for step in walk] for walk in walks]):
        going = [walk for walk in walks if walk and walk[0].key == key]
        stages.append(HopStage(key, tuple(walk.pop(0) for walk in going)))
    return stages


def hop_orders(stages: Sequence[HopStage], inputs: int) -> tuple[ProbeOrder, ...]:
    """The order in which each input of the node probes the others."""
    steps = [step for stage in stages for step in stage.steps]
    return tuple(tuple(j for step in steps if step.origin == i for j in step.targets) for i in range(inputs))


def _walk(query: JoinQuery, node: Join, origin: int, order: ProbeOrder) -> list[Step]:
    """The steps of an input along its probe order. Rows stay under a key as long as it serves the next probe."""
    rows, left = node.inputs[origin], list(order)
    steps: list[Step] = []
    while left:
        keys = [node_key(query, Join((rows, node.inputs[j]))) for j in left]
        count = next((i for i, key in enumerate(keys) if key != keys[0]), len(left)) if keys[0] else 1
        step = Step(origin, rows, keys[0], tuple(left[:count]), last=count == len(left))
        rows, left = step.joined(node), left[count:]
        steps.append(step)
    return steps


def _by_rule(query: JoinQuery, node: Join) -> list[HopStage]:
    rows: list[Tree] = list(node.inputs)
    left = [[j for j in range(len(rows)) if j != i] for i in range(len(rows))]
    stages: list[HopStage] = []
    while any(left):
        keys = [{j: node_key(query, Join((rows[i], node.inputs[j]))) for j in left[i]} for i in range(len(rows))]
        key = _next_key([set(mine.values()) - {()} for mine in keys], left)
        steps = []
        for origin, mine in enumerate(keys):
            if key in mine.values():
                targets = tuple(j for j in mine if mine[j] == key)
                if not key:
                    targets = targets[:1]
                left[origin] = [j for j in left[origin] if j not in targets]
                step = Step(origin, rows[origin], key, targets, last=not left[origin])
                rows[origin] = step.joined(node)
                steps.append(step)
        stages.append(HopStage(key, tuple(steps)))
    return stages


def _next_key(possible: Sequence[set[Key]], left: Sequence[Sequence[int]]) -> Key:
    """The key of the next stage, given the possible next keys of each input and the inputs it has still to probe."""
    able = [i for i, keys in enumerate(possible) if keys]
    if not able:
        return ()
    first = min(able, key=lambda i: (-len(left[i]), len(possible[i]), i))
    served = Counter(key for keys in possible for key in keys)
    return max(sorted(possible[first]), key=lambda key: served[key])


def first_user(stages: Sequence[HopStage], key: Key, target: int) -> int:
    """The stage that keeps the index of an input under a key: the first that probes it."""
    return next(i for i, s in enumerate(stages) if s.key == key and any(target in step.targets for step in s.steps))
