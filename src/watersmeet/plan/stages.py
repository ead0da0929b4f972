"""The physical plan: nodes of the join tree, fused into stages by key, with one exchange between two stages.

A node is keyed by the key classes that all its inputs have a column of. A child with the same key as its parent runs in
the same stage, on the same slot, without an exchange. A child with another key makes a stage of its own, whose results
are sent on within the same micro-batch. A node without a common key, some of whose inputs share one, is probed hop by
hop in several stages (`plan/hops.py`). A node that no key covers runs on one slot, under a constant key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from watersmeet.errors import OptionError
from watersmeet.plan.aggregate import AggregatePlan, OutputMode, plan_aggregate
from watersmeet.plan.frame import Frame, frame_of, time_type_of
from watersmeet.plan.hops import HopStage, first_user, hop_stages, is_mixed
from watersmeet.plan.keys import GROUPS_KEY, Key, node_key
from watersmeet.plan.layout import BUILD, Field, StoreLayout, field_type, lay_out
from watersmeet.plan.nodes import NodePlan, label_of, plan_node
from watersmeet.plan.probe_orders import NO_ORDERS, ProbeOrders
from watersmeet.plan.tree import KEPT, Join, Leaf, Tree, nodes_of, streams_of
from watersmeet.plan.weights import require_weights
from watersmeet.query.logical import JoinQuery, internal_name

CONSTANT_KEY = pa.int8()
"""The type of the one key value of a stage that has no key."""
RESULT_TIME_US = "_result_time"
"""The time of a joined row, in microseconds."""


@dataclass(frozen=True, slots=True)
class Place:
    """An input of a stage."""

    stage: int
    input: int


@dataclass(frozen=True, slots=True)
class Index:
    """A store of a mixed node under the key of a stage that probes it."""

    layout: StoreLayout
    arrivals: int | None
    """The input of the stage that has its new rows; None if no probe of the stage may see them."""
    kept_in: tuple[int, int]
    """The stage that keeps it, and its number among the stores of that stage."""


@dataclass(frozen=True, slots=True)
class Target:
    """An index of the stage, and whether its new rows are probed too."""

    index: int
    with_arrivals: bool


@dataclass(frozen=True, slots=True)
class HopPlan:
    """Rows of one input of a stage probe some of its indexes. The first input of `node` is these rows; the others are
    the indexes."""

    node: NodePlan
    rows: int
    targets: tuple[Target, ...]
    feeds: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Nodes that share a key, children first, and the inputs that get the results; or hops of a mixed node."""

    key: Key
    key_types: tuple[pa.DataType, ...]
    inputs: tuple[StoreLayout, ...]
    shapes: tuple[tuple[NodePlan, ...], ...]
    """The nodes by slot: slot s runs shape s modulo their number."""
    feeds: tuple[Place, ...]
    """The inputs that get the results of the last node; none if they are the query's. Hops have their own."""
    node: Join
    """The topmost node of the stage, or the mixed node whose hops it runs."""
    hops: tuple[HopPlan, ...] = ()
    indexes: tuple[Index, ...] = ()
    is_silent: bool = False  # arriving rows are only stored: the topmost node, or the hops, join nothing
    successors: tuple[tuple[NodePlan, ...], ...] = ()
    """The shapes of another plan to which this one hands its groups over (`plan/handover.py`)."""

    @property
    def is_built(self) -> bool:
        """Whether the stage belongs to a plan that is built beside the running one."""
        return self.inputs[0].track == BUILD

    @property
    def is_marked(self) -> bool:
        """Whether the stage runs beside those of a new plan, until its old rows expire."""
        return self.inputs[0].is_marked

    def shape(self, slot: int) -> tuple[NodePlan, ...]:
        return self.shapes[slot % len(self.shapes)]

    def stores(self, number: int, slot: int) -> list[StoreLayout]:
        """The stores that a slot keeps in this stage, whose number in the plan is given."""
        if self.hops:
            return [index.layout for index in self.indexes if index.kept_in[0] == number]
        return [layout for node in self.shape(slot) for layout in node.inputs] + self.added(slot)

    def added(self, slot: int) -> list[StoreLayout]:
        """The stores of a slot that only the plan has to which this one hands its groups over."""
        own = {layout.name for node in self.shape(slot) for layout in node.inputs}
        return [layout for node in self.successor(slot) for layout in node.inputs if layout.name not in own]

    def successor(self, slot: int) -> tuple[NodePlan, ...]:
        return self.successors[slot % len(self.successors)] if self.successors else ()

    @property
    def sends_to(self) -> frozenset[int]:
        """The stages that take rows from this one."""
        feeds = [*self.feeds, *(place for hop in self.hops for place in hop.feeds)]
        return frozenset(place.stage for place in feeds)

    @property
    def key_text(self) -> str:
        """The key, by its columns."""
        return self.inputs[0].key

    @property
    def on_one_slot(self) -> bool:
        return not self.key


