"""Drivers of several kinds of query, killed at random moments: each sink ends with each result once.

`make soak` kills 100 (WATERSMEET_KILLS); the plain tests kill one driver of some kinds. A query that migrates is killed
while a migration is under way, in a phase drawn at random.
Drivers are guests in the JVM of the test (`campaign_program`), so a kill costs no JVM. A kind has one checkpoint, and
its drivers are killed one after the other; then one comes to the end.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.campaign_program import KINDS, right, sent
from tests.spark.helpers import random_batches, until, write_batches
from tests.spark.processes import PACKAGES, ROOT, visiting
from watersmeet.adaptation.migration import STRATEGIES
from watersmeet.state.checkpoint import Checkpoint

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("WATERSMEET_KILLS", "0"))
KILLED = dict.fromkeys(KINDS, -(-KILLS // len(KINDS))) if KILLS else dict.fromkeys(("spilling", *STRATEGIES[1:]), 1)
"""How many drivers are killed, by kind."""
BATCHES_AT_ONCE = 4


PHASES = {
    "moving-state": ("migrate",),
    "parallel-track": ("under way",),
    "backfill": ("under way", "fed"),
    "just-in-time": ("under way", "fed"),
}


def phases(manifests: Path) -> set[str]:
    """What the last manifests tell of migrations: events, and whether one is under way and has read some rows."""
    found = set()
    for path in manifests.glob("0*"):
        try:
            value = json.loads(path.read_bytes())
        except (OSError, ValueError):  # it has just been removed
            continue
        found |= {event["kind"] for event in value["events"]}
        going = value.get("migration")
        found |= set() if going is None else {"under way", "fed"} if going["fed"] else {"under way"}
    return found


def driver(kind: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen:
    paths = [str(PACKAGES), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}
    program = [sys.executable, "-m", "tests.spark.campaign_program", kind, str(folder)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(program, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=log, text=True)


@pytest.mark.parametrize("kind", KILLED)
def test_each_result_is_there_once_whatever_was_killed_when(spark, tmp_path, kind):
    seed = int(os.environ.get("WATERSMEET_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}")
    rng, environment = random.Random(seed), visiting(spark)
    made = random_batches(seed=seed % 1000, streams="abc", batches=(KILLED[kind] + 1) * BATCHES_AT_ONCE, rows=12)
    manifests, written, kills = Checkpoint(tmp_path / "ck").manifests, 0, 0
    while kills < KILLED[kind]:
        if written < len(made) - BATCHES_AT_ONCE:
            write_batches(tmp_path, made[written : written + BATCHES_AT_ONCE], start=written)
            written += BATCHES_AT_ONCE
        running = driver(kind, tmp_path, environment)
        assert running.stdout.readline() == "started\n", (tmp_path / "log").read_text()
        known = set(manifests.glob("0*"))
        if rng.random() < 0.7:  # some die in their first epoch, the others soon after they have committed one
            until(lambda r=running, k=known: r.poll() is not None or set(manifests.glob("0*")) - k, what="an epoch")
        if kind in STRATEGIES:
            phase = rng.choice(PHASES[kind])
            until(lambda r=running, p=phase: r.poll() is not None or p in phases(manifests), what=phase)
        time.sleep(rng.uniform(0, 1.5))
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            kills += 1
        assert running.wait(60) in (0, -signal.SIGKILL), (tmp_path / "log").read_text()
        until(lambda: not spark.streams.active, what="the JVM to give up the query")
        if running.returncode == 0 and written >= len(made) - BATCHES_AT_ONCE:
            break  # it came to the end, and there is nothing left for another one
    write_batches(tmp_path, made[written:], start=written)
    last = driver(kind, tmp_path, environment)
    assert last.wait(240) == 0, (tmp_path / "log").read_text()
    tables = {name: pa.concat_tables(batch[name] for batch in made) for name in "abc"}
    assert sent(kind, spark, tmp_path) == right(kind, tables)
