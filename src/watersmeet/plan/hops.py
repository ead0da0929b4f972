"""A node over several keys: in which order each input probes the others, under which keys, and in how few stages.

(a b c) on a.x = b.x AND b.y = c.y has no key that all its inputs share. Each input follows a path of *steps* of its
own, a step being the probes that need no exchange between them:

    a:  x: b   then  y: c
    b:  x: a   then  y: c
    c:  y: b   then  x: a

Between two steps rows are exchanged. Steps of different inputs under one key share a stage (here x, y, x: three stages
serve all paths). Paths follow the probe orders of the node, in few stages (`hop_schedule.py`). Without such orders
nothing is known of the data, and paths are made for few stages by a rule: the next stage is for the input that has come
least far, of several for the one with fewest keys to go on under; and of these keys it has the one under which most
inputs can take a step. So inputs at the edge of the join graph go first, come to hold the same as others, and go on
together with them.

With n inputs linked as a tree, each pair by a key of its own, no rule needs fewer than 2n - 3 stages: of two keys, rows
from one end of the tree meet the one first, and rows from the other end the other, so only one key can do with a single
stage. By the rule, chains and stars take as many, other trees a few more (`benchmarks/hop_stages.py`).

A store is indexed under each key that it is probed by. An index is kept by the first stage that probes it, and the
later stages with that key read it. A step with the empty key joins what no key covers: one slot, every pair compared.
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
    """Rows of `rows`, whose origin is the input number `origin` of the node, probe `targets` (inputs) under a key."""

    origin: int
    rows: Tree
    key: Key
    targets: tuple[int, ...]
    last: bool

    def joined(self, node: Join) -> Join:
        """The tree of what the step yields."""
        return Join((self.rows, *(node.inputs[j] for j in self.targets)))


@dataclass(frozen=True, slots=True)
class HopStage:
    """The steps that one stage runs."""

    key: Key
    steps: tuple[Step, ...]


def is_mixed(query: JoinQuery, node: Join) -> bool:
    """Whether a node has no key that all its inputs share, but some that some of them do."""
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
    """In which order each input of the node meets the others."""
    steps = [step for stage in stages for step in stage.steps]
    return tuple(tuple(j for step in steps if step.origin == i for j in step.targets) for i in range(inputs))


def _walk(query: JoinQuery, node: Join, origin: int, order: ProbeOrder) -> list[Step]:
    """The steps of an input along its order: rows stay where they are as long as that is the place for the next one."""
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
    """The key of the next stage, by the keys under which each input can go on, and the inputs that it has to probe."""
    able = [i for i, keys in enumerate(possible) if keys]
    if not able:
        return ()
    first = min(able, key=lambda i: (-len(left[i]), len(possible[i]), i))
    served = Counter(key for keys in possible for key in keys)
    return max(sorted(possible[first]), key=lambda key: served[key])


def first_user(stages: Sequence[HopStage], key: Key, target: int) -> int:
    """The stage that keeps the index of an input under a key: the first that probes it."""
    return next(i for i, s in enumerate(stages) if s.key == key and any(target in step.targets for step in s.steps))
