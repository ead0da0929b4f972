"""A worker whose Python lacks the package is found before the first batch, and the error says what to set."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from watersmeet import StreamJoin, WatersmeetError

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.readStream.format("rate").load()
join = StreamJoin(spark).stream("a", rows, eventTime="timestamp").stream("b", rows, eventTime="timestamp")
join = join.where("a.value = b.value").within("1 minute")
try:
    join.writeStream.format("noop").option("checkpointLocation", sys.argv[1]).start()
except WatersmeetError as error:
    print(error)
"""


@pytest.mark.chaos
def test_workers_without_the_package_are_refused_before_the_first_batch(tmp_path):
    other = os.path.realpath(sys.executable)  # the interpreter that the environment was made of, without its packages
    has_package = subprocess.run([other, "-c", "import watersmeet"], capture_output=True).returncode == 0
    if has_package or not os.path.exists(other):
        pytest.skip("there is no Python without watersmeet here")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    env |= {"PYSPARK_PYTHON": other, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "ck")]
    told = subprocess.run(program, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    (line,) = told.stdout.splitlines()
    assert line.startswith("[WORKERS_CANNOT_WORK] the Python workers of Spark cannot import watersmeet: ModuleNotFound")
    assert f"({other} on " in line
    assert f"set PYSPARK_PYTHON={sys.executable} before Spark starts" in line
    assert "Traceback" not in told.stdout + told.stderr
