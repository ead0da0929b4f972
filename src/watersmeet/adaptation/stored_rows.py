"""How many rows the stores of another plan would hold, by what the running query stores and has counted.

| store                             | rows                                                                             |
|-----------------------------------|----------------------------------------------------------------------------------|
| that the running plan has         | as counted now                                                                   |
| of results, that it does not have | the product of its inputs' rows and of the selectivities of the keys of its node |

The selectivity of a key is that of all pairs of rows that the query has compared under it. Where a key has not been
compared yet, results are taken to be as many as the rows of the largest input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from watersmeet.epoch.pairs import pair_name
from watersmeet.plan.layout import StoreName
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.stages import JoinPlan
from watersmeet.plan.tree import Tree, nodes_of, streams_of
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import MATCHES, PAIRS, Counts

Key = tuple[int, ...]


def rows_of_stores(plan: JoinPlan, last: Manifest, new: JoinPlan) -> Callable[[frozenset[int]], float]:
    """By streams, the rows of a store of either plan, over all slots."""
    known = _stored(plan, last)
    selectivity = selectivities(plan, last.counters)
    keys = _keys_by_tree(new)
    found: dict[frozenset[int], float] = {frozenset({s}): known.get(frozenset({s}), 0.0) for s in range(len(new.names))}
    for node in [node for tree in new.trees for node in nodes_of(tree)]:  # children first
        streams = frozenset(streams_of(node))
        inputs = [found[frozenset(streams_of(each))] for each in node.inputs]
        found.setdefault(streams, known.get(streams, _joined(inputs, keys.get(node, []), selectivity)))
    return found.__getitem__


def selectivities(plan: JoinPlan, counted: Counts) -> dict[Key, float]:
    """By key, the part of the compared pairs that had equal keys."""
    pairs: Counter[Key] = Counter()
    equal: Counter[Key] = Counter()
    for node in _nodes(plan):
        for left, right in combinations(node.inputs, 2):
            name = pair_name(left.label, right.label)
            pairs[tuple(node.key)] += counted.of(PAIRS, name)
            equal[tuple(node.key)] += counted.of(MATCHES, name)
    return {key: max(equal[key], 0.5) / met for key, met in pairs.items() if met}


def _joined(inputs: Sequence[float], keys: Sequence[Key], selectivity: dict[Key, float]) -> float:
    """The results of a node. With several keys, each joins one more input; the last joins the rest."""
    if not keys or any(key not in selectivity for key in keys):
        return max(inputs)
    rows = inputs[0]
    for number, more in enumerate(inputs[1:]):
        rows *= more * selectivity[keys[min(number, len(keys) - 1)]]
    return rows


def _stored(plan: JoinPlan, last: Manifest) -> dict[frozenset[int], float]:
    """The rows that stores of the same streams hold now; a stream may be stored under several keys."""
    found: dict[frozenset[int], Counter[StoreName]] = {}
    for slot in range(last.slots):
        for layout in {
            each.name: each for stage in range(len(plan.stages)) for each in plan.layouts(stage, slot)
        }.values():
            rows = sum(extent.rows for extent in last.extents[slot].get(layout.name, ()))
            found.setdefault(frozenset(streams_of(layout.tree)), Counter())[layout.name] += rows
    return {streams: float(max(of_store.values())) for streams, of_store in found.items()}


def _keys_by_tree(plan: JoinPlan) -> dict[Tree, list[Key]]:
    """The keys under which the inputs of a node meet."""
    found: dict[Tree, list[Key]] = {}
    for stage in plan.stages:
        for node in (n for shape in stage.shapes for n in shape):
            found[node.tree] = [tuple(node.key)]
        for hop in stage.hops:
            keys = found.setdefault(stage.node, [])
            keys += [tuple(hop.node.key)] if tuple(hop.node.key) not in keys else []
    return found


def _nodes(plan: JoinPlan) -> Iterator[NodePlan]:
    for stage in plan.stages:
        yield from (node for shape in stage.shapes for node in shape)
        yield from (hop.node for hop in stage.hops)
