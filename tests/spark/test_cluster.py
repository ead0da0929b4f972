"""On a cluster: executors in processes of their own, which can be lost, and tasks that are repeated."""

import os
import signal
from pathlib import Path

import pyspark
import pytest

from tests.spark.helpers import expected, join_of, output, until, write_batches
from tests.spark.processes import Driver, children
from tests.spark.test_crashes import crash_batches
from watersmeet.state.checkpoint import Checkpoint

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

MASTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="module")
def spark_home(tmp_path_factory) -> str:
    """A Spark installation of links, so that the logs of the executors do not go into the real one."""
    home = tmp_path_factory.mktemp("spark-home")
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return str(home)


def executors_of(driver: Driver) -> list[int]:
    below = children(driver.process.pid)
    return [pid for pid, command in below.items() if "CoarseGrainedExecutorBackend" in command and "java" in command]


class Announced:
    """The attempts that were seen to write segments, and the tasks they were at."""

    def __init__(self, tasks: Path) -> None:
        self._tasks = tasks
        self.attempts: set[tuple[str, ...]] = set()

    @property
    def tasks(self) -> set[tuple[str, ...]]:
        return {attempt[:3] for attempt in self.attempts}

    def look(self) -> None:
        self.attempts |= {tuple(path.name.split("-")[:4]) for path in self._tasks.glob("*.attempts/*.seg")}


@pytest.mark.long
def test_the_loss_of_workers_and_of_an_executor_loses_nothing(spark, tmp_path, spark_home):
    """Spark repeats the tasks, and what the dead ones wrote is left out, and removed."""
    batches = crash_batches(8)
    write_batches(tmp_path, batches)
    checkpoint = Checkpoint(tmp_path / "ck")
    # A task writes fewer segments than a worker does before it dies, so in a fresh worker it gets through.
    driver = Driver(tmp_path, failpoint="segment-durable@10", master=MASTER, SPARK_HOME=spark_home)
    announced = Announced(checkpoint.tasks)
    driver.go()
    manifests = checkpoint.folder / "manifests"
    until(lambda: announced.look() or driver.ended or list(manifests.glob("*0004.json")), 240, "the fifth epoch")
    executors = executors_of(driver)
    assert len(executors) == 2, driver.complaint()
    reached = checkpoint.latest().epoch
    os.kill(executors[0], signal.SIGKILL)
    until(lambda: announced.look() or driver.ended, 240, "the end")
    assert driver.wait() == 0, driver.complaint()
    assert executors[0] not in children(driver.process.pid)
    assert output(spark, tmp_path / "out") == expected(join_of(spark, tmp_path), batches)
    last = checkpoint.latest()
    assert last.epoch > reached, "the executor was lost too late to matter"
    assert len(announced.attempts) > len(announced.tasks), "no task was repeated"
    assert {file.name for file in checkpoint.segments.iterdir()} == set(last.segments)
    assert not list(checkpoint.tasks.glob("*/*"))
