"""Whatever is killed when: the final output equals the oracle's, and a reader meanwhile sees whole epochs only.

Drivers run in processes of their own (`driver_program`) and are killed with SIGKILL, at each failpoint of the commit
protocol and, with their JVM, at random moments. All crashes of a test happen to one checkpoint, one after the other.
"""

import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from tests.oracle import canonical
from tests.spark.driver_program import BYTES_AT_ONCE, JOIN_OPTIONS, WORKERS_FAILPOINT
from tests.spark.helpers import READINGS, answer, expected, join_of, output, random_batches, run, until, write_batches
from tests.spark.processes import PACKAGES, Driver, visiting
from watersmeet.adaptation.coordinator import STREAM_HAS_ENDED
from watersmeet.epoch.owing import groups_left
from watersmeet.errors import CheckpointError, FencedError
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.state.checkpoint import Checkpoint

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

# failpoint@visit, where it strikes, and whether the last committed epoch is then acknowledged (None: there is none).
# A driver that finds a manifest commits an epoch of its own before its first batch (the takeover), and before that it
# sends what was not acknowledged.
CRASHES = [
    ("write:json@1", "driver", None),  # while query.json is written
    ("write:json@2", "driver", None),  # the first manifest
    ("after-job@1", "driver", None),
    ("segment-durable@2", "worker", None),
    ("before-manifest@2", "driver", True),
    ("after-job@1", "driver", True),  # of the takeover
    ("after-manifest@1", "driver", False),  # the same: now it has to be sent, and has nothing
    ("after-manifest@2", "driver", False),  # of the first batch after it
    ("before-sink@1", "driver", False),  # of an epoch that is sent again, and the next two
    ("after-sink@1", "driver", False),
    ("before-ack@1", "driver", False),
    ("before-sink@3", "driver", False),  # of a batch, when one before was sent again
    ("before-ack@3", "driver", False),
    ("after-ack@1", "driver", True),  # of an epoch that is sent again
    ("write:seg@1", "worker", True),
    ("write:seg@4", "worker", True),
    ("during-discard@1", "driver", True),
]
# The same for a query that spills: its first epoch decides, its second carries it out.
SPILLING = {"memoryBudget": "1k", "partitions": 8}
SPILL_CRASHES = [
    ("groups-closed@1", "worker", True),  # while a spill is written
    ("after-manifest@3", "driver", False),  # of an epoch that spilled, after the takeover and one that decides
    ("before-sink@4", "driver", False),  # the same, when one before was sent again
    ("before-manifest@3", "driver", True),  # of the first epoch of the clean-up
    ("after-manifest@2", "driver", False),
    ("after-sink@3", "driver", False),  # of the second one, when the first was sent again
    ("groups-cleaned@2", "worker", True),  # of the third or fourth one
]
KILLS = int(os.environ.get("WATERSMEET_KILLS", "1"))
READ_SCHEMA = "k int, a_ts timestamp, a_v long, b_ts timestamp, b_v long, c_ts timestamp, c_v long"


def crash_batches(count: int):
    return random_batches(seed=5, streams="abc", batches=count, rows=8, keys=24, batch_seconds=20, disorder=15)


class PollingReader:
    """Reads a folder again and again, and keeps what it saw. It must have been whole epochs, and never fewer."""

    def __init__(self, spark, out: Path) -> None:
        self.spark, self.out = spark, out
        self.seen: list[Counter] = [Counter()]
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> "PollingReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def epochs(self, batches: list[Counter]) -> list[int]:
        """How many epochs it saw each time, given the results of each."""
        prefixes = [Counter()]
        for batch in batches:
            prefixes.append(prefixes[-1] + batch)
        found = [0]
        for seen in self.seen:
            whole = [n for n in range(found[-1], len(prefixes)) if prefixes[n] == seen]
            assert whole, f"after {found[-1]} epochs no whole epochs: {_nearest(seen, prefixes)}"
            found.append(whole[0])
        return found

    def _poll(self) -> None:
        while not self._stop.wait(1) and not self.problems:
            try:
                seen = canonical(self.spark.read.schema(READ_SCHEMA).parquet(str(self.out)).toArrow())
            except AnalysisException as error:
                if "PATH_NOT_FOUND" not in str(error):
                    self.problems.append(str(error))
                continue
            except Exception as error:
                self.problems.append(repr(error))
                continue
            if seen != self.seen[-1]:
                self.seen.append(seen)


