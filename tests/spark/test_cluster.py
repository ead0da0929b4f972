"""On a cluster: executors in processes of their own, which can be lost."""

import os
import signal
from pathlib import Path

import pyspark
import pytest

from tests.spark.helpers import expected, join_of, output, random_batches, until, write_batches
from tests.spark.processes import Driver, children

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


def test_separate_executors_give_the_same_results(spark, tmp_path, spark_home):
    batches = random_batches(seed=7, streams="abc", batches=4, rows=15)
    write_batches(tmp_path, batches)
    driver = Driver(tmp_path, master=MASTER, SPARK_HOME=spark_home)
    driver.go()
    driver.wait_started()
    assert len(executors_of(driver)) == 2 or driver.ended
    assert driver.wait() == 0, driver.complaint()
    assert output(spark, tmp_path / "out") == expected(join_of(spark, tmp_path), batches)


def test_the_loss_of_an_executor_loses_nothing(spark, tmp_path, spark_home):
    batches = random_batches(seed=8, streams="abc", batches=10, rows=15)
    write_batches(tmp_path, batches)
    manifests = tmp_path / "ck" / "watersmeet" / "manifests"
    driver = Driver(tmp_path, master=MASTER, SPARK_HOME=spark_home)
    driver.go()
    until(lambda: driver.ended or list(manifests.glob("*0002.json")), 240, "the third epoch")
    assert not driver.ended, driver.complaint()
    victim = executors_of(driver)[0]
    os.kill(victim, signal.SIGKILL)
    assert driver.wait() == 0, driver.complaint()
    assert victim not in children(driver.process.pid)
    assert output(spark, tmp_path / "out") == expected(join_of(spark, tmp_path), batches)
