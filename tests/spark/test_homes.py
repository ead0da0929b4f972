"""The homes of slots, and the anchor that makes Spark prefer them."""

from collections import Counter

import pytest

from watersmeet.runtime.spark.homes import Homes, anchor_at, executors_of, hash_keys, homes, murmur3


def moved(before, after):
    return sum(old != new for old, new in zip(before, after, strict=True))


def test_homes_are_in_proportion_to_executors():
    assert homes((), {"a": 1, "b": 1}, 4) == ("a", "b", "a", "b")
    assert Counter(homes((), {"a": 3, "b": 1}, 8)) == {"a": 6, "b": 2}
    assert Counter(homes((), {"a": 1, "b": 1, "c": 1}, 4)) == {"a": 2, "b": 1, "c": 1}
    assert Counter(homes((), dict.fromkeys("abcde", 1), 3)) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("slots", [2, 5, 64, 257])
def test_slots_move_only_from_hosts_that_have_too_many(slots):
    three = homes((), {"a": 2, "b": 2, "c": 2}, slots)
    assert homes(three, {"c": 1, "b": 1, "a": 1}, slots) == three
    without = homes(three, {"a": 2, "c": 2}, slots)
    assert moved(three, without) == three.count("b")
    back = homes(without, {"a": 2, "b": 2, "c": 2}, slots)
    assert moved(without, back) == back.count("b")
    assert max(Counter(back).values()) - min(back.count(host) for host in "abc") <= 1


def test_another_number_of_slots_keeps_homes():
    four = homes((), {"a": 1, "b": 1}, 4)
    assert homes(four, {"a": 1, "b": 1}, 6)[:4] == four
    assert moved(four[:2], homes(four, {"a": 1, "b": 1}, 2)) == 0


def test_numbers_for_slots_are_those_that_spark_hashes_to_them(spark):
    numbers = [*range(-3, 300), 2**31 - 1, -(2**31)]
    found = spark.createDataFrame([(n,) for n in numbers], "n INT").selectExpr("hash(n)").collect()
    assert [row[0] for row in found] == [murmur3(number) for number in numbers]
    for slots in (1, 2, 7, 256):
        assert [murmur3(key) % slots for key in hash_keys(slots)] == list(range(slots))


def test_an_anchor_is_tried(spark):
    context = spark.sparkContext._jsc.sc()
    assert not executors_of(spark)  # the driver is none
    assert context.getExecutorMemoryStatus().size() == 1
    assert anchor_at(spark, ["x", "y", "x"]) is not None
    spark.conf.set("spark.sql.unionOutputPartitioning", "false")
    try:
        assert anchor_at(spark, ["x", "y", "x"]) is None
    finally:
        spark.conf.unset("spark.sql.unionOutputPartitioning")
    assert Homes().anchor(spark, 4) is None  # a local master
