"""The real engine on a virtual clock: the same for a seed, whatever the machine does, and exact on a hundred slots."""

import pyarrow as pa

from tests.oracle import canonical, duckdb_join
from tests.unit.simulation.settings import INTERVAL_S, PARTITIONS, RATE, Setting
from watersmeet.query.logical import build_query
from watersmeet.simulation.clock import ClockPrices, VirtualClock
from watersmeet.simulation.real_engine import SimulatedEngine, Spans
from watersmeet.simulation.watching import events_of, relocations, simulated


def told(moments):
    """All that does not depend on random file names."""
    return [
        (
            moment.at_s,
            moment.done.results,
            moment.done.active_bytes.tolist(),
            [str(event) for event in moment.done.events],
        )
        for moment in moments
    ]


def test_a_seed_gives_the_same_run(tmp_path):
    setting = Setting("balance", budget_bytes=60_000, rate=40.0)
    runs = [told(setting.of_engine(tmp_path / str(number), 100, seed)) for number, seed in enumerate((1, 1, 2))]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_more_slots_than_groups_relocate_and_spill_without_losing_a_result(tmp_path):
    setting = Setting("balance", slots=100, budget_bytes=2_000, rate=60.0, interval_s=5.0)
    engine = setting.engine(tmp_path)
    fed, found, drawn = [], [], engine.rows

    def rows(since_s, until_s):
        fed.append(drawn(since_s, until_s))
        return fed[-1]

    engine.rows = rows
    moments = simulated(Spans(engine, found.append), VirtualClock(INTERVAL_S), 25, ClockPrices())
    assert relocations(moments) > 1
    assert events_of(moments, "spill")
    found += list(engine.clean_up())
    everything = {name: pa.concat_tables(one[name] for one in fed) for name in "abc"}
    assert canonical(pa.concat_tables(found)) == canonical(duckdb_join(setting.query, everything))


def test_epochs_that_close_windows_belong_to_their_batch(tmp_path):
    """The same rows, grouped by windows: two epochs a batch, and all rows are counted as stored."""
    plain = Setting(window="10 seconds")
    streams = list(plain.query.streams)
    query = build_query(
        streams,
        where=["a.k = b.k", "b.k = c.k"],
        within="10 seconds",
        windows={},
        select=["count(*) AS n"],
        group_by=["window(result_time, '20 seconds')"],
    )
    rows = plain.engine(tmp_path / "rows").rows
    engine = SimulatedEngine(query, tmp_path / "query", rows, ClockPrices(), partitions=PARTITIONS, mode="append")
    moments = simulated(Spans(engine), VirtualClock(INTERVAL_S), 60, ClockPrices())
    assert engine.manifest.epoch > len(moments), "some windows closed"
    stored = sum(float(moment.done.work.stored.sum()) for moment in moments)
    assert stored >= 3 * RATE * 60
