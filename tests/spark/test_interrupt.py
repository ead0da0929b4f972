"""Ctrl-C in a script, in the middle of a micro-batch: it ends within seconds, and prints a line at most."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.state.temporary import PREFIX

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120

SCRIPT = """
import sys, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from watersmeet import StreamJoin

marker = str(Path("begun").absolute())

def slow(x, y):
    Path(marker).touch()
    time.sleep(120)
    return pa.array([True] * len(x))

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
a, b = (spark.readStream.schema("k BIGINT, v BIGINT").parquet(name) for name in "ab")
join = StreamJoin(spark).stream("a", a).stream("b", b).where("a.k = b.k").register("slow", slow).where("slow(a.v, b.v)")
writer = join.select("a.v", "b.v AS w").writeStream.format("noop").queryName("late")
query = writer.start()
print("-- started", file=sys.stderr, flush=True)
"""
UNCAUGHT = "query.awaitTermination()"
CAUGHT = """
try:
    query.awaitTermination()
except KeyboardInterrupt:
    query.stop()
    print("caught", file=sys.stderr)
"""
ANOTHER = """
try:
    query.awaitTermination()
except KeyboardInterrupt:
    raise ValueError("the script's own") from None
"""


def interrupted(folder: Path, end: str) -> tuple[int, list[str]]:
    """The exit code of a script that is interrupted in a batch, and what it printed after the start of the query."""
    for name in "ab":
        (folder / name).mkdir()
        pq.write_table(pa.table({"k": list(range(50)), "v": list(range(50))}), folder / name / "rows.parquet")
    (folder / "script.py").write_text(SCRIPT + end)
    (folder / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "script.py"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}", "TMPDIR": f"{folder / 'tmp'}"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it for what it starts with &
    ) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not (folder / "begun").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert list((folder / "tmp").glob(f"{PREFIX}*")) == []  # the temporary checkpoint is gone
    lines = said.splitlines()
    assert "-- started" in lines, said
    return process.returncode, lines[lines.index("-- started") + 1 :]


def test_ctrl_c_ends_a_script_with_one_line(tmp_path):
    code, said = interrupted(tmp_path, UNCAUGHT)
    assert said == ["stopped by Ctrl-C: query late ended before its first epoch; its checkpoint was temporary"]
    assert code == -signal.SIGINT  # a shell makes 130 of it


@pytest.mark.long
def test_a_script_that_catches_ctrl_c_hears_nothing_else(tmp_path):
    assert interrupted(tmp_path, CAUGHT) == (0, ["caught"])


@pytest.mark.long
def test_another_error_of_the_script_is_shown_by_python(tmp_path):
    code, said = interrupted(tmp_path, ANOTHER)
    assert (code, said[0], said[-1]) == (1, "Traceback (most recent call last):", "ValueError: the script's own")
