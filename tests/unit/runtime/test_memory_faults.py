"""Whatever happens to the memory tier while a query runs costs speed, never a result and never the query."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle import canonical, duckdb_join
from tests.other_user import OTHER_UID, acting_as, needs_root, shared_folder
from tests.spoiling import spoil_copies
from watersmeet.errors import WatersmeetError
from watersmeet.query.logical import JoinQuery, Stream, build_query
from watersmeet.runtime.inprocess import InProcessQuery

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
BATCHES, ROWS, KEYS, SECOND_US = 9, 30, 12, 1_000_000

Fault = Callable[[Path], object]


def asked() -> JoinQuery:
    return build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in "abc"],
        where=["a.k = b.k AND b.k = c.k"],
        within="2 seconds",
        windows={},
        select=["a.v", "b.v", "c.v"],
    )


def batches() -> list[dict[str, pa.Table]]:
    rng = np.random.default_rng(7)

    def table(number: int) -> pa.Table:
        times = pa.array(number * SECOND_US + rng.integers(0, SECOND_US, ROWS)).cast(SCHEMA.field("ts").type)
        columns = [pa.array(rng.integers(0, KEYS, ROWS)), times, pa.array(rng.integers(0, 99, ROWS))]
        return pa.table(columns, schema=SCHEMA)

    return [{name: table(number) for name in "abc"} for number in range(BATCHES)]


def run(folder: Path, faults: dict[int, Fault], budget: int | None = None) -> tuple[Counter, list[Counter]]:
    """The results of a query that meets faults before some batches, and the counts of its epochs."""
    engine = InProcessQuery(asked(), folder / "checkpoint", memory=folder / "memory", memory_budget_bytes=budget)
    results, counts = Counter(), []
    for number, batch in enumerate(batches()):
        faults.get(number, lambda _: None)(folder / "memory")
        results += canonical(engine.run(batch))
        counts.append(Counter(engine.manifest.totals.by_name()))
    return results, counts


def right() -> Counter:
    fed = batches()
    return canonical(duckdb_join(asked(), {name: pa.concat_tables(batch[name] for batch in fed) for name in "abc"}))


def resident(memory: Path) -> set[str]:
    return {path.name for path in memory.glob("*.seg")}


def read_only(memory: Path) -> None:
    memory.chmod(0o500)


def writable(memory: Path) -> None:
    memory.chmod(0o700)


@needs_root
@pytest.mark.parametrize("budget", [None, 6_000], ids=["no budget", "budget"])
def test_a_memory_folder_that_turns_read_only_costs_speed_and_not_the_query(tmp_path, budget):
    """And when it can be written again, what was left in it goes."""
    expected, _ = run(tmp_path, {}, budget)  # which also imports all that another user could not read
    assert expected == right()
    seen: list[set[str]] = []

    def look(memory: Path) -> None:
        seen.append(resident(memory))

    with shared_folder() as folder, acting_as(OTHER_UID):
        faults = {2: lambda m: (look(m), read_only(m)), 6: lambda m: (look(m), writable(m))}
        results, _ = run(folder, faults, budget)
        look(folder / "memory")
    assert results == expected
    assert seen[0], "nothing was in memory before"
    assert seen[0] == seen[1], "something came or went while it was read-only"
    assert seen[2], "memory is not used again"
    assert not seen[2] & seen[1], "what is dead was left behind"


def gone(memory: Path) -> None:
    shutil.rmtree(memory)


def test_a_memory_folder_that_vanishes_costs_speed_and_not_the_query(tmp_path):
    results, counts = run(tmp_path, {3: gone, 5: gone})
    assert results == right()
    assert min(count["memory_bytes"] for count in counts) > 0, "it is made again"
    assert counts[-1]["fetched_bytes"] > 0


def test_copies_that_were_replaced_are_never_joined(tmp_path):
    results, counts = run(tmp_path, {3: spoil_copies, 5: spoil_copies})
    assert results == right()
    assert counts[2]["spoiled_copies"] == 0 < counts[3]["spoiled_copies"] < counts[5]["spoiled_copies"]


def linked_elsewhere(memory: Path) -> None:
    memory.rename(memory.with_name("elsewhere"))
    memory.symlink_to(memory.with_name("elsewhere"))


def opened_to_all(memory: Path) -> None:
    memory.chmod(0o777)


@pytest.mark.parametrize("fault", [linked_elsewhere, opened_to_all])
def test_a_memory_folder_that_is_no_longer_ours_alone_ends_the_query(tmp_path, fault):
    with pytest.raises(WatersmeetError, match="MEMORY_FOLDER_REFUSED"):
        run(tmp_path, {3: fault})
