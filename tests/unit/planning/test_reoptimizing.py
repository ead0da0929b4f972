"""The optimiser of a running query, over real epochs in process."""

from collections import Counter, deque
from itertools import islice

import pyarrow as pa
import pytest

from tests.drifting import MANY, NAMES, RIGHT, WINDOW, X_OFTEN, Y_OFTEN, batches, drifting_query, reoptimizer, started
from tests.oracle import canonical
from watersmeet.adaptation.coordinator import MOVING_MARK
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.plan.fingerprint import plan_text
from watersmeet.plan.stages import plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.query.logical import Stream, build_query


def kinds(engine) -> Counter:
    return Counter(event["kind"] for event in recorded(engine))


def recorded(engine) -> list[dict]:
    """All events of the run, from the manifests that the driver wrote."""
    return engine.recorded


@pytest.fixture
def run(tmp_path):
    """Runs a query over phases, and keeps all events."""

    def act(phases, *, tree=RIGHT[X_OFTEN], seed=0, rows=60, adapts=None, name="checkpoint", **setup):
        engine = started(tmp_path / name, tree, adapts, **setup)
        engine.recorded, engine.told_plans = [], []
        commit = engine.checkpoint.commit

        def committing(manifest):
            engine.recorded += manifest.events
            return commit(manifest)

        engine.checkpoint.commit = committing
        results = []
        for batch in batches(phases, rows, seed):
            results.append(engine.run(batch))
            engine.told_plans.append(plan_text(engine.plan))
        engine.all_results = pa.concat_tables(results or [engine.slots.nothing_shown()])
        return engine

    return act


PHASES = [(X_OFTEN, 30), (Y_OFTEN, 30)]


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_swap_migrates_once_within_a_window_and_loses_no_result(run, slots):
    engine = run(PHASES, adapts=reoptimizer(slots=slots), slots=slots)
    fixed = run(PHASES, name="fixed", slots=slots)
    assert canonical(engine.all_results) == canonical(fixed.all_results)
    changes = [i for i in range(1, 60) if engine.told_plans[i] != engine.told_plans[i - 1]]
    assert len(changes) == 1
    assert 30 < changes[0] <= 30 + WINDOW
    assert engine.told_plans[-1] == RIGHT[Y_OFTEN]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_stationary_data_never_migrates(run, seed):
    engine = run([((40, 60), 100)], adapts=reoptimizer(), seed=seed)
    assert set(engine.told_plans) == {RIGHT[X_OFTEN]} or len(set(engine.told_plans)) == 1
    assert kinds(engine)["migrate"] == 0


def test_phases_shorter_than_the_window_do_not_make_it_thrash(run):
    engine = run([(X_OFTEN, 5), (Y_OFTEN, 5)] * 12, adapts=reoptimizer())
    assert kinds(engine)["migrate"] <= 2


def test_decisions_can_be_read_also_those_not_to_migrate(run):
    engine = run(PHASES, adapts=reoptimizer())
    told = [event for event in recorded(engine) if event["kind"] == "reoptimize"]
    assert [event["verdict"] for event in told] == ["keep", "wait", "migrate", "keep"]
    assert told[0]["reason"] == "the running plan is the best"
    assert "not for long enough yet" in told[1]["reason"]
    assert (told[2]["plan"], told[2]["bestPlan"]) == (RIGHT[X_OFTEN], RIGHT[Y_OFTEN])
    (migration,) = [event for event in recorded(engine) if event["kind"] == "migrate"]
    assert migration["reason"] == told[2]["reason"]
    assert migration["predictedGain"] > 0
    (outcome,) = [event for event in recorded(engine) if event["kind"] == "migrationOutcome"]
    assert outcome["plan"] == RIGHT[Y_OFTEN]
    assert outcome["measuredMigrationSeconds"] > 0
    assert {"predictedGain", "measuredGain", "measuredCpuBefore", "measuredCpu"} <= outcome.keys()


def test_a_migration_waits_for_approval(run):
    adapts = reoptimizer(asks=True)
    engine = run(PHASES, adapts=adapts)
    assert plan_text(engine.plan) == RIGHT[X_OFTEN]
    assert adapts.pending is not None
    assert adapts.pending.look.best.plan == RIGHT[Y_OFTEN]
    assert adapts.approve()
    assert not adapts.approve(), "there is nothing more to approve"
    engine.run(next(batches([(Y_OFTEN, 1)])))
    assert plan_text(engine.plan) == RIGHT[Y_OFTEN]
    assert adapts.pending is None


FALLBACK = "(a b c)"


def test_a_young_query_leaves_the_fallback_as_soon_as_there_are_rows(run):
    """The first micro-batch covers an unknown time; the six after it have a thousand rows."""
    adapts = reoptimizer()
    engine = run([(X_OFTEN, 40)], tree=FALLBACK, adapts=adapts)
    fixed = run([(X_OFTEN, 40)], tree=FALLBACK, name="fixed")
    assert canonical(engine.all_results) == canonical(fixed.all_results)
    left = engine.told_plans.index(RIGHT[X_OFTEN])
    assert 5 <= left < WINDOW
    assert engine.told_plans == [FALLBACK] * left + [RIGHT[X_OFTEN]] * (40 - left)
    first = next(event for event in recorded(engine) if event["kind"] == "reoptimize")
    assert (first["verdict"], first["fallback"], first["bestPlan"]) == ("migrate", FALLBACK, RIGHT[X_OFTEN])
    (migration,) = [event for event in recorded(engine) if event["kind"] == "migrate"]
    assert "the query runs by the fallback plan" in migration["reason"]
    assert not adapts.is_fallback


