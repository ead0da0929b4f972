"""One Spark session for all tests that need one, small and quiet."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.spark.session import SESSION_SETTINGS

# Before anything starts a JVM: workers run this very Python, and nothing listens beyond this machine.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

# How long an example takes depends on what else the machine does.
settings.register_profile("watersmeet", deadline=None)
settings.load_profile("watersmeet")


def pytest_itemcollected(item: pytest.Item) -> None:
    """All below tests/spark is marked, so that `-m "not spark"` is fast."""
    if Path(__file__).parent / "spark" in item.path.parents:
        item.add_marker(pytest.mark.spark)


@pytest.fixture(autouse=True)
def no_query_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails leaves its query running, and must not make others fail."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("watersmeet-tests")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