def _nearest(seen: Counter, prefixes: list[Counter]) -> str:
    """How what was seen differs from the whole epochs it is most like."""
    missing, extra, n = min(
        ((sum((p - seen).values()), sum((seen - p).values()), n) for n, p in enumerate(prefixes)),
        key=lambda found: found[0] + found[1],
    )
    return f"{missing} rows missing from {n} epochs, {extra} too many"


def batches_taken(folder: Path, batches: list[dict], streams: str = "abc") -> list[dict]:
    """The batches as Spark made them: a driver that dies between the log of a source and the log of the offsets leaves
    a file to the next batch, which then has two of that stream."""
    offsets = sorted((f for f in (folder / "ck" / "spark" / "offsets").glob("[0-9]*")), key=lambda f: int(f.name))
    taken, before = [], [-1] * len(streams)
    for file in offsets:
        reached = [json.loads(line)["logOffset"] for line in file.read_text().splitlines()[2:]]
        ranges = zip(streams, before, reached, strict=True)
        taken.append({s: _together([batches[n][s] for n in range(low + 1, high + 1)]) for s, low, high in ranges})
        before = reached
    return taken


def _together(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables([READINGS.empty_table(), *tables])


def memory_folders(folder: Path) -> list[Path]:
    """The memory tiers of runs on the checkpoint in a folder."""
    return list(Path("/dev/shm").glob(f"watersmeet-{Checkpoint(folder / 'ck').identity()}-*"))


def is_last_epoch_acknowledged(folder: Path) -> bool | None:
    checkpoint = Checkpoint(folder / "ck")
    last = checkpoint.latest()
    return None if last is None else checkpoint.is_acknowledged(last.epoch)


def assert_no_leftovers(folder: Path) -> None:
    """After an orderly end the checkpoint holds what its last manifest names, and memory nothing; results are in the
    sink."""
    checkpoint = Checkpoint(folder / "ck")
    last = checkpoint.latest()
    assert {file.name for file in checkpoint.segments.iterdir()} == set(last.segments)
    assert not checkpoint.outbox.exists() or not list(checkpoint.outbox.iterdir())
    assert not list(checkpoint.tasks.iterdir())
    assert [file.name for file in (checkpoint.folder / "manifests").iterdir()] == [f"{last.epoch:012d}.json"]
    assert [file.name for file in (checkpoint.folder / "acks").iterdir()] == [f"{last.epoch:012d}"]
    assert not [file.name for file in checkpoint.folder.iterdir() if file.name.startswith(".")]
    until(lambda: not memory_folders(folder), 30, "the memory tier to be empty")


def test_every_failpoint_in_the_code_is_in_the_list():
    sources = [file.read_text() for file in (PACKAGES / "watersmeet").rglob("*.py")]
    listed = [*CRASHES, *SPILL_CRASHES]
    named = {name for text in sources for name in re.findall(r'failpoint\("([^"]+)"\)', text)}
    assert named == {failpoint.partition("@")[0] for failpoint, _, _ in listed if not failpoint.startswith("write:")}


def crash_one_by_one(spark, folder: Path, crashes: list[tuple], **environment: str) -> Iterator[str]:
    """A driver for each failpoint, and after each death its name; then one that must come to the end.

    They are guests in the JVM of the test, and only Python dies: the JVM waits for it, and has nothing to lose.
    """
    environment |= visiting(spark)

    def park(failpoint: str | None, place: str, _: object) -> Driver:
        if place == "worker":
            return Driver(folder, **environment, **{WORKERS_FAILPOINT: failpoint})
        return Driver(folder, failpoint=failpoint, **environment)

    parked = park(*crashes[0])
    for (failpoint, place, acknowledged), following in zip(crashes, [*crashes[1:], (None, "", None)], strict=True):
        driver = parked
        driver.go()
        parked = park(*following)
        code = driver.wait()
        if place == "driver":
            assert code == -signal.SIGKILL, f"{failpoint}: exit code {code}\n{driver.complaint()}"
        else:  # the Python worker is killed, and the task and the query fail
            assert code > 0, f"{failpoint}: exit code {code}"
            assert "Python worker exited unexpectedly" in driver.complaint()
        until(lambda: not spark.streams.active, what="the JVM to give up the query")
        assert is_last_epoch_acknowledged(folder) is acknowledged, failpoint
        yield failpoint
    parked.go()
    assert parked.wait() == 0, parked.complaint()


def test_a_crash_at_every_failpoint(spark, tmp_path):
    batches = crash_batches(14)
    write_batches(tmp_path, batches)
    with PollingReader(spark, tmp_path / "out") as reader:
        for failpoint in crash_one_by_one(spark, tmp_path, CRASHES):
            assert not reader.problems, f"{failpoint}: {reader.problems}"
        right = answer(join_of(spark, tmp_path), batches_taken(tmp_path, batches))
        until(lambda: reader.problems or reader.seen[-1] == right.results, 60, "the reader to see everything")
    assert not reader.problems
    assert output(spark, tmp_path / "out") == right.results
    assert len(set(reader.epochs(right.batches))) > 3
    assert_no_leftovers(tmp_path)


def test_committed_results_are_sent_without_their_source(spark, tmp_path):
    """Nothing is computed again after a kill that follows the manifest, and nothing read."""
    batches = crash_batches(1)
    write_batches(tmp_path, batches)
    driver = Driver(tmp_path, failpoint="after-manifest@1", **visiting(spark))
    driver.go()
    assert driver.wait() == -signal.SIGKILL, driver.complaint()
    until(lambda: not spark.streams.active, what="the JVM to give up the query")
    join = join_of(spark, tmp_path)
    assert is_last_epoch_acknowledged(tmp_path) is False
    assert spark.read.schema(READ_SCHEMA).parquet(str(tmp_path / "out")).isEmpty()
    for name in "abc":
        for file in (tmp_path / name).iterdir():
            file.unlink()
    run(join, tmp_path / "out", tmp_path / "ck")
    assert output(spark, tmp_path / "out") == expected(join, batches)
    assert_no_leftovers(tmp_path)


@pytest.mark.long
def test_crashes_of_a_query_that_spills_and_cleans_up(spark, tmp_path):
    """One that is killed in the middle of a clean-up goes on with it, and does not start over."""
    batches = crash_batches(6)
    write_batches(tmp_path, batches)
    checkpoint = Checkpoint(tmp_path / "ck")
    plan = pieces_of(join_of(spark, tmp_path).options(**SPILLING)).build()[1]
    left, kinds = [], []
    options = {JOIN_OPTIONS: json.dumps(SPILLING), BYTES_AT_ONCE: "1"}
    for _ in crash_one_by_one(spark, tmp_path, SPILL_CRASHES, **options):
        last = checkpoint.latest()
        reasons = {event["kind"]: event["reason"] for event in last.events}
        is_cleaning = reasons.get("cleanUp") == STREAM_HAS_ENDED
        kinds.append("cleaning" if is_cleaning else "spilled" if "spill" in reasons else "plain")
        left.append(groups_left(plan, last))
    assert kinds[:6] == ["plain", "spilled", "spilled", "plain", *["cleaning"] * 2]
    assert kinds[6] in ("cleaning", "plain")  # the takeover comes last if the third one was never committed
    assert left[3] > left[4] > left[5] >= left[6] > groups_left(plan, checkpoint.latest()) == 0
    right = expected(join_of(spark, tmp_path), batches_taken(tmp_path, batches))
    assert output(spark, tmp_path / "out") == right
    assert_no_leftovers(tmp_path)


@pytest.mark.long
def test_kills_at_random_moments(spark, tmp_path):
    """`WATERSMEET_KILLS=20` is the long run."""
    seed = int(os.environ.get("WATERSMEET_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    batches, written = crash_batches(50), 20
    write_batches(tmp_path, batches[:written])
    manifests = tmp_path / "ck" / "watersmeet" / "manifests"
    kills = 0
    parked = Driver(tmp_path)
    with PollingReader(spark, tmp_path / "out") as reader:
        while kills < KILLS:
            driver = parked
            driver.go()
            parked = Driver(tmp_path)
            driver.wait_started()
            runs = memory_folders(tmp_path)
            assert runs
            known = set(manifests.iterdir()) if manifests.exists() else set()
            if rng.random() < 0.6:  # some die in their first epoch, the others soon after they have committed one
                until(lambda d=driver, k=known: d.ended or set(manifests.glob("0*")) - k, what="an epoch")
                time.sleep(rng.uniform(0, 1.2))
            else:
                time.sleep(rng.uniform(0, 4))
            if driver.ended:
                assert driver.wait() == 0, driver.complaint()
                write_batches(tmp_path, batches[written : written + 10], start=written)
                written = min(written + 10, len(batches))
            else:
                driver.kill()
                kills += 1
            until(lambda r=runs: not any(run.exists() for run in r), 30, "the memory tier of a dead run to be removed")
            assert not reader.problems, reader.problems
        parked.go()
        assert parked.wait() == 0, parked.complaint()
        right = answer(join_of(spark, tmp_path), batches_taken(tmp_path, batches))
        until(lambda: reader.problems or reader.seen[-1] == right.results, 60, "the reader to see everything")
    assert not reader.problems
    assert output(spark, tmp_path / "out") == right.results
    assert len(set(reader.epochs(right.batches))) > 3
    assert_no_leftovers(tmp_path)


def test_a_sink_that_still_runs_when_the_query_is_stopped(spark, tmp_path):
    batches = crash_batches(4)
    write_batches(tmp_path, batches)
    written: list[tuple[int, Counter]] = []
    entered, leave = threading.Event(), threading.Event()

    def slow(results, epoch):
        rows = canonical(results.toArrow())
        if epoch == 1 and not leave.is_set():
            entered.set()
            leave.wait(120)
        written.append((epoch, rows))

    def begin():
        writer = join_of(spark, tmp_path).writeStream.foreachBatch(slow)
        return writer.option("checkpointLocation", tmp_path / "ck").trigger(availableNow=True).start()

    first = begin()
    assert entered.wait(120)
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    until(lambda: not first.isActive, what="Spark to give up the query")
    with pytest.raises(CheckpointError, match="is in use"):
        begin()
    leave.set()
    stopping.join(120)
    assert not stopping.is_alive()
    begin().awaitTermination()
    assert [epoch for epoch, _ in written] == [0, 1, 3, 4]  # epoch 2 took over, and shows nothing
    assert sum((rows for _, rows in written), Counter()) == expected(join_of(spark, tmp_path), batches)


def test_a_driver_that_was_overtaken_stops(spark, tmp_path):
    """The fence: an epoch that somebody else has committed is not committed again, and not sent."""
    write_batches(tmp_path, crash_batches(3))
    sent = []

    def overtake(results, epoch):
        sent.append(epoch)
        manifests = tmp_path / "ck" / "watersmeet" / "manifests"
        (manifests / f"{epoch + 1:012d}.json").write_bytes((manifests / f"{epoch:012d}.json").read_bytes())

    writer = join_of(spark, tmp_path).writeStream.foreachBatch(overtake).option("checkpointLocation", tmp_path / "ck")
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(FencedError, match="epoch 1 was committed by another driver"):
        query.awaitTermination()
    assert sent == [0]
