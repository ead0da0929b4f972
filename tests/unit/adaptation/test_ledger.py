"""The ledger of groups: upkeep by hand, spills and clean-ups, tables of old and new versions, reports of real runs."""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.adaptation.ledger import GROUP_SCHEMA, GroupLedger, heights
from watersmeet.epoch.task import GroupFigure, SlotReport
from watersmeet.errors import OptionError
from watersmeet.plan.keys import key_name
from watersmeet.plan.partitioning import group_of
from watersmeet.plan.placement import Placement
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.inprocess_frames import pandas_hash
from watersmeet.state.measures import INTERMEDIATE, STATE_ROWS, STORE_BYTES, Counts

PARTITIONS = 16
SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("v", pa.int64())])
NAMES = "abc"
OLD_COLUMNS = ["stage", "key", "group", "slot", "size_bytes", "output", "inter"]


def owed_groups(ledger: GroupLedger) -> int:
    return sum(stage["owedGroups"] for stage in ledger.summary())


def chain(where=("a.x = b.x", "b.y = c.y"), names=NAMES):
    streams = [Stream(name, SCHEMA, None) for name in names]
    select = [f"{name}.{column}" for name in names for column in "xyv"]
    return build_query(streams, where=list(where), within=None, windows={}, select=select)


def plan_of(tree: str = "((a b) c)", where=("a.x = b.x", "b.y = c.y"), names=NAMES) -> JoinPlan:
    return plan_join(chain(where, names), (parse_tree(tree, names),), PARTITIONS)


# Key classes are numbered so that stage 0 of ((a b) c) has key 1, and stage 1 key 0.


def placed(plan: JoinPlan, owners: tuple[int, ...] = (0,) * PARTITIONS) -> Placement:
    """All keys alike; on slot 0, if nothing else is said."""
    return Placement(max(owners) + 1, {plan.key_of_stage(stage): owners for stage in range(plan.stage_count)})


def report(stage: int = 0, slot: int = 0, counts=None, **figures: dict[int, int]) -> SlotReport:
    """Figures are named as `output_1`, of key 1, `local_0`, of stage 0, and `size_0_2`, of store 2 in stage 0."""
    groups = {_figure(*name.split("_")): (list(of), list(of.values())) for name, of in figures.items()}
    return SlotReport(0, stage, slot, (), (), Counts.named(counts or {}), groups)


def _figure(kind: str, of: str, store: str = "-1") -> GroupFigure:
    return GroupFigure(kind, of) if kind in ("output", "inter") else GroupFigure(kind, "", int(of), int(store))


def figure(ledger: GroupLedger, name: str, group: int, stage: int = 0) -> float:
    """What a policy sees of one group; all groups are on slot 0."""
    found = ledger.figures(0, placed(ledger.plan), 1)
    (row,) = np.flatnonzero((found.stage == stage) & (found.group == group))
    return getattr(found, name)[row]


STATE = {"size_0_0": {3: 100, 4: 200}, "size_0_1": {3: 10, 4: 20}}


@pytest.mark.parametrize(
    ("upkeep", "seen"),
    [
        ("cumulative", [8, 8, 12, 12, 18]),
        ("reset", [8, 8, 12, 0, 6]),
        ("ewma", [4, 2, 3, 0, 3]),
    ],
)
def test_upkeep_says_what_becomes_of_a_figure_from_epoch_to_epoch_and_when_the_group_spills(upkeep, seen):
    ledger = GroupLedger(plan_of(), upkeep)
    found = []
    for new in (8, 0, 4, "spill", 6):
        if new == "spill":
            ledger.spilled(0, [3])
            found.append(
                ledger.table(placed(ledger.plan)).filter(pa.compute.field("group") == 3)["upkept_output"][0].as_py()
            )
        else:
            figures = {"output_1": {3: new, 4: 1}, "local_0": {3: 2 * new}, "arrived_0_0": {3: 10 * new}}
            ledger.add([report(**STATE, **figures)])
            found.append(figure(ledger, "output", 3))
            assert figure(ledger, "local", 3) == 2 * found[-1]
            assert figure(ledger, "arrived", 3).tolist() == [10 * found[-1], 0]
    assert found == seen
    assert figure(ledger, "output", 4) == {"ewma": 1 - 0.5**4}.get(upkeep, 4)
    people = ledger.table(placed(ledger.plan)).to_pylist()
    assert {row["group"]: row["output"] for row in people if row["stage"] == 0} == {3: 18, 4: 4}


