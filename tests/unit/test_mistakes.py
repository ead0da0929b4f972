"""Mistakes on the command line: each is answered before Spark is started. The commands and their messages:
tests/golden/mistakes/cli.txt."""

import shlex
import time

import pytest

from tests.mistakes import TRACES, expected_message, mistake, mistakes
from watersmeet.cli import main, on_spark

SECONDS_MAX = 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder with streams a and b in it, which nobody will read; and a Spark that must not be started."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.parquet").touch()

    def session(*_):
        pytest.fail("Spark is started")

    monkeypatch.setattr(on_spark, "session", session)
    return tmp_path


@pytest.mark.parametrize(("area", "title"), mistakes("cli"))
def test_a_mistake_is_answered_before_spark_is_started(folder, capsys, area, title):
    program, *arguments = shlex.split(mistake(area, title, "command"))
    assert program == "watersmeet"
    since = time.monotonic()
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    seconds = time.monotonic() - since
    captured = capsys.readouterr()
    text = captured.err.strip().replace(str(folder), "/data")
    assert text == expected_message(area, title, text)
    assert code in (1, 2)
    assert text.startswith("watersmeet: ")
    assert not TRACES.search(text)
    assert captured.out == ""
    assert seconds < SECONDS_MAX