@dataclass(frozen=True, slots=True)
class OutputColumn:
    name: str
    field: Field
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The plan of a join, as slots get it. It holds no state."""

    trees: tuple[Join, ...]
    stages: tuple[StagePlan, ...]
    frame: Frame
    output: tuple[OutputColumn, ...]
    partitions: int
    delays_us: tuple[int, ...]
    names: tuple[str, ...]
    aggregate: AggregatePlan | None = None
    orders: ProbeOrders = field(default_factory=dict)
    """The probe orders of the nodes whose orders differ from the tree's."""
    towards: JoinPlan | None = None
    """The plan that is built beside this one: the stages of its state come first (`plan/transition.py`)."""
    since: JoinPlan | None = None
    """The plan before this one, while stores of this one lack rows (`plan/completion.py`)."""

    @property
    def build_count(self) -> int:
        return sum(stage.is_built for stage in self.stages)

    @property
    def stage_count(self) -> int:
        """The number of stages of the join, plus one for the aggregation."""
        return len(self.stages) + (self.aggregate is not None)

    @property
    def windowed(self) -> bool:
        return self.frame.time_type is not None

    def places(self, stream: int) -> list[Place]:
        """The inputs that get a stream's rows. They are counted at the first, which is in the running plan."""
        found = _places([stage.inputs for stage in self.stages], *(Leaf(stream, kept) for kept in KEPT))
        return sorted(found, key=lambda place: self.stages[place.stage].is_built)

    def layouts(self, stage: int, slot: int) -> list[StoreLayout]:
        """The stores that a slot keeps in a stage, by their number there."""
        if stage == len(self.stages):
            assert self.aggregate is not None
            return [self.aggregate.layout]
        return self.stages[stage].stores(stage, slot)

    def key_of_stage(self, stage: int) -> str:
        """The key that places the rows of a stage on slots, as text."""
        return self.stages[stage].key_text if stage < len(self.stages) else GROUPS_KEY

    def name_of_stage(self, stage: int) -> str:
        """The name of a stage by its contents. Hop stages of one node that have the same key share a name."""
        if stage == len(self.stages):
            return GROUPS_KEY
        streams = sorted(self.names[stream] for stream in streams_of(self.stages[stage].node))
        track = f" ({BUILD})" if self.stages[stage].is_built else ""
        return f"{' '.join(streams)} by {self.key_of_stage(stage)}{track}"

    def carrier(self, stage: int) -> int:
        """The stage that carries the reports of a stage to the driver."""
        return min(self.stages[stage].sends_to, default=len(self.stages) - 1)

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of joined rows: results, or the rows to aggregate."""
        return pa.schema([pa.field(column.name, column.type) for column in self.output])

    @property
    def to_group(self) -> pa.Schema:
        """The schema of joined rows whose group keys Spark computes: the result time and the columns."""
        return pa.schema([pa.field(RESULT_TIME_US, pa.int64()), *self.output_schema])


def plan_join(
    query: JoinQuery,
    trees: tuple[Join, ...],
    partitions: int,
    mode: OutputMode | None = None,
    orders: ProbeOrders = NO_ORDERS,
) -> JoinPlan:
    """The plan for a tree; with several trees, slots take them in turn, and they may differ only within stages."""
    require_weights(query, trees[0])
    drafts = [_draft(query, tree, orders) for tree in trees]
    first = drafts[0]
    if any(exchanges(other) != exchanges(first) for other in drafts[1:]):
        raise _different_stages(query, trees)
    stages = tuple(replace(s, shapes=tuple(draft[i].shapes[0] for draft in drafts)) for i, s in enumerate(first))
    time_type = time_type_of(query)
    frame = frame_of([(stage.key_types, stage.inputs) for stage in stages], time_type)
    return JoinPlan(
        trees=trees,
        stages=stages,
        frame=frame,
        output=tuple(OutputColumn(internal_name(ref), ref, field_type(query, ref)) for ref in query.read_columns),
        partitions=partitions,
        delays_us=tuple(stream.delay_us for stream in query.streams),
        names=tuple(stream.name for stream in query.streams),
        aggregate=plan_aggregate(query, trees[0], len(stages), time_type, mode),
        orders=orders,
    )


@dataclass(frozen=True, slots=True)
class _Sketch:
    """A stage before the numbers of the other stages are known."""

    root: Join
    key: Key
    inputs: tuple[Tree, ...]
    hops: HopStage | None = None


def _draft(query: JoinQuery, tree: Join, orders: ProbeOrders) -> list[StagePlan]:
    """The stages of one tree, in the order they run."""
    roots = _stage_roots(query, tree)
    sketches = [sketch for root in roots for sketch in _sketches(query, root, roots, orders)]
    inputs = [tuple(lay_out(query, t, s.key, label_of(query, t)) for t in s.inputs) for s in sketches]
    stages = []
    for number, sketch in enumerate(sketches):
        types = tuple(query.classes[i].type for i in sketch.key) or (CONSTANT_KEY,)
        feeds = tuple(_places(inputs, sketch.root))
        if sketch.hops is None:
            nodes = _nodes(query, sketch, orders)
            stages.append(StagePlan(sketch.key, types, inputs[number], (nodes,), feeds, sketch.root))
        else:
            first = next(i for i, other in enumerate(sketches) if other.root == sketch.root)
            hops, indexes = _hops(query, sketches, first, number, inputs)
            stages.append(StagePlan(sketch.key, types, inputs[number], ((),), (), sketch.root, hops, indexes))
    return stages


def _sketches(query: JoinQuery, root: Join, roots: Sequence[Join], orders: ProbeOrders) -> list[_Sketch]:
    if not is_mixed(query, root):
        return [_Sketch(root, node_key(query, root), _in_order(_stage_inputs(root, roots)))]
    stages = hop_stages(query, root, orders.get(root))
    sketches = []
    for number, stage in enumerate(stages):
        trees = [step.rows for step in stage.steps]
        for step in stage.steps:
            for j in step.targets:
                if j < step.origin or first_user(stages, stage.key, j) == number:
                    trees.append(root.inputs[j])
        sketches.append(_Sketch(root, stage.key, _in_order(list(dict.fromkeys(trees))), stage))
    return sketches


def _in_order(trees: Sequence[Tree]) -> tuple[Tree, ...]:
    return tuple(sorted(trees, key=lambda tree: sorted(streams_of(tree))))


def _places(inputs: Sequence[Sequence[StoreLayout]], *trees: Tree) -> list[Place]:
    """The inputs of stages that take the rows of one of some trees."""
    return [
        Place(stage, number)
        for stage, layouts in enumerate(inputs)
        for number, layout in enumerate(layouts)
        if layout.tree in trees
    ]


def _hops(
    query: JoinQuery, sketches: Sequence[_Sketch], first: int, number: int, inputs: Sequence[Sequence[StoreLayout]]
) -> tuple[tuple[HopPlan, ...], tuple[Index, ...]]:
    """The hops of one stage of a mixed node, whose stages begin with number `first`, and the indexes they probe."""
    sketch = sketches[number]
    node, here = sketch.root, sketch.hops
    assert here is not None
    stages = [other.hops for other in sketches if other.root == node and other.hops is not None]
    probed = list(dict.fromkeys(j for step in here.steps for j in step.targets))
    indexes = []
    for j in probed:
        keeper = first_user(stages, here.key, j)
        kept = dict.fromkeys(
            t for s in stages[keeper].steps for t in s.targets if first_user(stages, here.key, t) == keeper
        )
        arrivals = [place.input for place in _places(inputs, node.inputs[j]) if place.stage == number]
        layout = lay_out(query, node.inputs[j], here.key, label_of(query, node.inputs[j]))
        indexes.append(Index(layout, arrivals[0] if arrivals else None, (first + keeper, list(kept).index(j))))
    hops = []
    for step in here.steps:
        tree = step.joined(node)
        count = len(tree.inputs)
        plan = plan_node(query, tree, here.key, children=[None] * count, stage_inputs=[None] * count, first_store=0)
        hops.append(
            HopPlan(
                plan,
                sketch.inputs.index(step.rows),
                tuple(Target(probed.index(j), with_arrivals=j < step.origin) for j in step.targets),
                tuple(_places(inputs, node if step.last else tree)),
            )
        )
    return tuple(hops), tuple(indexes)


def exchanges(stages: Sequence[StagePlan]) -> list[object]:
    """The exchanges of all stages (fields and keys), which must be equal on all slots. Shapes inside a stage may
    differ."""
    return [
        (
            s.key,
            s.feeds,
            [(hop.rows, hop.targets, hop.feeds) for hop in s.hops],
            [(streams_of(layout.tree), layout.sources, layout.trail) for layout in s.inputs],
        )
        for s in stages
    ]


def _stage_roots(query: JoinQuery, tree: Join) -> list[Join]:
    """The topmost node of every stage, inner stages first; a mixed node has stages of its own."""
    parents = {child: node for node in nodes_of(tree) for child in node.inputs if isinstance(child, Join)}
    return [
        n
        for n in nodes_of(tree)
        if n not in parents
        or is_mixed(query, n)
        or is_mixed(query, parents[n])
        or node_key(query, parents[n]) != node_key(query, n)
    ]


def _stage_inputs(root: Join, roots: Sequence[Join]) -> list[Tree]:
    found: list[Tree] = []
    for child in root.inputs:
        if isinstance(child, Leaf) or child in roots:
            found.append(child)
        else:
            found += _stage_inputs(child, roots)
    return found


def _nodes(query: JoinQuery, sketch: _Sketch, orders: ProbeOrders) -> tuple[NodePlan, ...]:
    inputs = sketch.inputs
    outside = {node for tree in inputs if isinstance(tree, Join) for node in nodes_of(tree)}
    members = [node for node in nodes_of(sketch.root) if node not in outside]
    index = {node: i for i, node in enumerate(members)}
    plans: list[NodePlan] = []
    store = 0
    for node in members:
        plans.append(
            plan_node(
                query,
                node,
                sketch.key,
                children=[index.get(child) if isinstance(child, Join) else None for child in node.inputs],
                stage_inputs=[inputs.index(child) if child in inputs else None for child in node.inputs],
                first_store=store,
                orders=orders,
            )
        )
        store += len(node.inputs)
    return tuple(plans)


def _different_stages(query: JoinQuery, trees: tuple[Join, ...]) -> OptionError:
    texts = " | ".join(label_of(query, tree) for tree in trees)
    return OptionError(
        f"option plan '{texts}' gives slots different exchanges",
        hint="plans of different slots may differ only within one key class",
        error_class="INVALID_PLAN",
    )
