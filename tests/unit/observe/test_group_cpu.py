"""CPU time of partition groups: by hand, and all groups of a running join together."""

import pyarrow as pa
import pytest

from tests.unit.observe.test_statistics import batches, chain, run
from watersmeet.observe.group_cpu import with_cpu
from watersmeet.state.measures import EXPIRE_NS, INSERT_NS, PROBE_NS, Counts


def test_a_group_is_charged_for_its_rows_and_its_results():
    groups = pa.table({"upkept_arrived": [[2.0, 3.0], [0.0, 0.0]], "upkept_local": [1.0, 4.0]})
    counts = {"insert_ns": 80, "expire_ns": 20, "inserted": 10, "probe_ns": 60, "results": 9, "intermediate": 3}
    assert with_cpu(groups, Counts.named(counts))["cpu_ns"].to_pylist() == [5 * 10 + 5, 4 * 5]


def test_results_that_are_aggregated_are_those_of_the_join():
    groups = pa.table({"upkept_arrived": [[0.0]], "upkept_local": [2.0]})
    assert with_cpu(groups, Counts.named({"probe_ns": 100, "joined": 10, "results": 3}))["cpu_ns"].to_pylist() == [20]


def test_nothing_measured_is_nothing_spent():
    groups = pa.table({"upkept_arrived": [[1.0]], "upkept_local": [2.0]})
    assert with_cpu(groups, Counts())["cpu_ns"].to_pylist() == [0]


def test_all_groups_add_up_to_what_was_spent(tmp_path):
    """Where figures are sums, these are all rows and all results of a join in one stage."""
    query = chain(("a.x = b.x", "b.x = c.x"))
    engine, _ = run(query, "(a b c)", tmp_path, batches(3, 40))
    totals = engine.manifest.totals
    table = engine.coordinator.ledger.table(engine.manifest.placement)
    local = table.column("local").cast(pa.float64())
    arrived = pa.array([[rows] for rows in _rows_by_group(table)])
    summed = table.set_column(table.schema.get_field_index("upkept_local"), "upkept_local", local)
    summed = summed.set_column(summed.schema.get_field_index("upkept_arrived"), "upkept_arrived", arrived)
    spent = totals.of(INSERT_NS) + totals.of(EXPIRE_NS) + totals.of(PROBE_NS)
    assert sum(with_cpu(summed, totals)["cpu_ns"].to_pylist()) == pytest.approx(spent, rel=0.01)


def _rows_by_group(table) -> list[float]:
    """Nothing expires: all rows that were stored are there, spread over the groups as their bytes are."""
    sizes = table["size_bytes"].to_pylist()
    stored = 3 * 40 * 3
    return [stored * size / sum(sizes) for size in sizes]