def test_while_it_runs_by_the_fallback_progress_says_so(run):
    adapts = reoptimizer()
    run([(X_OFTEN, 3)], tree=FALLBACK, adapts=adapts)
    assert adapts.is_fallback
    assert adapts.summary()["fallback"]


def test_a_fallback_that_is_kept_is_chosen_also_after_a_restart(run):
    """Hardly anything matches: one node stores least and costs no more."""
    adapts = reoptimizer(plan="mjoin")
    engine = run([((MANY, MANY), 12)], tree=FALLBACK, adapts=adapts)
    assert kinds(engine)["migrate"] == 0
    assert adapts.decision is not None
    assert not adapts.is_fallback
    again = reoptimizer(plan="mjoin")
    assert again.is_fallback
    again.restore(adapts.to_value())
    assert not again.is_fallback


def test_an_optimiser_that_is_off_leaves_the_fallback_once_and_measures_nothing_more(run):
    adapts = reoptimizer(once=True, yields=True)
    engine = run([(X_OFTEN, 30), (Y_OFTEN, 30)], tree=FALLBACK, adapts=adapts)
    assert set(engine.told_plans) == {FALLBACK, RIGHT[X_OFTEN]}
    assert engine.told_plans[-1] == RIGHT[X_OFTEN]
    assert engine.coordinator.sketches == ()
    chosen = run([(X_OFTEN, 1)], name="chosen", adapts=reoptimizer(once=True))
    assert chosen.coordinator.sketches == (), "a plan that is no fallback is left alone at once"


def test_to_leave_the_fallback_needs_no_approval(run):
    adapts = reoptimizer(asks=True)
    engine = run([(X_OFTEN, 12)], tree=FALLBACK, adapts=adapts)
    assert plan_text(engine.plan) == RIGHT[X_OFTEN]


def test_a_binary_tree_that_is_asked_for_comes_though_it_may_cost_more(run):
    engine = run([((MANY, MANY), 12)], tree=FALLBACK, adapts=reoptimizer(plan="bjtree"))
    assert plan_text(engine.plan) in RIGHT.values()


def test_what_is_pending_is_withdrawn_when_the_data_changes_back(run):
    adapts = reoptimizer(asks=True)
    run([(X_OFTEN, 30), (Y_OFTEN, 12), (X_OFTEN, 20)], adapts=adapts)
    assert adapts.pending is None


def test_nobody_sketches_without_an_optimiser(run):
    assert run([(X_OFTEN, 2)]).coordinator.sketches == ()


def test_an_interval_makes_it_look_that_often(run):
    seldom, often = reoptimizer(interval_s=25.0), reoptimizer(interval_s=1.0)
    told = {name: run(PHASES, adapts=each, name=name).told_plans for name, each in (("s", seldom), ("o", often))}
    changed = {name: plans.index(RIGHT[Y_OFTEN]) for name, plans in told.items() if RIGHT[Y_OFTEN] in plans}
    assert changed["o"] < 40
    assert changed.get("s", 60) > changed["o"]


def test_statistics_survive_a_restart(run):
    first = reoptimizer()
    run([(X_OFTEN, 30)], adapts=first)
    again = reoptimizer()
    again.restore(first.to_value())
    one, other = (each.recent.assumptions(drifting_query(), each.classes) for each in (first, again))
    assert one.keys == pytest.approx(other.keys, rel=1e-4)
    assert one.rates == pytest.approx(other.rates)


def test_a_checkpoint_keeps_them_beside_the_groups_and_damage_is_ignored(run):
    first = run([(X_OFTEN, 12)], adapts=reoptimizer())
    table = first.coordinator.table(first.manifest.placement)
    again = run([], name="again", adapts=reoptimizer())
    again.coordinator.restore(table)
    kept = again.coordinator.reoptimizer
    assert kept.recent.rows == pytest.approx(first.coordinator.reoptimizer.recent.rows)
    fresh = run([], name="fresh", adapts=reoptimizer())
    for value in (b"{}", b"no JSON", b'{"recent": {"memory_s": 5.0}}'):
        fresh.coordinator.restore(table.replace_schema_metadata({MOVING_MARK: value}))
    assert fresh.coordinator.reoptimizer.recent.rows == 0


def test_a_plan_that_the_user_migrates_to_is_left_alone(run):
    adapts = reoptimizer(yields=True)
    engine = run([(X_OFTEN, 12)], adapts=adapts)
    deque(engine.migrating(plan_join(drifting_query(), (parse_tree(RIGHT[Y_OFTEN], NAMES),), 16)), maxlen=0)
    for batch in islice(batches([(X_OFTEN, 45)]), 12, None):
        engine.run(batch)
    assert plan_text(engine.plan) == RIGHT[Y_OFTEN]
    assert engine.coordinator.sketches == ()


def test_planning_has_a_quota(run):
    slow = iter(range(10_000))
    adapts = reoptimizer(clock=lambda: next(slow))
    engine = run(PHASES, adapts=adapts)
    assert adapts._planning_s == 1, "one search, which took a second of this clock"
    assert kinds(engine)["migrate"] == 0


def test_spilling_again_and_again_calls_for_a_look_and_once_does_not(run, tmp_path):
    adapts = reoptimizer(interval_s=1e9)
    spill = SpillSettings(policy=policy_named("global-output-penalty"), budget_bytes=20_000)
    run([(X_OFTEN, 12)], adapts=adapts, rows=100, memory=tmp_path / "memory", memory_budget_bytes=20_000, spill=spill)
    assert adapts.decision is not None


def test_two_streams_leave_nothing_to_choose(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    query = build_query(
        [Stream(name, schema, "ts", 0) for name in "ab"],
        where=["a.k = b.k"],
        within="10 seconds",
        windows={},
        select=["a.k"],
    )
    assert reoptimizer(query).classes
