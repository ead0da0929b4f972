"""What the coordinator orders, over real epochs: spills when the budget is exceeded, and the way back."""

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle import canonical, duckdb_join
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.epoch.kinds import Cleaning, Spill
from watersmeet.errors import OptionError
from watersmeet.plan.tree import mjoin
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.measures import OWED

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
BUDGET = 60_000


def asked(within: str | None) -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts" if within else None, 0) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k"],
        within=within,
        windows={},
        select=["a.v", "b.v", "c.v"],
    )


def batch(rng: np.random.Generator, rows: int, start_us: int, keys: int = 2500) -> dict[str, pa.Table]:
    def table() -> pa.Table:
        times = pa.array(start_us + rng.integers(0, 1000, rows)).cast(SCHEMA.field("ts").type)
        return pa.table(
            [pa.array(rng.integers(0, keys, rows)), times, pa.array(rng.integers(0, 99, rows))], schema=SCHEMA
        )

    return {name: table() for name in "abc"}


def engine(query: JoinQuery, tmp_path, policy=None, **settings) -> InProcessQuery:
    chosen = policy or policy_named("global-output-penalty")
    spill = SpillSettings(policy=chosen, budget_bytes=BUDGET, **settings)
    folders = {"folder": tmp_path / "checkpoint", "memory": tmp_path / "memory"}
    return InProcessQuery(query, **folders, slots=2, partitions=64, memory_budget_bytes=BUDGET, spill=spill)


def test_a_slot_over_its_budget_spills_and_says_why(tmp_path):
    query, rng = asked(None), np.random.default_rng(1)
    running = engine(query, tmp_path)
    fed, found, events = [], [], []
    for number in range(8):
        fed.append(batch(rng, 800, number * 1000))
        found.append(running.run(fed[-1]))
        events += running.events
        resident = sum(file.stat().st_size for file in (tmp_path / "memory").iterdir())
        assert resident <= 2 * BUDGET
    spills = [event for event in events if event.kind == "spill"]
    assert {event.slot for event in spills} == {0, 1}
    assert all("over the budget of 58.6 KiB" in event.reason for event in spills)
    assert all(0 < event.details["groups"] < 64 and event.details["bytes"] > 0 for event in spills)
    totals = running.manifest.totals.by_name()
    assert totals["closed_bytes"] > 0
    assert sum(event.details["bytes"] for event in spills) == totals["spilled_bytes"]
    everything = {name: pa.concat_tables(one[name] for one in fed) for name in "abc"}
    right = canonical(duckdb_join(query, everything))
    early = canonical(pa.concat_tables(found))
    assert early < right
    late = list(running.clean_up(bytes_at_once=20_000))
    assert len(late) > 2, "the clean-up took several epochs"
    assert all((event.kind, event.reason) == ("cleanUp", "asked for") for event in running.events)
    assert canonical(pa.concat_tables([*found, *late])) == right
    assert running.manifest.totals.of(OWED) == right.total() - early.total()


def test_spilled_state_comes_back_when_there_is_room(tmp_path):
    query, rng = asked("3 milliseconds"), np.random.default_rng(2)
    running = engine(query, tmp_path)
    fed, found, kinds = [], [], []
    for number, rows in enumerate([900, 900, 900, 900, 5, 5, 5, 5, 5, 5, 5, 5]):
        fed.append(batch(rng, rows, number * 1000))
        found.append(running.run(fed[-1]))
        kinds += [(number, event.kind, event.reason) for event in running.events]
    assert any(kind == "spill" for _, kind, _ in kinds)
    assert "closed_bytes" not in running.manifest.totals.by_name()
    assert any(kind == "cleanUp" and reason == "memory has become free" for _, kind, reason in kinds)
    assert not list(running.clean_up())
    everything = {name: pa.concat_tables(one[name] for one in fed) for name in "abc"}
    assert canonical(pa.concat_tables(found)) == canonical(duckdb_join(query, everything))


def test_epochs_without_rows_leave_recent_arrivals_and_output_as_they_are(tmp_path, monkeypatch):
    running = InProcessQuery(asked(None), tmp_path / "c", slots=2, partitions=64)
    running.run(batch(np.random.default_rng(5), 300, 0, keys=200))

    def recent() -> list[tuple[int, float, list[float]]]:
        table = running.coordinator.ledger.table(running.manifest.placement)
        columns = (table[name].to_pylist() for name in ("size_bytes", "upkept_output", "upkept_arrived"))
        return list(zip(*columns, strict=True))

    before = recent()
    assert sum(output for _, output, _ in before) > 0
    epochs = iter([Cleaning((), "of nothing")] * 10)
    monkeypatch.setattr(running.coordinator, "next_epoch", lambda *_, **__: next(epochs, None))
    ran = running.manifest.epoch
    assert not list(running.clean_up())
    assert running.manifest.epoch == ran + 10
    assert recent() == before


def test_other_probe_orders_alone_are_an_event(tmp_path):
    query = asked(None)
    rng, tree = np.random.default_rng(3), mjoin(3)
    orders = {tree: ((1, 2), (0, 2), (0, 1))}
    InProcessQuery(query, tmp_path, trees=[tree], orders=orders).run(batch(rng, 50, 0))
    again = InProcessQuery(query, tmp_path, trees=[tree], orders=orders)
    again.recover()
    assert again.events == []
    other = InProcessQuery(query, tmp_path, trees=[tree], orders={tree: ((2, 1), (0, 2), (0, 1))})
    other.recover()
    (event,) = other.events
    assert (event.kind, event.reason) == ("plan", "started with other probe orders than before")
    assert event.details["previousOrders"] == {"(a b c)": [[1, 2], [0, 2], [0, 1]]}
    assert other.manifest.events == (event.to_dict(),)
    other.run(batch(rng, 50, 0))
    assert other.events == []


def test_a_policy_of_the_users_own(tmp_path):
    seen = []

    def highest_groups_first(figures):
        seen.append(figures)
        return -figures.group

    running = engine(asked(None), tmp_path, highest_groups_first)
    rng = np.random.default_rng(3)
    for number in range(3):
        ordered = running.coordinator.orders
        running.run(batch(rng, 1500, number * 1000))
    assert seen
    assert [event.kind for event in running.events] == ["spill"] * len(ordered)
    assert isinstance(ordered[0], Spill)
    groups = ordered[0].groups
    assert groups == tuple(range(groups[0], groups[0] + len(groups)))
    assert groups[-1] in (31, 63)


def test_a_policy_that_fails_is_named(tmp_path):
    def broken(figures):
        raise ZeroDivisionError("no")

    running = engine(asked(None), tmp_path, broken)
    with pytest.raises(OptionError, match="broken"):
        running.run(batch(np.random.default_rng(3), 4000, 0))


def test_without_settings_nothing_is_spilled(tmp_path):
    query = asked(None)
    running = InProcessQuery(query, tmp_path / "c", memory=tmp_path / "m", memory_budget_bytes=1000, slots=1)
    rng = np.random.default_rng(4)
    for number in range(3):
        running.run(batch(rng, 500, number * 1000))
    assert "spilled_bytes" not in {name: n for name, n in running.manifest.totals.by_name().items() if n}
    assert sum(file.stat().st_size for file in (tmp_path / "m").glob("*")) <= 1000