def test_the_reports_of_all_slots_make_one_epoch():
    ledger = GroupLedger(plan_of(), "ewma")
    ledger.add([report(size_0_0={3: 8}, output_1={3: 8}), report(stage=1, slot=1, output_1={3: 8})])
    assert figure(ledger, "output", 3) == 8


def test_a_spill_leaves_the_same_group_of_another_stage_alone():
    plan = plan_of("(((a b) c) d)", ("a.x = b.x", "b.y = c.y", "a.x = d.x"), "abcd")
    assert [stage.key for stage in plan.stages] == [(1,), (0,), (1,)]
    ledger = GroupLedger(plan, "reset")
    low = report(size_0_0={3: 8}, output_1={3: 2}, local_0={3: 1})
    ledger.add([low, report(stage=2, size_2_0={3: 8}, output_1={3: 3}, local_2={3: 2})])
    assert [figure(ledger, "output", 3, stage) for stage in (0, 2)] == [5, 5]
    ledger.spilled(0, [3])
    assert figure(ledger, "output", 3, stage=2) == 5
    assert figure(ledger, "local", 3, stage=2) == 2
    assert ledger.figures(0, placed(ledger.plan), 1).stage.tolist() == [2]


def test_only_groups_with_active_state_on_the_slot_are_told():
    ledger = GroupLedger(plan_of())
    ledger.add([report(**STATE, output_1={5: 1}), report(stage=1, size_1_1={3: 7})])
    placement = placed(ledger.plan, (0,) * 4 + (1,) * 12)
    first, second, third = (ledger.figures(slot, placement, 9) for slot in range(3))
    assert (first.epoch, first.stage.tolist(), first.group.tolist()) == (9, [0, 1], [3, 3])
    assert first.size.tolist() == [110, 7]
    assert first.sizes.tolist() == [[100, 10], [0, 7]]
    assert second.group.tolist() == [4]
    assert len(third) == 0
    ledger.add([report(size_0_0={4: 50}), report(stage=1)])
    assert len(ledger.figures(0, placement, 10)) == 0
    assert ledger.figures(1, placement, 10).size.tolist() == [50]


def test_an_epoch_that_only_closes_windows_changes_nothing():
    ledger = GroupLedger(plan_of(), "ewma")
    ledger.add([report(**STATE, output_1={3: 8})])
    ledger.add([report(stage=2, size_2_0={3: 1})])
    assert figure(ledger, "output", 3) == 4
    assert figure(ledger, "size", 3) == 110


def test_epochs_without_rows_leave_recent_figures_as_they_are_and_bring_new_sizes():
    ledger = GroupLedger(plan_of(), "ewma")
    ledger.add([report(**STATE, output_1={3: 8}, local_0={3: 4}, arrived_0_0={3: 6}), report(stage=1)])
    for _ in range(50):
        ledger.add([report(size_0_0={3: 40}, output_1={3: 1}), report(stage=1)], with_rows=False)
    assert figure(ledger, "output", 3) == 4
    assert figure(ledger, "local", 3) == 2
    assert figure(ledger, "arrived", 3).tolist() == [3, 0]
    assert figure(ledger, "size", 3) == 40
    assert ledger.summary()[0]["output"] == 8 + 50


def test_a_stage_that_does_not_report_keeps_its_figures():
    ledger = GroupLedger(plan_of(), "ewma")
    ledger.add([report(**STATE, local_0={3: 8}, arrived_0_1={3: 2}), report(stage=1, size_1_0={3: 7})])
    for with_rows in (True, False):
        ledger.add([report(stage=1, size_1_0={3: 9})], with_rows=with_rows)
        assert figure(ledger, "size", 3) == 110
        assert figure(ledger, "size", 3, stage=1) == 9
        assert figure(ledger, "local", 3) == 4
        assert figure(ledger, "arrived", 3).tolist() == [0, 1]
    ledger.add([], with_rows=False)
    assert [row["sizeBytes"] for row in ledger.summary()] == [330, 9]


