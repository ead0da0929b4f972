"""The command line without Spark: specs, hints, help, and the mistakes that are found before Spark is started."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from watersmeet.cli import main
from watersmeet.cli.commands import _follow, _outcome
from watersmeet.cli.files import with_format
from watersmeet.cli.hints import read_rate, read_selectivity
from watersmeet.cli.specs import SinkSpec, StreamSpec, read_sink_spec, read_stream_spec
from watersmeet.errors import OptionError
from watersmeet.observe.terminal import COMPILING
from watersmeet.sample_data import BANKS, SHOP, make_samples
from watersmeet.state.measures import Counts

QUERY = "SELECT x.price FROM bank1 AS x JOIN bank2 ON x.lot = bank2.lot WITHIN 1 MINUTE"
EXAMPLES = Path(__file__).parents[2] / "examples"


# --- specs -----------------------------------------------------------------------------------------------------------

STREAMS = {
    "b=data/b": StreamSpec("b", "", "data/b"),
    "b=parquet:data/b": StreamSpec("b", "parquet", "data/b"),
    "b = Parquet: data/b": StreamSpec("b", "parquet", "data/b"),
    "b=parquet:/data/b": StreamSpec("b", "parquet", "/data/b"),
    "b=csv:s3a://bucket/b?header=true": StreamSpec("b", "csv", "s3a://bucket/b", options={"header": "true"}),
    "b=hdfs://host:9000/b": StreamSpec("b", "", "hdfs://host:9000/b"),
    "b=./odd:name": StreamSpec("b", "", "./odd:name"),
    "b=json:b?eventTime=ts&delay=5 seconds&maxFilesPerTrigger=1": StreamSpec(
        "b", "json", "b", "ts", "5 seconds", None, {"maxFilesPerTrigger": "1"}
    ),
    "b=json:b?EVENTTIME=ts&schema=k bigint, ts timestamp": StreamSpec(
        "b", "json", "b", "ts", None, "k bigint, ts timestamp"
    ),
    "b=csv:b?sep=%26": StreamSpec("b", "csv", "b", options={"sep": "&"}),
    "b=rate": StreamSpec("b", "rate", ""),
    "b=rate:rowsPerSecond=10": StreamSpec("b", "rate", "", options={"rowsPerSecond": "10"}),
    "b=rate?rowsPerSecond=10&rampUpTime=5s": StreamSpec(
        "b", "rate", "", options={"rowsPerSecond": "10", "rampUpTime": "5s"}
    ),
    "b=socket:localhost:9999": StreamSpec("b", "socket", "localhost:9999"),
    "b=kafka:h1:9092,h2:9092/topic?startingOffsets=latest": StreamSpec(
        "b", "kafka", "h1:9092,h2:9092/topic", options={"startingOffsets": "latest"}
    ),
    "b=schema:k bigint, ts timestamp?eventTime=ts": StreamSpec("b", "schema", "k bigint, ts timestamp", "ts"),
}


@pytest.mark.parametrize("text", STREAMS)
def test_stream_specs(text):
    assert read_stream_spec(text) == STREAMS[text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bank1", "'bank1' is no stream. write name=format:location"),
        ("bank1=", "is no stream"),
        ("bank 1=data", "'bank 1' cannot be the name of a stream"),
        ("b=parqet:data", "unknown format 'parqet' in 'parqet:data'. did you mean 'parquet'?"),
        ("b=avro:data", "unknown format 'avro' in 'avro:data'. there are parquet"),
        ("b=parquet:", "stream b does not say where its rows are. write parquet:data/folder"),
        ("b=schema:", "stream b does not say where its rows are. write schema:k bigint"),
        ("b=data?eventTme=ts", "unknown option 'eventTme' of stream b. did you mean 'eventTime'?"),
        ("b=data?maxFilePerTriger=1", "did you mean 'maxFilesPerTrigger'?"),
        ("b=data?eventTime", "'eventTime' of stream b is no option"),
        ("b=data?delay=1s&DELAY=2s", "option 'DELAY' of stream b is given twice"),
        ("b=data?delay=soon", "cannot use 'soon' as a duration"),
        ("b=socket:localhost", "stream b names no host and port"),
        ("b=kafka:host:9092", "stream b names no broker and topic in 'kafka:host:9092'. write kafka:host:9092/topic"),
        ("b=schema:k int?schema=k int", "stream b has two schemas"),
    ],
)
def test_stream_specs_that_are_refused(text, message):
    with pytest.raises(OptionError) as caught:
        read_stream_spec(text)
    assert message in str(caught.value)


SINKS = {
    "console": SinkSpec("console"),
    "console?numRows=5&truncate=false": SinkSpec("console", options={"numRows": "5", "truncate": "false"}),
    "noop": SinkSpec("noop"),
    "csv:out?header=true&partitionBy=a, b": SinkSpec("csv", "out", ("a", "b"), {"header": "true"}),
    "kafka:host:9092/topic": SinkSpec("kafka", "host:9092/topic"),
}


@pytest.mark.parametrize("text", SINKS)
def test_sink_specs(text):
    assert read_sink_spec(text) == SINKS[text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("consol", "unknown sink 'consol'. did you mean 'console'?"),
        ("out", "unknown sink 'out'. write its format too: parquet:out"),
        ("memory:out", "unknown format 'memory'"),
        ("parquet:", "sink parquet does not say where to write"),
        ("console?numRows=many", "option numRows of the console is 'many'"),
        ("console?rows=3", "unknown option 'rows' of the console"),
        ("kafka:host", "the sink names no broker and topic"),
    ],
)
def test_sink_specs_that_are_refused(text, message):
    with pytest.raises(OptionError) as caught:
        read_sink_spec(text)
    assert message in str(caught.value)


def test_checkpoint_is_beside_the_files():
    assert read_sink_spec("parquet:some/out/").default_checkpoint == "some/out.checkpoint"
    assert read_sink_spec("parquet:s3a://bucket/out").default_checkpoint is None
    assert read_sink_spec("console").default_checkpoint is None


def test_hints():
    assert read_rate("a=1_000") == ("a", 1000.0)
    assert read_rate("2.5") == (None, 2.5)
    assert read_selectivity("a.k = b.k=0.001") == ("a.k = b.k", 0.001)
    assert read_selectivity("a.v<=b.v=1") == ("a.v<=b.v", 1.0)
    for bad in ("a=", "a=-1", "a=many", "0", "inf"):
        with pytest.raises(OptionError, match="is no arrival rate"):
            read_rate(bad)
    for bad in ("0.5", "a.k = b.k", "a.k = b.k=2"):
        with pytest.raises(OptionError, match="is no selectivity"):
            read_selectivity(bad)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a.parquet", "b.parquet", "_SUCCESS", ".c.crc"], "parquet"),
        (["x.snappy.parquet"], "parquet"),
        (["a.json.gz", "day=1/b.jsonl"], "json"),
        (["a.CSV"], "csv"),
        (["a.txt"], "text"),
        (["a.orc"], "orc"),
    ],
)
def test_files_tell_the_format(tmp_path, names, found):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert with_format(StreamSpec("s", "", str(tmp_path))).format == found


def test_files_that_do_not_tell(tmp_path):
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.json").touch()
    with pytest.raises(OptionError, match=r"the format of the files in .* is not clear"):
        with_format(StreamSpec("s", "", str(tmp_path)))
    with pytest.raises(OptionError, match=r"is a file, and a stream is a folder.*name its folder"):
        with_format(StreamSpec("s", "csv", str(tmp_path / "a.csv")))
    with pytest.raises(OptionError, match="there is no folder"):
        with_format(StreamSpec("s", "csv", str(tmp_path / "nothing")))
    with pytest.raises(OptionError, match="the format of s3a://bucket/x is not clear"):
        with_format(StreamSpec("s", "", "s3a://bucket/x"))


def test_empty_folder_needs_a_schema(tmp_path):
    with pytest.raises(OptionError, match=r"has no files yet.*\?schema="):
        with_format(StreamSpec("s", "json", str(tmp_path)))
    with pytest.raises(OptionError, match=r"would tell its format.*'parquet:"):
        with_format(StreamSpec("s", "", str(tmp_path)))
    spec = StreamSpec("s", "json", str(tmp_path), schema="k int")
    assert with_format(spec) == spec


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A current folder with streams bank1 and bank2 in it, which nobody will read."""
    monkeypatch.chdir(tmp_path)
    for name in ("bank1", "bank2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.parquet").touch()
    return tmp_path


