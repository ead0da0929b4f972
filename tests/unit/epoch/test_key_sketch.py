"""What key sketches say: selectivities of pairs that nobody joins."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.adaptation.plans import SCHEMA
from watersmeet.engine.key_hashes import can_hash, key_hashes
from watersmeet.engine.statistics import Tally
from watersmeet.epoch.key_sketch import SketchedKey, equal_share, sketched_classes, unpacked
from watersmeet.epoch.task import SlotReport
from watersmeet.epoch.task_file import report_from_json, report_to_json
from watersmeet.query.logical import Stream, build_query


def sketch(*columns: pa.Array) -> np.ndarray:
    key = SketchedKey("a", (0,))
    tally = Tally(8, [(0,)])
    tally.sketch(key, key_hashes(columns))
    return unpacked(tally.sketches()[key]).astype(float)


@pytest.mark.parametrize(("rows", "keys"), [(3000, 10), (3000, 1000), (20_000, 20_000)])
def test_two_sketches_give_the_share_of_equal_keys(rows, keys):
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        a, b = (sketch(pa.array(rng.integers(0, keys, rows) + 1000 * seed)) for _ in "ab")
        found.append(equal_share([a, b]) * keys)
    assert np.mean(found) == pytest.approx(1, rel=0.15)


def test_disjoint_keys_match_next_to_nothing():
    a, b = sketch(pa.array(range(5000))), sketch(pa.array(range(9000, 14_000)))
    assert equal_share([a, b]) * 5000 < 0.15, "matches per row"


def test_frequent_keys_are_seen():
    rng = np.random.default_rng(0)
    hot = np.where(rng.random(4000) < 0.5, 7, rng.integers(0, 100_000, 4000))
    other = np.where(rng.random(4000) < 0.1, 7, rng.integers(0, 100_000, 4000))
    assert equal_share([sketch(pa.array(hot)), sketch(pa.array(other))]) == pytest.approx(0.05, rel=0.15)


def test_three_streams_share_their_pairs():
    a, b = (sketch(pa.array([1] * 100)) for _ in "ab")
    c = sketch(pa.array([2] * 100))
    assert equal_share([a, b, c]) == pytest.approx(1 / 3, abs=0.01)
    assert equal_share([a]) is None
    assert equal_share([a, 0 * b]) is None


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 3, 1], pa.int32()),
        pa.array([1.5, 2.5, -1.0, 1.5]),
        pa.array([True, False, False, True]).take(pa.array([0, 1, 1, 0])),
        pa.array([Decimal("1.10"), Decimal("2.20"), Decimal("-1.10"), Decimal("1.10")]),
        pa.array(["", "a", "b" * 70, ""]),
        pa.array([b"x" * 40, b"x" * 41, b"y" + b"x" * 39, b"x" * 40]),
        pa.array([1, 2, 3, 1]).cast(pa.timestamp("us")),
        pa.array([1, 2, 3, 1], pa.int32()).cast(pa.date32()),
    ],
)
def test_equal_values_have_equal_hashes_wherever_they_stand(values):
    assert can_hash(values.type)
    hashes = key_hashes([values])
    assert hashes[0] == hashes[3]
    assert len(set(hashes.tolist())) == len(set(values.to_pylist()))
    assert key_hashes([values.slice(1)]).tolist() == hashes[1:].tolist()
    assert key_hashes([values.take(pa.array([3, 2]))]).tolist() == hashes[[3, 2]].tolist()


def test_texts_that_differ_in_one_byte_differ():
    texts = ["".join("x" if i != place else "y" for i in range(length)) for length in (7, 30, 64) for place in (0, 6)]
    texts += ["".join("x" if i != place else "y" for i in range(64)) for place in range(64)]
    assert len(set(key_hashes([pa.array(texts)]).tolist())) == len(set(texts))


def test_classes_over_the_same_streams_are_one_key():
    query = build_query(
        [Stream(name, SCHEMA, "ts", 0) for name in "abc"],
        where=["a.x = b.x", "a.y = b.y", "b.z = c.z"],
        within="1 second",
        windows={},
        select=["a.x"],
    )
    sizes = sorted(len(classes) for classes in sketched_classes(query))
    assert sizes == [1, 2]


def test_sketches_travel_in_reports():
    report = SlotReport(1, 0, 0, (), (), sketches={SketchedKey("a b", (0, 2)): bytes(range(256)) * 16})
    assert report_from_json(report_to_json(report)) == report