def test_the_bytes_of_an_intermediate_result_are_those_of_all_stages_though_one_reports_alone():
    ledger = GroupLedger(plan_of("(((a b) c) d)", ("a.x = b.x", "b.y = c.y", "c.v = d.v"), "abcd"), "cumulative")
    low = report(stage=1, counts={"state_rows.(a b)": 10, "store_bytes.(a b)": 400})
    high = report(stage=2, counts={"state_rows.((a b) c)": 10, "store_bytes.((a b) c)": 200})
    key = f"inter_{key_name(ledger.plan.stages[0].key)}"
    ledger.add([report(**STATE, **{key: {3: 6}}), low, high])
    assert figure(ledger, "inter", 3) == 6 * 30
    ledger.add([high], with_rows=False)
    assert figure(ledger, "inter", 3) == 6 * 30


def test_intermediate_results_are_told_in_the_bytes_they_take():
    ledger = GroupLedger(plan_of(), "cumulative")
    counts = {"state_rows.(a b)": 10, "store_bytes.(a b)": 400, "state_rows.c": 5, "store_bytes.c": 5}
    ledger.add([report(**STATE, inter_1={3: 6}), report(stage=1, counts=counts)])
    assert figure(ledger, "inter", 3) == 6 * 40
    ledger.add([report(**STATE)])  # the stored ones have left; their bytes are remembered
    assert figure(ledger, "inter", 3) == 6 * 40


def test_rows_are_had_from_bytes_for_the_stores_that_the_topmost_node_joins():
    ledger = GroupLedger(plan_of("((a b) c)", ("a.x = b.x", "b.x = c.x")))
    labels = ("a", "b", "(a b)", "c")
    counts = {f"state_rows.{label}": 10 for label in labels}
    counts |= {f"store_bytes.{label}": 10 * (n + 1) for n, label in enumerate(labels)}
    sizes = {f"size_0_{store}": {3: 60} for store in range(4)}
    ledger.add([report(counts=counts, **sizes)])
    assert np.array_equal(figure(ledger, "rows", 3), [np.nan, np.nan, 20, 15], equal_nan=True)


def test_stages_without_a_key_or_with_hops_do_not_take_part():
    theta = plan_join(chain(("a.x < b.x",), "ab"), (parse_tree("(a b)", "ab"),), PARTITIONS)
    for plan in (theta, plan_of("(a b c)")):
        ledger = GroupLedger(plan)
        ledger.add([report(**STATE, output_1={3: 8})])
        assert len(ledger.figures(0, placed(ledger.plan), 1)) == 0


def test_the_height_of_a_stage_counts_the_stages_below():
    assert heights(plan_of()) == [0, 1]
    where = ("a.x = b.x", "c.x = d.x", "b.y = c.y", "d.v = e.v")
    assert heights(plan_of("(((a b) (c d)) e)", where, "abcde")) == [0, 0, 1, 2]


def test_closed_generations_are_counted_until_they_are_cleaned():
    ledger = GroupLedger(plan_of())
    ledger.add([report(**STATE)])
    ledger.spilled(0, [3, 4])
    ledger.spilled(0, [3])
    ledger.spilled(1, [3])
    assert owed_groups(ledger) == 3
    assert [row["owedGroups"] for row in ledger.summary()] == [2, 1]
    rows = ledger.table(placed(ledger.plan)).to_pylist()
    assert [(r["stage"], r["group"], r["generations"]) for r in rows] == [(0, 3, 2), (0, 4, 1), (1, 3, 1)]
    ledger.cleaned(0, [3])
    assert owed_groups(ledger) == 2


