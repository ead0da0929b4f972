"""Where a task runs, by the environments that cluster managers make."""

import platform

import pytest

from watersmeet.runtime.spark.this_worker import this_worker

LOG = "http://10.0.0.7:8081/logPage/?appId=app-20261118050000-0001&executorId=3&logType=stderr"


@pytest.mark.parametrize(
    ("environment", "executor"),
    [
        ({}, "driver"),
        ({"SPARK_EXECUTOR_ID": "12"}, "12"),
        ({"SPARK_LOG_URL_STDERR": LOG}, "3"),
        ({"CONTAINER_ID": "container_1_0001_01_000002"}, "container_1_0001_01_000002"),
        ({"SPARK_LOG_URL_STDERR": "http://host/node/containerlogs/x/stderr", "CONTAINER_ID": "c2"}, "c2"),
    ],
)
def test_the_executor_is_what_the_environment_says(environment, executor):
    assert this_worker(environment) == (platform.node(), executor)
