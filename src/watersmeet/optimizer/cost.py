"""The cost of a join tree: CPU seconds per second and bytes of state, per slot (O1; Zhu 2006, chapter 4).

The paper's formulas for three streams, generalised to any tree, windows and row widths. The work of every node:

| work, each second                           | rows                                                  | price        |
|---------------------------------------------|-------------------------------------------------------|--------------|
| store arriving rows, expire old ones        | found(X) for every input X                            | insert,delete|
| join pairs                                  | found(X u Y1, X) + found(X u Y1 u Y2, X) + ... along  | join         |
|                                             | the probe order of every input X                      |              |
| probe a store (ours; 0 in the paper)        | found(X) + found(X u Y1, X) + ..., one fewer          | probe        |
| look up keys (ours)                         | found(X) for every other input of the node            | lookup       |
| send to another stage (ours)                | streams once; results where the parent has another    | exchange     |
|                                             | key; in a mixed node, rows that go on under another   |              |
| run a stage, keep a store (ours)            | each micro-batch, whatever it brings                  | stage, store |

The cost of a node depends only on the streams of its inputs, not on the nodes above it, nor on how its inputs were
joined. There is one exception: a node and its parent with the same key are one stage, without an exchange between them.

Memory is rows times bytes, for the stores of all nodes. There are two models of what a store holds:

| keeping  | rows of a store of S        | bytes of a row     | indexes                                               |
|----------|-----------------------------|--------------------|-------------------------------------------------------|
| `engine` | found(S) x the time it is   | the store's layout | one for every key that a store of a mixed node is     |
|          | kept (`kept_rows.py`)       |                    | probed under                                          |
| `paper`  | live(S)                     | its parts together | one                                                   |

An intermediate row is live while the windows of its parts overlap, and there are live(S) of them at any moment. But
this engine keeps it for the shortest of these windows. With one window for all streams, it keeps |S| times as many.

Deviations, found by measuring 36 random queries (`benchmarks/cost_model.py`, which also fits the prices):

- Most of a micro-batch of some thousand rows is spent per stage and per store, not per row: two constants.
- A row looks up its key in all other inputs of its node at once. Beside that, a pair or a stored row costs little, and
  C_d is near zero, because rows expire by whole segments.
- Non-key predicates are tested pair by pair, so pairs are counted before them.
- A mixed node pays for the stages of its probe orders. It has the best orders, or those that the engine makes for few
  stages (`hop_orders.py`), whichever cost less.
- Memory is the maximum, by the engine's own rules of expiry and layout (`kept_rows.py`).

A node without a key runs on one slot; all other work is spread over the slots, evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from watersmeet.optimizer.combinations_met import met_by_hops, tested_along
from watersmeet.optimizer.hop_orders import hop_walks
from watersmeet.optimizer.join_graph import JoinGraph, Streams, as_streams
from watersmeet.optimizer.kept_rows import kept_bytes
from watersmeet.optimizer.mjoin_ordering import EXACT_INPUTS_MAX, Probing, order_probes, probing
from watersmeet.optimizer.shapes import Inputs, Nodes, States, nodes_in
from watersmeet.optimizer.stage_keys import Key, NodeKey, Walks, node_key, walks_along
from watersmeet.plan.probe_orders import ProbeOrder
from watersmeet.plan.tree import Join, nodes_of, streams_of
from watersmeet.query.logical import STREAMS_MAX

SAME = 1 + 1e-9
"""More is more than rounding."""
Keeping: TypeAlias = Literal["engine", "paper"]


@dataclass(frozen=True, slots=True)
class Prices:
    """CPU seconds to store a row, expire a row, join a pair, probe with a row, exchange a row; for a stage in each
    micro-batch; to look up a key in a store; and for a store in each micro-batch. The first three are the paper's C_i,
    C_d and C_j. The engine measures them as it runs, with all that storing and joining costs."""

    insert_s: float
    delete_s: float
    join_s: float
    probe_s: float = 0.0
    exchange_s: float = 0.0
    stage_s: float = 0.0
    lookup_s: float = 0.0
    store_s: float = 0.0


PAPER_PRICES = Prices(1.0, 1.0, 1.0)
"""The paper gives no figures, so its formulas are evaluated with one unit for each."""
DEFAULT_PRICES = Prices(
    insert_s=1.2e-7, delete_s=0.0, join_s=1.5e-7, exchange_s=3.4e-7, stage_s=3.1e-3, lookup_s=4.2e-7, store_s=9.8e-3
)
"""Prices of this engine in process, fitted by `python -m benchmarks.cost_model`, which fits them again in each run and
judges these. Single prices differ by a factor of two or three between fits; the costs of plans hardly do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A tree, as the set of its intermediate states, with its cost for a slot."""

    states: States
    cpu_s: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class NodeCost:
    """The cost of a node for a slot, without the nodes above it, and its probe orders."""

    streams: Streams
    orders: tuple[ProbeOrder, ...]
    cpu_s: float
    memory_bytes: float
    key: NodeKey


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices applied to a join graph. It caches the costs of nodes: a search meets few new nodes per tree."""

    graph: JoinGraph
    prices: Prices = DEFAULT_PRICES
    slots: int = 1
    keeping: Keeping = "engine"
    cartesian: bool = True
    """Whether probe orders and trees may join streams that nothing links."""
    batches_per_s: float = 1.0
    """Micro-batches a second. Each has a fixed cost for every stage and every store."""
    exact_inputs_max: int = EXACT_INPUTS_MAX
    """Nodes with more inputs get their probe orders by rank, which is optimal for acyclic graphs only."""
    _nodes: dict[Inputs, NodeCost] = field(default_factory=dict, init=False, repr=False, compare=False)
    _kept: dict[tuple[Streams, float], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_distributed(self) -> bool:
        """Whether keys affect the cost."""
        return bool(self.prices.exchange_s or self.prices.stage_s or self.slots > 1 or self.keeping == "engine")

    def node(self, inputs: Inputs) -> NodeCost:
        """The cost of a node with the best known probe orders."""
        known = self._nodes.get(inputs)
        if known is None:
            known = self._nodes[inputs] = self._node(inputs)
        return known

    def _node(self, inputs: Inputs) -> NodeCost:
        key = self.key_of(inputs)
        return self._mixed_node(inputs, key) if key.is_mixed else _node_cost(self, inputs, self._probes(inputs), key)

    def _mixed_node(self, inputs: Inputs, key: NodeKey) -> NodeCost:
        """With the best probe orders, or with the engine's own. With more streams than a join can have, only the
        engine's own are used: finding the stages of others takes milliseconds for each node."""
        if self.keeping == "paper":
            return self._ordered_node(inputs, key)
        by_rule = _mixed_cost(self, inputs, hop_walks(self.graph, inputs), key)
        is_large = len(self.graph.streams) > STREAMS_MAX
        return by_rule if is_large else _cheaper(self._ordered_node(inputs, key), by_rule)

    def _ordered_node(self, inputs: Inputs, key: NodeKey) -> NodeCost:
        return _mixed_cost(self, inputs, walks_along(self.graph, inputs, self._probes(inputs).orders), key)

    def _probes(self, inputs: Inputs) -> Probing:
        return order_probes(self.graph, inputs, cartesian=self.cartesian, exact_inputs_max=self.exact_inputs_max)

    def plan(self, states: States) -> Plan:
        """The cost of a tree."""
        return self.plan_of(nodes_in(states, self.graph.everyone))

    def plan_of(self, nodes: Nodes) -> Plan:
        """The cost of a tree, by its nodes."""
        return self._plan_with({streams: self.node(inputs) for streams, inputs in nodes.items()}, nodes)

    def _plan_with(self, costs: Mapping[Streams, NodeCost], nodes: Nodes) -> Plan:
        """The cost of a tree, by that of its nodes."""
        everyone, is_distributed = self.graph.everyone, self.is_distributed
        cpu_s, memory = self.joint_cpu_s(costs[everyone], None) if is_distributed else 0.0, 0.0
        for streams, node in costs.items():
            cpu_s += node.cpu_s
            memory += node.memory_bytes
            if is_distributed:
                for each in nodes[streams]:
                    if each in costs:
                        cpu_s += self.joint_cpu_s(costs[each], node)
        return Plan(frozenset(costs) - {everyone}, cpu_s, memory)

    def allows(self, streams: Streams) -> bool:
        """Whether a node may join these streams: any, or those that predicates connect."""
        graph = self.graph
        return self.cartesian or graph.connected(streams) or not graph.connected(graph.everyone)

    def plan_with_orders(self, tree: Join, orders: Mapping[Join, tuple[ProbeOrder, ...]]) -> Plan:
        """The cost of a tree whose nodes have these probe orders, by number of input."""
        costs: dict[Streams, NodeCost] = {}
        nodes: dict[Streams, Inputs] = {}
        for node in nodes_of(tree):
            inputs = tuple(as_streams(streams_of(child)) for child in node.inputs)
            key = self.key_of(inputs)
            if key.is_mixed:
                cost = _mixed_cost(self, inputs, self._walks(inputs, orders[node]), key)
            else:
                cost = _node_cost(self, inputs, probing(self.graph, inputs, orders[node]), key)
            costs[cost.streams], nodes[cost.streams] = cost, inputs
        return self._plan_with(costs, nodes)

    def _walks(self, inputs: Inputs, orders: tuple[ProbeOrder, ...]) -> Walks:
        """The walks along given orders. If these are the engine's own orders, so are the stages."""
        own = hop_walks(self.graph, inputs)
        return own if own.orders == orders else walks_along(self.graph, inputs, orders)

    def joint_cpu_s(self, node: NodeCost, parent: NodeCost | None) -> float:
        """The cost of a node that depends on its parent: its stage and the exchange of its results, unless both share a
        stage."""
        if parent is not None and node.key.fuses_with(parent.key):
            return 0.0
        cpu_s = 0.0 if node.key.is_mixed else self.prices.stage_s * self.batches_per_s
        if parent is not None and not parent.key.is_mixed:
            share = self.share(parent.key.key)
            cpu_s += share * self.graph.found(node.streams) * self.prices.exchange_s
        return cpu_s

    def kept_bytes(self, streams: Streams, stage: Streams | None = None) -> float:
        """Bytes of a store, on all slots together: in a stage that has these streams, or in any."""
        graph = self.graph
        if stage is None or graph.has_common_class or self.keeping == "paper":
            longest_s = graph.window_s_max
        else:
            longest_s = graph.longest_s(stage)
        known = self._kept.get((streams, longest_s))
        if known is None:
            if self.keeping == "engine":
                known = kept_bytes(graph, streams, self.batches_per_s, longest_s)
            else:
                known = graph.live(streams) * graph.row_bytes(streams)
            self._kept[streams, longest_s] = known
        return known

    def key_of(self, inputs: Inputs) -> NodeKey:
        """The key of a node, where keys affect the cost."""
        return node_key(self.graph, inputs) if self.is_distributed else NodeKey(0, is_mixed=False)

    def share(self, key: Key) -> float:
        """A slot's share of the work under a key."""
        return 1 / self.slots if key else 1.0


def _cheaper(ordered: NodeCost, by_rule: NodeCost) -> NodeCost:
    """The node with probe orders of its own, if that saves CPU and keeps no more indexes."""
    is_cheaper = ordered.cpu_s < by_rule.cpu_s and ordered.memory_bytes <= by_rule.memory_bytes * SAME
    return ordered if is_cheaper else by_rule


def _node_cost(model: CostModel, inputs: Inputs, probes: Probing, key: NodeKey) -> NodeCost:
    graph, prices, everything = model.graph, model.prices, _together(inputs)
    cpu_s = memory = 0.0
    joined: Sequence[float] = probes.met
    if graph.others and model.keeping == "engine":
        joined = tested_along(graph, inputs, probes.orders).sum(axis=1).tolist()
    for each, met, pairs in zip(inputs, probes.met, joined, strict=True):
        cpu_s += graph.found(each) * (prices.insert_s + prices.delete_s + (len(inputs) - 1) * prices.lookup_s)
        probing_rows = met - graph.live(everything) + graph.live(each)
        cpu_s += graph.arrivals(each) * (pairs * prices.join_s + probing_rows * prices.probe_s)
        if each.bit_count() == 1:
            cpu_s += graph.found(each) * prices.exchange_s
        memory += model.kept_bytes(each, everything)
    share = model.share(key.key) if model.is_distributed else 1.0
    cpu_s = cpu_s * share + len(inputs) * prices.store_s * model.batches_per_s
    return NodeCost(everything, probes.orders, cpu_s, memory * share, key)


def _mixed_cost(model: CostModel, inputs: Inputs, walks: Walks, key: NodeKey) -> NodeCost:
    """The cost of a mixed node: rows are sent from key to key, and stores are indexed under each key. Indexes under one
    key are in one stage, which holds if keys link all inputs."""
    graph, prices, batches_per_s = model.graph, model.prices, model.batches_per_s
    cpu_s = prices.stage_s * walks.stages * batches_per_s + _hops_cpu_s(model, inputs, walks)
    probed: dict[Streams, set[Key]] = {each: set() for each in inputs}
    together: dict[Key, Streams] = {}
    begins: dict[Streams, Key] = {}
    for hop in walks.hops:
        target = inputs[hop.target]
        probed[target].add(hop.key)
        together[hop.key] = together.get(hop.key, 0) | target
        if hop.is_new:
            begins[hop.origins] = hop.key
    memory = 0.0
    for streams, keys in probed.items():
        indexed = sum(map(model.share, keys))
        sent = indexed if begins[streams] in keys else indexed + model.share(begins[streams])
        if model.keeping == "engine":
            stored = indexed
            memory += sum([model.share(by) * model.kept_bytes(streams, together[by]) for by in keys])
        else:
            stored = 1 / model.slots
            memory += model.kept_bytes(streams) * stored
        cpu_s += graph.found(streams) * (sent * prices.exchange_s + stored * (prices.insert_s + prices.delete_s))
        cpu_s += len(keys) * prices.store_s * batches_per_s
    return NodeCost(_together(inputs), walks.orders, cpu_s, memory, key)


def _hops_cpu_s(model: CostModel, inputs: Inputs, walks: Walks) -> float:
    """Rows that probe, are looked up, joined and sent on, over all hops."""
    graph, prices = model.graph, model.prices
    origins, held, keys, targets, is_sent, is_new = zip(*walks.hops, strict=True)
    rates = np.array([graph.arrivals(each) * model.share(by) for each, by in zip(origins, keys, strict=True)])
    rows, tested = met_by_hops(graph, held, [inputs[j] for j in targets])
    sent = rows[np.maximum.accumulate(np.array(is_sent) * np.arange(len(rows)))]
    work = rows * prices.probe_s + tested * prices.join_s + sent * prices.lookup_s
    work += rows * np.greater(is_sent, is_new) * prices.exchange_s
    return float(rates @ work)


def _together(inputs: Inputs) -> Streams:
    everything = 0
    for each in inputs:
        everything |= each
    return everything