def failed(capsys, *arguments: str) -> tuple[int, str]:
    """The exit code of a command that goes wrong, and what it says of that."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("watersmeet: ")
    assert "Traceback" not in captured.err
    return code, captured.err


TWO = ("--stream", "bank1=bank1", "--stream", "bank2=bank2")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "arguments are required: COMMAND"),
        (("rnu",), 2, "invalid choice: 'rnu'"),
        (("run",), 2, "there is no query. name a file"),
        (("run", "a.sql", "-e", QUERY), 2, "there are two queries"),
        (("run", "a.sql"), 1, "cannot read the query file a.sql: No such file"),
        (("run", "SELECT * FROM a"), 1, "a query on the command line needs -e before it"),
        (("run", "-e", QUERY), 1, "unknown stream 'bank1' (line 1, column 21)"),
        (("run", "-e", QUERY, *TWO[:2]), 1, "give it with --stream bank2=FORMAT:LOCATION; given: bank1"),
        (("run", "-e", QUERY, *TWO[:2], "--stream", "bnak2=bank2"), 1, "\ndid you mean 'bnak2'?"),
        (("run", "-e", QUERY, *TWO, "--stream", "c=bank1"), 1, "leave its --stream out"),
        (("run", "-e", QUERY, *TWO[:2], *TWO[:2]), 1, "stream bank1 is given twice"),
        (("run", "-e", QUERY, *TWO[:2], "--stream", "bank2=bank22"), 1, "there is no folder bank22"),
        (("run", "-e", "SELECT FROM WHERE", *TWO), 1, "      ^"),
        (("run", "-e", "SELECT a.x FROM bank1, bank2 ORDER BY x", *TWO), 1, "ORDER BY is not supported"),
        (("run", "-e", QUERY, *TWO, "--sink", "consol"), 2, "did you mean 'console'?"),
        (("run", "-e", QUERY, *TWO, "--sink", "kafka:h:9/t"), 1, "with --checkpoint PATH"),
        (("run", "-e", QUERY, *TWO, "--sink", "parquet:s3a://b/x"), 1, "with --checkpoint PATH"),
        (("run", "-e", QUERY, *TWO, "--trigger", "often"), 2, "cannot use 'often' as a duration"),
        (("run", "-e", QUERY, *TWO, "--option", "slots"), 2, "write it like --option slots=4"),
        (("run", "-e", QUERY, *TWO, "--mode", "upsert"), 2, "invalid choice: 'upsert'"),
        (("run", "-e", QUERY, *TWO[:2], "--stream", "bank2=schema:lot int"), 1, "stream bank2 has columns only"),
        (("explain", "-e", QUERY, *TWO, "--rate", "fast"), 2, "'fast' is no arrival rate"),
        (("sample-data", ".", "--rows", "1"), 1, "--rows must be at least"),
        (("sample-data", "."), 1, "bank1 exists already"),
        (("sample-data", "/proc/none"), 1, "watersmeet: /proc/none: No such file or directory"),
    ],
)
def test_mistakes_are_told_without_spark(folders, capsys, arguments, code, message):
    found, text = failed(capsys, *arguments)
    assert message in text
    assert found == code


def test_options_are_checked_before_spark_is_started(folders, capsys):
    code, text = failed(capsys, "run", "-e", QUERY, *TWO, "--option", "slotz=3")
    assert (code, "unknown option 'slotz'. did you mean 'slots'?" in text) == (1, True)


def test_predicates_are_loaded_before_spark_is_started(folders, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folders / "predicates_of_mine.py").write_text("near = 3\n")
    for given, message in [
        ("near=no_such_module:near", "cannot import module 'no_such_module'"),
        ("near=predicates_of_mine:far", "module 'predicates_of_mine' has no function 'far'"),
        ("near=predicates_of_mine:near", "has no function 'near'"),
        ("near=near", "names no function"),
    ]:
        assert message in failed(capsys, "run", "-e", QUERY, *TWO, "--predicate", given)[1]


@pytest.mark.parametrize("command", [(), ("run",), ("explain",), ("sample-data",), ("demo",)])
def test_help(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "usage: watersmeet" in text
    if command in (("run",), ("explain",)):
        for word in ("eventTime", "kafka:", "rate:", "schema", "--stream 'NAME=FORMAT:LOCATION", "example"):
            assert word in text


def test_sample_data(tmp_path, capsys):
    assert main(["sample-data", str(tmp_path / "one"), "--rows", "30"]) == 0
    assert "watersmeet run" in capsys.readouterr().out
    make_samples(tmp_path / "two", 30)
    for name in (*BANKS, *SHOP):
        files = sorted((tmp_path / "one" / name).iterdir())
        assert len(files) == 3
        for file in files:
            assert file.read_bytes() == (tmp_path / "two" / name / file.name).read_bytes()


def test_examples_are_read(tmp_path, capsys):
    """Every example gets as far as its missing streams."""
    for path in EXAMPLES.glob("*.sql"):
        code, text = failed(capsys, "explain", str(path))
        assert (code, "UNKNOWN_STREAM" in text) == (1, True)


# --- what is said while a query runs ---------------------------------------------------------------------------------


class Waiting:
    """A query whose rows have come and whose first epoch has not, until it ends."""

    def __init__(self, *, has_rows: bool) -> None:
        self._kept, self._turns, self.pending = SimpleNamespace(epochs=(), resent={}), 3, None
        self.status = {"isDataAvailable": has_rows}

    def awaitTermination(self, timeout: float) -> bool:
        self._turns -= 1
        return self._turns == 0


def test_a_query_that_waits_for_an_approval_says_so_and_how_to_give_it():
    said: list[str] = []
    query = Waiting(has_rows=True)
    query.pending = {"kind": "changeQuery", "reason": "the query has changed: window of a"}
    _follow(query, "ck", said.append)
    assert said[0] == "waiting for an approval (watersmeet approve ck): the query has changed: window of a"


def test_results_that_are_sent_again_are_no_nothing():
    said: list[str] = []
    query = Waiting(has_rows=False)
    query._kept.resent = {None: 50}
    _follow(query, "ck", said.append)
    assert said == ["done: 50 results of an earlier run were sent"]
    query = Waiting(has_rows=False)
    query._kept.resent = {3: 50}
    query._kept.epochs = (SimpleNamespace(epoch=4, totals=Counts.named({"results": 1234})),)
    assert _outcome(query._kept.epochs, 50) == [
        "50 results of an earlier run were sent",
        "1,234 results since the query was first started",
    ]


@pytest.mark.parametrize(("is_new", "has_rows", "count"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_the_first_epoch_of_a_new_session_says_once_that_spark_compiles(is_new, has_rows, count):
    said: list[str] = []
    assert _follow(Waiting(has_rows=has_rows), None, said.append, is_new=is_new) == 0
    assert said.count(COMPILING) == count
    assert said[-1] == "done: there was nothing new to read"
