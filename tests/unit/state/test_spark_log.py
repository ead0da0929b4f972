"""What is read of Spark's log, sound or not."""

from pathlib import Path

import pytest

from watersmeet.state import spark_log
from watersmeet.state.spark_log import LogEnd, Offsets, SparkLog, file_number

METADATA = '{"id":"3f2a"}'
OF_SPARK = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":17}\n{"logOffset":3}\n{"topic":{"0":5}}\n-'


@pytest.fixture
def log(tmp_path: Path) -> SparkLog:
    """A log as Spark leaves it when batch 12 is planned: older files are gone, and checksums lie beside the others."""
    for name, text in {
        "metadata": METADATA,
        "offsets/11": OF_SPARK,
        "offsets/.11.crc": "",
        "offsets/12": OF_SPARK.replace("17", "18"),
        "offsets/.13.6b0c.tmp": "",
        "commits/11": "v1\n{}",
        "sources/0/2.compact": "v1",
        "sources/0/3": "v1",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return SparkLog(tmp_path)


class Ending:
    batch, offsets = 11, None


def test_where_a_log_ends(log: SparkLog):
    found = log.end(Ending())
    assert found == LogEnd("3f2a", 12, 11, log.offsets(11))
    assert found.ran == 11
    assert found.offsets is not None
    assert (found.offsets.text, found.offsets.has_copy) == (OF_SPARK, True)
    assert found.offsets.sources == {"0": '{"logOffset":3}', "1": '{"topic":{"0":5}}', "2": "-"}
    assert log.around(12) == (log.offsets(11), log.offsets(12))
    assert log.offsets(11) != log.offsets(12)


def test_what_is_missing_is_not_there(tmp_path: Path):
    assert SparkLog(tmp_path / "none").end(Ending()) == LogEnd()
    assert LogEnd().ran == -1


@pytest.mark.parametrize("text", ["", "{", "5", "[]", '{"name":"x"}'])
def test_a_log_that_does_not_say_whose_it_is(log: SparkLog, text: str):
    (log.folder / "metadata").write_text(text)
    assert log.query() == ""
    assert log.offsets(11) != Offsets("3f2a", "")


def test_a_folder_in_place_of_a_file_is_no_file(log: SparkLog):
    (log.folder / "offsets" / "14").mkdir()
    assert log.offsets(14) is None


@pytest.mark.parametrize(
    ("left", "short"),
    [(("2.compact", "3"), ()), (("3.compact",), ()), (("4.compact",), ()), (("2.compact",), ("0",)), ((), ("0",))],
)
def test_a_file_source_must_have_listed_what_the_offsets_name(
    log: SparkLog, left: tuple[str, ...], short: tuple[str, ...]
):
    folder = log.folder / "sources" / "0"
    for path in folder.iterdir():
        path.unlink()
    for name in left:
        (folder / name).touch()
    assert log.end(None).short_sources == short


def test_offsets_that_no_text_can_hold_are_compared_and_have_no_copy(log: SparkLog, monkeypatch: pytest.MonkeyPatch):
    whole = log.offsets(11)
    assert whole is not None
    (log.folder / "offsets" / "11").write_bytes(OF_SPARK.encode() + b"\xff")
    odd = log.offsets(11)
    assert odd is not None
    assert (odd.has_copy, odd == whole) == (False, False)
    monkeypatch.setattr(spark_log, "TEXT_BYTES_MAX", 10)
    long = log.offsets(11)
    assert (long, long and long.has_copy) == (odd, False)


@pytest.mark.parametrize(
    ("line", "number"), [('{"logOffset":0}', 0), ("-", None), ("5", None), ('{"logOffset":"x"}', None), ("", None)]
)
def test_which_offsets_are_those_of_files(line: str, number: int | None):
    assert file_number(line) == number


NAMED = 'v2\n{"batchWatermarkMs":0}\na:{"logOffset":3}\nbids_2:{"topic":{"0":5}}'


@pytest.mark.parametrize(
    ("text", "sources", "is_by_name"),
    [
        (OF_SPARK, {"0": '{"logOffset":3}', "1": '{"topic":{"0":5}}', "2": "-"}, False),
        (NAMED, {"a": '{"logOffset":3}', "bids_2": '{"topic":{"0":5}}'}, True),
        ('v2\n{}\n0:{"logOffset":3}\n1:5', {"0": '{"logOffset":3}', "1": "5"}, False),
        (f'v2\n{{"conf":{{"{spark_log.EVOLUTION}":"true"}}}}\n7:5', {"7": "5"}, True),
    ],
    ids=["by position", "by name", "by position in v2", "a name of digits"],
)
def test_sources_are_known_by_position_or_name(tmp_path: Path, text: str, sources: dict[str, str], is_by_name: bool):
    (tmp_path / "offsets").mkdir()
    log = SparkLog(tmp_path)
    assert log.names_sources() is None
    (tmp_path / "offsets" / "0").write_text(text)
    found = log.offsets(0)
    assert found is not None
    assert (found.sources, log.names_sources()) == (sources, is_by_name)


def test_the_log_of_a_named_source_must_reach_its_offsets_too(log: SparkLog):
    (log.folder / "offsets" / "12").write_text(NAMED)
    assert log.end(Ending()).short_sources == ("a",)
    (log.folder / "sources" / "a").mkdir()
    (log.folder / "sources" / "a" / "3").touch()
    assert log.end(Ending()).short_sources == ()