def written(upkeep: str) -> GroupLedger:
    ledger = GroupLedger(plan_of(), upkeep)
    figures = {"output_1": {3: 8}, "inter_1": {3: 3}, "local_0": {3: 5}, "arrived_0_0": {3: 6, 4: 1}}
    ledger.add([report(**STATE, **figures), report(stage=1, size_1_0={2: 9}, output_0={2: 8}, local_1={2: 8})])
    ledger.spilled(0, [4])
    return ledger


@pytest.mark.parametrize("upkeep", ["cumulative", "reset", "ewma"])
def test_a_table_brings_back_all_but_sizes(upkeep, tmp_path):
    first = written(upkeep)
    table = first.table(placed(plan_of()))
    with pa.OSFile(str(tmp_path / "table"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    second = GroupLedger(plan_of(), upkeep)
    second.restore(pa.ipc.open_file(str(tmp_path / "table")).read_all())
    assert owed_groups(second) == 1
    again = second.table(placed(plan_of()))
    assert table.schema.names == GROUP_SCHEMA.names
    assert again.drop(["size_bytes"]) == table.drop(["size_bytes"])
    for ledger in (first, second):
        ledger.add([report(**STATE, output_1={3: 2}), report(stage=1, size_1_0={2: 9})])
    assert second.table(placed(plan_of())) == first.table(placed(plan_of()))


@pytest.mark.parametrize(("upkeep", "seen"), [("cumulative", 10), ("reset", 10), ("ewma", 1)])
def test_an_old_table_still_serves(upkeep, seen):
    """Version 0.1 wrote the numbers of key classes, in a table without the streams of stages."""
    table = written(upkeep).table(placed(plan_of())).select(OLD_COLUMNS).replace_schema_metadata(None)
    numbers = [key_name(plan_of().stages[stage].key) for stage in table["stage"].to_pylist()]
    table = table.set_column(OLD_COLUMNS.index("key"), "key", pa.array(numbers))
    ledger = GroupLedger(plan_of(), upkeep)
    ledger.restore(table)
    assert owed_groups(ledger) == 0
    ledger.add([report(**STATE, output_1={3: 2})])
    assert figure(ledger, "output", 3) == seen
    assert ledger.summary()[0]["output"] == 10


def test_under_another_upkeep_sums_go_on_from_sums_and_averages_start_anew():
    table = written("ewma").table(placed(plan_of()))
    for upkeep, seen in (("reset", 8), ("ewma", 4), ("cumulative", 8)):
        ledger = GroupLedger(plan_of(), upkeep)
        ledger.restore(table)
        rows = {row["group"]: row["upkept_output"] for row in ledger.table(placed(ledger.plan)).to_pylist()}
        assert rows[3] == seen
    ledger = GroupLedger(plan_of(), "ewma")
    ledger.restore(written("reset").table(placed(plan_of())))
    assert ledger.table(placed(ledger.plan))["upkept_output"].to_pylist() == [0, 0, 0]


def test_a_table_of_another_plan_brings_back_what_belongs_to_keys():
    ledger = GroupLedger(plan_of("(a (b c))"))
    assert [stage.key for stage in ledger.plan.stages] == [(0,), (1,)]
    ledger.restore(written("reset").table(placed(plan_of())))
    assert owed_groups(ledger) == 0
    assert {(r["key"], r["output"], r["local"]) for r in ledger.table(placed(ledger.plan)).to_pylist()} == {
        ("b.y = c.y", 8, 0),
        ("a.x = b.x", 8, 0),
    }


def test_an_unknown_upkeep_is_refused_with_the_nearest():
    with pytest.raises(OptionError, match="did you mean 'cumulative'"):
        GroupLedger(plan_of(), "cummulative")
    with pytest.raises(OptionError, match="known upkeeps: cumulative, reset, ewma"):
        GroupLedger(plan_of(), "?")


# Real runs


def batches(count: int, rows: int, keys: int = 12) -> list[dict[str, pa.Table]]:
    rng = np.random.default_rng(3)
    return [
        {name: pa.table({column: rng.integers(0, keys, rows) for column in "xyv"}, schema=SCHEMA) for name in NAMES}
        for _ in range(count)
    ]


def groups_of(values: np.ndarray) -> np.ndarray:
    return np.bincount(group_of(pandas_hash([pa.array(values)]), PARTITIONS), minlength=PARTITIONS)


def test_figures_of_a_run_on_two_slots_and_two_stages_are_those_of_its_data(tmp_path):
    data = batches(3, 40)
    query = InProcessQuery(chain(), tmp_path, slots=2, partitions=PARTITIONS, trees=[parse_tree("((a b) c)", NAMES)])
    query.coordinator.ledger = GroupLedger(query.plan, "cumulative")
    results = pa.concat_tables([query.run(batch) for batch in data])
    rows = {name: pa.concat_tables([batch[name] for batch in data]) for name in NAMES}
    joined = rows["a"].to_pandas().merge(rows["b"].to_pandas(), on="x", suffixes=("_a", "_b"))
    arrived = {
        0: [groups_of(rows["a"]["x"].to_numpy()), groups_of(rows["b"]["x"].to_numpy())],
        1: [groups_of(joined["y_b"].to_numpy()), groups_of(rows["c"]["y"].to_numpy())],
    }
    output = {0: groups_of(results["b_x"].to_numpy()), 1: groups_of(results["b_y"].to_numpy())}
    local = {0: groups_of(joined["x"].to_numpy()), 1: output[1]}
    seen: set[tuple[int, int]] = set()
    for slot in range(2):
        figures = query.coordinator.ledger.figures(slot, query.manifest.placement, query.manifest.epoch)
        assert len(figures) > 0
        for i, (stage, group) in enumerate(zip(figures.stage.tolist(), figures.group.tolist(), strict=True)):
            assert query.manifest.placement.owners[query.plan.key_of_stage(stage)][group] == slot
            assert figures.height[i] == stage
            assert figures.arrived[i].tolist() == [of[group] for of in arrived[stage]]
            assert figures.rows[i] == pytest.approx(figures.arrived[i], rel=0.1, abs=0.5)
            assert figures.output[i] == output[stage][group]
            assert figures.local[i] == local[stage][group]
            assert figures.size[i] == figures.sizes[i].sum() > 0
            seen.add((stage, group))
        low = figures.stage == 0
        totals = query.manifest.totals
        mean = totals.of(STORE_BYTES, "(a b)") / totals.of(STATE_ROWS, "(a b)")
        assert figures.inter[low] == pytest.approx(figures.local[low] * mean)
    assert seen == {(s, g) for s in (0, 1) for g in range(PARTITIONS) if arrived[s][0][g] + arrived[s][1][g]}


def test_results_of_inner_nodes_arrive_but_only_those_of_the_topmost_are_local(tmp_path):
    data = batches(2, 30)
    query = InProcessQuery(
        chain(("a.x = b.x", "b.x = c.x")), tmp_path, partitions=PARTITIONS, trees=[parse_tree("((a b) c)", NAMES)]
    )
    query.coordinator.ledger = GroupLedger(query.plan, "cumulative")
    results = pa.concat_tables([query.run(batch) for batch in data])
    figures = query.coordinator.ledger.figures(0, query.manifest.placement, 0)
    assert figures.local.sum() == figures.output.sum() == results.num_rows
    assert figures.arrived.sum(axis=0).tolist() == [60, 60, query.manifest.totals.of(INTERMEDIATE), 60]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda table: table.drop_columns(["output"]),
        lambda table: table.set_column(3, "group", pa.array(["x"] * len(table))),
        lambda table: table.set_column(3, "group", pa.array([-(10**6)] * len(table), pa.int32())),
        lambda table: table.set_column(3, "group", pa.nulls(len(table), pa.int32())),
        lambda table: pa.table({"x": [1]}),
        lambda table: pa.table({}),
    ],
)
def test_nothing_is_taken_from_a_table_of_another_shape(spoil):
    table = written("reset").table(placed(plan_of()))
    assert table.schema.names[3] == "group"
    assert len(table)
    ledger = GroupLedger(plan_of(), "reset")
    ledger.restore(spoil(table))
    assert ledger.summary() == GroupLedger(plan_of(), "reset").summary()
