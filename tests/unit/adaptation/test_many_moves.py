"""Groups that move in every epoch: state stays as small as without moves, and clean-ups are shared by all slots."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests.effort import mostly_long
from tests.oracle import canonical, duckdb_join
from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.relocation_policies import RelocationSettings
from watersmeet.epoch.goals import Relocate
from watersmeet.epoch.kinds import Spill
from watersmeet.plan.placement import Move, Placement
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.state.manifest import Manifest
from watersmeet.state.measures import ACTIVE_BYTES, CLOSED_BYTES, STATE_BYTES

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
PARTITIONS, SLOTS, EPOCHS = 32, 3, 100


def asked(within: str | None) -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts" if within else None, 0) for name in "ab"],
        where=["a.k = b.k"],
        within=within,
        windows={},
        select=["a.v", "b.v"],
    )


def batch(rng: np.random.Generator, number: int, rows: int = 60) -> dict[str, pa.Table]:
    def table() -> pa.Table:
        times = pa.array(number * 100 + rng.integers(0, 100, rows)).cast(SCHEMA.field("ts").type)
        return pa.table([pa.array(rng.integers(0, 500, rows)), times, pa.array(rng.integers(0, 9, rows))], SCHEMA.names)

    return {name: table().cast(SCHEMA) for name in "ab"}


def started(tmp_path, within, **others) -> InProcessQuery:
    return InProcessQuery(
        asked(within), tmp_path / "ck", memory=tmp_path / "memory", slots=SLOTS, partitions=PARTITIONS, **others
    )


def crowded(manifest: Manifest) -> Placement:
    """All groups on slot 0."""
    return Placement(SLOTS, dict.fromkeys(manifest.placement.owners, (0,) * PARTITIONS))


def size(manifest: Manifest) -> tuple[int, int]:
    """Extents, and bytes of all segments."""
    return len(list(manifest.all_extents())), sum(ref.bytes for ref in manifest.segments.values())


@pytest.mark.parametrize("within", mostly_long([None, "1500 microseconds"], None))
def test_state_stays_as_small_as_without_moves(tmp_path, within):
    """Four moves and a spilled group in every epoch."""
    extents, held, found = [], [], []
    for moves in (0, 4):
        rng, chance = np.random.default_rng(7), np.random.default_rng(8)
        running = started(tmp_path / str(moves), within)
        results = []
        for number in range(EPOCHS):
            owners = running.manifest.placement.owners if number else {}
            for key, mine in owners.items():
                groups = chance.choice(PARTITIONS, 5, replace=False).tolist()
                told = [Move(key, mine[g], (mine[g] + 1) % SLOTS, (g,)) for g in groups[:moves]]
                spilled = (Spill(0, mine[groups[4]], (groups[4],)),) if number % 5 == 0 else ()
                running.order(spilled, tuple(told))
            results.append(running.run(batch(rng, number)))
        n, size_bytes = size(running.manifest)
        extents.append(n)
        held.append(size_bytes)
        results += list(running.clean_up())
        found.append(canonical(pa.concat_tables(results)))
    assert found[0] == found[1]
    assert extents[1] <= 3 * extents[0], extents
    assert held[1] <= 1.3 * held[0], held


def test_a_clean_up_is_dealt_out_over_all_slots(tmp_path):
    """All state is on slot 0 and closed; three slots emit what is owed."""
    rng = np.random.default_rng(3)
    fed = [batch(rng, number, rows=400) for number in range(4)]
    everything = {name: pa.concat_tables(one[name] for one in fed) for name in "ab"}
    shares = {}
    for is_dealt in (False, True):
        relocator = Relocator(RelocationSettings(threshold=0.01, dealt_bytes_min=0)) if is_dealt else None
        running = started(tmp_path / str(is_dealt), None, relocator=relocator, placement=crowded)
        found = []
        for rows in fed:
            running.order((Spill(0, 0, tuple(range(PARTITIONS))),) if running.manifest.epoch >= 0 else ())
            found.append(running.run(rows))
        owed: Counter = Counter()
        for results in running.clean_up():
            found.append(results)
            owed.update({e.slot: e.details["results"] for e in running.events if e.kind == "cleanUp"})
        shares[is_dealt] = max(owed.values()) / sum(owed.values())
        assert canonical(pa.concat_tables(found)) == canonical(duckdb_join(asked(None), everything))
    assert shares[False] == 1.0
    assert shares[True] < 0.4


def test_what_is_asked_for_moves_once_and_is_an_event(tmp_path):
    rng = np.random.default_rng(5)
    running = started(tmp_path, None)
    for number in range(3):
        running.run(batch(rng, number, rows=400))
    before = running.manifest
    for command in running.pursuing(Relocate(0, 1, 0.5, "asked for")):
        del command
    after = running.manifest
    assert after.epoch == before.epoch + 1
    (event,) = running.events
    assert (event.kind, event.slot, event.details["to"], event.reason) == ("relocate", 0, 1, "asked for")
    counts = [Counter(manifest.placement.owners["a.k = b.k"]) for manifest in (before, after)]
    assert counts[0][0] - counts[1][0] == counts[1][1] - counts[0][1] == event.details["groups"]
    then, now = event.details["bytesBefore"], event.details["bytesAfter"]
    assert now[0] == pytest.approx(then[0] / 2, rel=0.2)
    assert sum(then) == sum(now)
    assert event.details["bytes"] == then[0] - now[0]
    assert after.totals.of(STATE_BYTES) == after.totals.of(ACTIVE_BYTES) + after.totals.of(CLOSED_BYTES)
    assert size(after)[1] <= 1.1 * size(before)[1], "the receiver has made the moved rows its own"
