"""Whether sources are those of a checkpoint: see the table in `runtime/spark/source_names.py`."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.changing import stream_of
from watersmeet.query.logical import JoinQuery, build_query
from watersmeet.runtime.spark.source_names import Known, Names, Sources, known_by, refused_streams
from watersmeet.state.spark_log import SparkLog

ABC = {"a": ("of_a",), "b": ("of_b", "of_b_2"), "c": ("of_c",)}
AB = {name: ABC[name] for name in "ab"}
NAMED = Known(True, ABC, ("of_x",))


def test_the_texts_keep_the_names_of_sources_and_of_those_that_went(tmp_path: Path):
    log = SparkLog(tmp_path)
    assert known_by(log, None) == Known(None)
    assert Sources(Known(False), None).texts() == {}
    first = known_by(log, Sources(Known(None), ABC).texts())
    assert first == Known(None, ABC)
    second = known_by(log, Sources(first, AB).texts())
    assert second == Known(None, AB, ("of_c",))
    assert known_by(log, Sources(second, {"a": ("of_a",)}).texts()).former == ("of_b", "of_b_2", "of_c")


def query_of(names: Iterable[str]) -> JoinQuery:
    streams = [stream_of(name) for name in names]
    keys = [f"{left.name}.k = {right.name}.k" for left, right in pairwise(streams)]
    return build_query(streams, where=keys, within="1 minute", windows={}, select=[f"{streams[0].name}.x"])


@pytest.mark.parametrize(
    ("known", "asked", "words"),
    [
        (NAMED, AB, None),
        (NAMED, {**ABC, "d": ("of_d",)}, None),
        (NAMED, {**AB, "d": ("of_d",)}, None),
        (NAMED, {**ABC, "d": ("of_x",)}, "stream d reads source of_x, which"),
        (NAMED, {**AB, "d": ("of_d", "of_c")}, "stream d reads source of_c, which"),
        (NAMED, None, "streams may not be added or dropped: Spark keeps the offsets of sources by their position"),
        (Known(False), AB, "streams may not be added or dropped: Spark keeps"),
        (Known(True), AB, "an earlier version has not kept the names of its sources"),
    ],
)
def test_which_streams_may_be_added_and_dropped(known: Known, asked: Names | None, words: str | None):
    found = refused_streams(Sources(known, asked), query_of("ab" if asked is None else asked), query_of("abc"))
    assert (found is None) == (words is None)
    if found is not None and words is not None:
        assert found[0].startswith(words)


def test_the_same_streams_need_no_names():
    assert refused_streams(Sources(Known(False), None), query_of("abc"), query_of("abc")) is None
