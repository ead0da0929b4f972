"""A small feed of two streams, and a join over it that has run, for the tests of what is refused."""

import pytest

from tests.spark.helpers import join_of, random_batches, run, write_batches

BATCHES = random_batches(seed=2, streams="ab", batches=2, rows=20)


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    base = tmp_path_factory.mktemp("feed")
    write_batches(base, BATCHES)
    return base


@pytest.fixture(scope="module")
def finished(spark, feed, tmp_path_factory):
    """A join that has run, for others to be compared with: its folders."""
    base = tmp_path_factory.mktemp("finished")
    run(join_of(spark, feed, "ab"), base / "out", base / "ck")
    return base
