"""Keep the tasks of a slot on one host, where its state is in memory, by Spark's own means.

Spark starts the tasks after a shuffle anywhere. But it asks the RDD of a task for preferred locations, and those of a
union are the locations of its parents, if all are partitioned alike (`spark.sql.unionOutputPartitioning`). So rows are
shuffled by hash, not by number, and united with an *anchor*: an RDD without rows, whose partition n prefers the home of
slot n.

    rows ─ repartition(slots, _slot) ─┬─ union ─ mapInArrow
    anchor ───────────────────────────┘

`_slot` holds, for every slot, a number whose hash falls on it. Spark waits `spark.locality.wait` for a free core on the
preferred host, and then takes another. A lost host is preferred no longer; its slots get new homes.

Homes are the driver's choice, not where slots ran last: so slots are dealt out evenly, also when hosts come back. A
cached data frame would be an anchor, too, but its blocks stay where they were made, and lost ones are made on the hosts
that are left. A local master gets no anchors: tasks that prefer a host it does not know have hung there.

An anchor needs parts of Spark that are not public. They are tried at the start and whenever homes change. Where they do
not work as expected, slots run anywhere, as without anchors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.plan.frame import HASH

SLOT = "_slot"
WEIGHT = 8
"""An anchor names a home so often that it outvotes the preferred locations of a shuffle, five executors at most."""
_SEED = 42
_MASK = (1 << 32) - 1


class Homes:
    """The homes of a query's slots: hosts, in the words of Spark. They change only with Spark's executors."""

    def __init__(self) -> None:
        self._executors: Counter[str] = Counter()
        self._homes: tuple[str, ...] = ()
        self._anchor: Anchor | None = None

    def anchor(self, session: SparkSession, slots: int) -> Anchor | None:
        """The anchor for the shuffles of an epoch; None if there is one host, or if Spark cannot be told."""
        master = session.sparkContext.master
        if slots == 1 or master.startswith("local"):
            return None
        try:
            executors = executors_of(session)
        except Exception:  # as in `anchor_at`
            return None
        if executors != self._executors or slots != len(self._homes):
            self._executors, self._anchor = executors, None
            if len(executors) > 1:
                self._homes = homes(self._homes, executors, slots)
                self._anchor = anchor_at(session, self._homes)
        return self._anchor


class Anchor:
    """An RDD without rows that prefers the homes of slots."""

    def __init__(self, slots: int, rdd: Any) -> None:
        self.slots, self._rdd = slots, rdd
        self._frames: dict[str, Any] = {}

    def tasks(self, session: SparkSession) -> DataFrame:
        """No rows, for a task per slot."""
        return self._as_frame(session.range(1))

    def split(self, rows: DataFrame, slot: str) -> DataFrame:
        """Shuffle rows; `slot` is an SQL text in the numbers of `hash_keys`. The rows have a hash."""
        # Spark would optimise a constant, and would drop `_slot` below the union. It leaves expressions alone that it
        # takes for non-deterministic.
        sent = rows.selectExpr("*", f"CAST(if(spark_partition_id() < 0, 0, {slot}) AS INT) AS {SLOT}")
        united = sent.repartition(self.slots, SLOT).union(self._as_frame(sent))
        kept = [f"if(spark_partition_id() < 0, {SLOT}, {HASH}) AS {HASH}" if n == HASH else n for n in rows.columns]
        return united.selectExpr(*kept)

    def _as_frame(self, like: DataFrame) -> DataFrame:
        """A data frame without rows and with the columns of another, partitioned by its last column."""
        schema: Any = like._jdf.schema()
        name = schema.catalogString()
        if name not in self._frames:
            self._frames[name] = self._made(like.sparkSession, schema)
        return DataFrame(self._frames[name], like.sparkSession)

    def _made(self, session: Any, schema: Any) -> Any:
        jvm, jsession = session._jvm, session._jsparkSession
        sql, seq, none = jvm.org.apache.spark.sql, jvm.PythonUtils.toSeq, jvm.scala.Option.empty()
        columns = jsession.internalCreateDataFrame(self._rdd, schema, False).queryExecution().analyzed().output()
        by_slot = sql.catalyst.plans.physical.HashPartitioning(seq([columns.last()]), self.slots)
        arguments = (columns, self._rdd, by_slot, seq([]), False, none, jsession, none, none, False)
        return sql.classic.Dataset.ofRows(jsession, sql.execution.LogicalRDD(*arguments))


def homes(last: Sequence[str], executors: Mapping[str, int], slots: int) -> tuple[str, ...]:
    """A home for every slot, in proportion to the executors of hosts. Slots move only from hosts that have too many."""
    had, total = Counter(last), sum(executors.values())
    room = {host: slots * count // total for host, count in executors.items()}
    claims = sorted(executors, key=lambda host: (-(slots * executors[host] % total), -had[host], host))
    for host in claims[: slots - sum(room.values())]:
        room[host] += 1
    found = dict.fromkeys(range(slots), "")
    for slot, home in enumerate(last[:slots]):
        if room.get(home, 0):
            found[slot] = home
            room[home] -= 1
    for slot, home in found.items():
        if not home:
            found[slot] = max(sorted(room), key=room.__getitem__)
            room[found[slot]] -= 1
    return tuple(found.values())


@cache
def hash_keys(slots: int) -> tuple[int, ...]:
    """For every slot the least number whose hash Spark partitions into it."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < slots:
        found.setdefault(murmur3(number) % slots, number)
        number += 1
    return tuple(found[slot] for slot in range(slots))


def murmur3(number: int) -> int:
    """Spark's `hash` of an integer (Murmur3, 32 bits, seed 42), signed."""
    k = number * 0xCC9E2D51 & _MASK
    k = _rotated(k, 15) * 0x1B873593 & _MASK
    h = (_rotated(_SEED ^ k, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def executors_of(session: SparkSession) -> Counter[str]:
    """The number of executors per host."""
    context: Any = session.sparkContext._jsc.sc()
    driver = context.statusStore().executorSummary("driver").hostPort()
    known = context.getExecutorMemoryStatus().keys().mkString(",").split(",")
    return Counter(address.rpartition(":")[0] for address in known if address and address != driver)


def anchor_at(session: SparkSession, homes: Sequence[str]) -> Anchor | None:
    """An anchor, if a shuffle with it has the preferred locations that it should have."""
    try:
        anchor = Anchor(len(homes), _rdd(session, homes))
        rows: Any = anchor.split(session.range(1).withColumnRenamed("id", HASH), "0")
        rdd, context = rows._jdf.queryExecution().toRdd(), session.sparkContext._jsc.sc()
        if rdd.getNumPartitions() != len(homes):
            return None
        preferred = [context.getPreferredLocs(rdd, slot).head().host() for slot in range(len(homes))]
        return anchor if preferred == list(homes) else None
    except Exception:  # whatever py4j raises where Spark has no such class or method
        return None


def _rdd(session: SparkSession, homes: Sequence[str]) -> Any:
    jvm: Any = session._jvm
    seq, row = jvm.PythonUtils.toSeq, "org.apache.spark.sql.catalyst.InternalRow"
    often = {home: seq([home] * WEIGHT) for home in set(homes)}
    places = seq([jvm.scala.Tuple2(None, often[home]) for home in homes])
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(row))
    # A sample of nothing: no rows, in the same partitions.
    return session.sparkContext._jsc.sc().makeRDD(places, tag).sample(False, 0.0, 0)
