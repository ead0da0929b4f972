"""The command line with Spark: the example queries, formats, going on, Ctrl-C, and mistakes that only Spark finds."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark import __version__ as spark_version

from watersmeet.cli import main
from watersmeet.observe.terminal import COMPILING
from watersmeet.sample_data import make_samples

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BANKS = ("--stream", "bank1=data/bank1", "--stream", "bank2=data/bank2", "--stream", "bank3=data/bank3")
SHOP = tuple(
    word
    for name in ("orders", "payments", "parcels", "scans", "reviews")
    for word in ("--stream", f"{name}=data/{name}")
)
PAIRS = "SELECT bank1.lot AS lot, bank1.price AS p, bank2.price AS q FROM bank1 JOIN bank2 USING (lot) WITHIN 1 MINUTE"


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    make_samples(folder / "data", 300)
    return folder


@pytest.fixture(autouse=True)
def here(samples, tmp_path, monkeypatch) -> Path:
    """A folder of its own for every test, with the sample data in it."""
    (tmp_path / "data").symlink_to(samples / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(df) -> Counter:
    return Counter(tuple(row) for row in df.collect())


def batch(spark, text: str, *streams: str):
    """A query without windows as Spark itself would answer it."""
    for name in streams:
        spark.read.parquet(os.path.abspath(f"data/{name}")).createOrReplaceTempView(name)
    return spark.sql(text)


# --- run -------------------------------------------------------------------------------------------------------------


def test_cheapest_on_the_console(spark, capsys):
    assert main(["run", str(EXAMPLES / "cheapest.sql"), *BANKS, "--option", "slots=2"]) == 0
    captured = capsys.readouterr()
    assert "|bank1_broker|" in captured.out
    assert "stream bank1, by the files that are there: ts timestamp, broker string" in captured.err
    assert "epoch 0: 900 rows in, " in captured.err
    assert "done: " in captured.err


@pytest.mark.long
def test_five_streams_to_files(spark, capsys):
    assert main(["run", str(EXAMPLES / "orders.sql"), *SHOP, "--sink", "parquet:out", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    text = (EXAMPLES / "orders.sql").read_text().replace("WITHIN 10 MINUTES", "")
    names = ("orders", "payments", "parcels", "scans", "reviews")
    # every order is done within ten minutes, so Spark's join without a window finds the same
    assert rows(spark.read.parquet(os.path.abspath("out"))) == rows(batch(spark, text, *names)) != Counter()
    assert Path("out.checkpoint").is_dir()


@pytest.mark.long
def test_turnover_by_window_to_files(spark):
    assert main(["run", str(EXAMPLES / "turnover.sql"), *SHOP[:4], "--sink", "json:out?compression=gzip"]) == 0
    assert spark.read.json(os.path.abspath("out")).columns == ["orders", "payments_method", "since", "turnover"]
    assert list(Path("out").glob("*.json.gz"))


def test_formats_predicates_and_going_on(spark, here, capsys, monkeypatch):
    """CSV and JSON in, a Python predicate between, partitioned CSV out; the same command goes on with new files."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (here / "nearness.py").write_text("import pyarrow.compute as pc\n\n\ndef near(x, y):\n    return pc.equal(x, y)\n")
    offers = spark.read.parquet(f"{here}/data/bank1").coalesce(1)
    offers.write.csv(f"{here}/in/csv", header=True)
    offers.write.json(f"{here}/in/json")
    command = [
        "run",
        "-e",
        "SELECT a.currency AS currency, b.ts AS t FROM a JOIN b ON a.lot = b.lot AND near(a.price, b.price)",
        *("--stream", "a=in/csv?header=true", "--stream", "b=json:in/json", "--predicate", "near=nearness:near"),
        *("--sink", "csv:out?header=true&partitionBy=currency"),
    ]
    assert main(command) == 0
    assert spark.read.csv(f"{here}/out", header=True).count() == 300
    assert "b, by the files that are there: broker string, currency string, lot bigint, price double, ts timestamp" in (
        capsys.readouterr().err
    )
    assert main(command) == 0
    assert "there was nothing new to read" in capsys.readouterr().err
    offers.limit(2).write.mode("append").json(f"{here}/in/json")
    assert main(command) == 0
    assert spark.read.csv(f"{here}/out", header=True).count() == 302


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-e", PAIRS.replace("bank1.price", "bank1.pirce"), *BANKS[:4]), "\ndid you mean 'price'?"),
        (("-e", PAIRS, *BANKS[:2], "--stream", "bank2=data/bank2?schema=lot integr"), "'lot integr' is no schema"),
        (
            ("-e", PAIRS, *BANKS[:2], "--stream", "bank2=data/bank2?schema=lot int, price double"),
            "name its timestamp column: --stream 'NAME=...?eventTime=COLUMN",
        ),
        (
            ("-e", PAIRS, *BANKS[:2], "--stream", "bank2=data/bank2?schema=lot int, price double&delay=1 second"),
            "has a delay, but its event time is not clear",
        ),
        (
            ("-e", PAIRS, *BANKS[:2], "--stream", "bank2=kafka:h:9092/t?schema=lot int, price double, ts timestamp"),
            f"add --packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}",
        ),
        (("-e", PAIRS, *BANKS[:4], "--mode", "update"), "without --mode the fitting one is taken"),
        ((str(EXAMPLES / "cheapest.sql"), *BANKS, "--sink", "parquet:out"), "running aggregates go to --sink console"),
        (("-e", PAIRS, "--stream", "bank1=json:data/bank1", *BANKS[2:4]), "cannot be read as json"),
        (("-e", PAIRS, "--stream", "bank1=parquet:none/*", *BANKS[2:4]), "Spark says: [PATH_NOT_FOUND]"),
    ],
)
def test_mistakes_that_spark_is_needed_for(spark, capsys, arguments, message):
    assert main(["run", *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_another_query_is_not_for_the_same_output(spark, capsys):
    assert main(["run", "-e", PAIRS, *BANKS[:4], "--sink", "parquet:out"]) == 0
    assert main(["run", "-e", PAIRS.replace("1 MINUTE", "2 MINUTES"), *BANKS[:4], "--sink", "parquet:out"]) == 1
    assert "window of bank1: checkpoint has '1 minute', query has '2 minutes'" in capsys.readouterr().err


def test_a_query_that_was_refused_leaves_the_output_to_a_better_one(spark, capsys):
    grouped = PAIRS.replace("bank1.lot AS lot, bank1.price AS p, bank2.price AS q", "count(*) AS n")
    to_files = (*BANKS[:4], "--sink", "parquet:out")
    assert main(["run", "-e", grouped, *to_files]) == 1
    assert "group by window(result_time, '10 minutes') as well" in capsys.readouterr().err
    assert main(["run", "-e", f"{grouped} GROUP BY window(result_time, '10 minutes')", *to_files]) == 0


@pytest.mark.long
def test_a_master_that_is_none(here):
    command = [sys.executable, "-m", "watersmeet.cli", "run", "-e", PAIRS, *BANKS[:4], "--master", "spark://nowhere"]
    run = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "watersmeet: [INVALID_OPTION] Spark does not start with master 'spark://nowhere'" in run.stderr
    assert "Traceback" not in run.stderr


SLOW = """
import pathlib, time
import pyarrow.compute as pc

def slow(x, y):
    pathlib.Path("begun").touch()
    time.sleep(120)
    return pc.equal(x, y)
"""


@pytest.mark.chaos
@pytest.mark.long
def test_ctrl_c_in_a_micro_batch_stops_and_tells_how_to_go_on(here):
    """In a process of its own, as a user would run it: nothing of Spark's is printed, at its start or at its end."""
    (here / "slowness.py").write_text(SLOW)
    text = "SELECT bank1.lot AS lot FROM bank1 JOIN bank2 ON bank1.lot = bank2.lot AND slow(bank1.price, bank2.price)"
    words = ["run", "-e", text, *BANKS[:4], "--predicate", "slow=slowness:slow"]
    words += ["--sink", "json:out", "--master", "local[2]"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}"}
    with subprocess.Popen(
        [sys.executable, "-m", "watersmeet.cli", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=here,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it for what it starts with &
    ) as process:
        deadline = time.monotonic() + 120
        while not (here / "begun").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        interrupted = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert time.monotonic() - interrupted < 20
    assert process.returncode == 130, said
    lines = said.splitlines()
    assert lines[0] == "starting Spark ..."
    assert [line.split(",")[0] for line in lines[1:3]] == ["stream bank1", "stream bank2"]
    assert lines[3] == COMPILING
    assert lines[4:] == [
        "watersmeet: stopped by Ctrl-C; all is kept in out.checkpoint, and the same command goes on from there"
    ]


@pytest.mark.long
def test_a_demo_of_so_few_offers_that_none_meet(spark, here, capsys, monkeypatch):
    monkeypatch.setattr("watersmeet.demo._session", lambda verbose: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["demo", "--rows", "120", "--folder", str(here / "demo")]) == 0
    out = capsys.readouterr().out
    assert "no results in" in out
    table = out[out.index("epoch rows") :]
    assert max(map(len, table.splitlines())) <= 80


# --- explain ---------------------------------------------------------------------------------------------------------


def test_explain_without_any_files(spark, capsys):
    schema = "schema:k bigint, v double, ts timestamp"
    text = "SELECT a.v, b.v, c.v FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.k AND c.v > a.v WITHIN 10 SECONDS"
    words = ["explain", "-e", text, "--option", "plan=((a b) c)", "--option", "slots=3"]
    words += [word for name in "abc" for word in ("--stream", f"{name}={schema}?eventTime=ts&delay=5 seconds")]
    assert main([*words, "--rate", "100", "--rate", "c=10", "--selectivity", "a.k = b.k=0.01"]) == 0
    out = capsys.readouterr().out
    for part in (
        "a ── c: a.k = c.k (key 0); c.v > a.v (residual 0)",
        "stream    a: within 10 seconds, delay 5 seconds",
        "== Plan ((a b) c) ==\n3 slots",
        "known: key 0 lets pass 0.01 of the pairs\n",
    ):
        assert part in out
    # (a b): 2 x 100 x 1000 pairs a second, one in a hundred; kept for window, delay and time bucket, or until they end
    assert re.search(r"^\(a b\) +0 +2,000 +26,600 ", out, re.MULTILINE)
    assert re.search(r"^[ *] \(\(a b\) c\) .*asked for$", out, re.MULTILINE)


def test_explain_of_the_example_in_the_readme_gives_figures_that_can_be(spark, capsys):
    """Of 1,000 rows a second each; nothing is said of the keys, so a row is taken to find one of each other stream."""
    columns = {
        "orders": "order_id bigint, amount double",
        "payments": "order_id bigint, method string",
        "parcels": "order_id bigint, parcel_id bigint, weight double",
        "scans": "parcel_id bigint, depot string",
        "reviews": "order_id bigint, stars int",
    }
    streams = [w for name, own in columns.items() for w in ("--stream", f"{name}=schema:{own}, ts timestamp")]
    assert main(["explain", str(EXAMPLES / "orders.sql"), "--rate", "1000", "--option", "slots=2", *streams]) == 0
    out = capsys.readouterr().out
    assert "\nin all: 5,000 results/s; " in out
    winner = next(line for line in out.splitlines() if line.startswith("* ("))
    assert 0.05 < float(winner.rsplit(")", 1)[1].split()[1]) < 1  # CPU seconds a second, in how many stages before
    assert out.count("state in files: ") == 1
    assert "assumed: key 0 lets pass 1.667e-06 of the pairs (--selectivity 'key 0=...')" in out


def test_explain_asks_for_rates(spark, capsys):
    assert main(["explain", str(EXAMPLES / "arbitrage.sql"), *BANKS[:4]]) == 0
    assert "give --rate buy=1000 --rate sell=1000" in capsys.readouterr().out
