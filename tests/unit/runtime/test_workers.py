"""What a worker lacks is said with what to set; the probe itself runs in any Python."""

import subprocess
import sys

import pytest

import watersmeet
from watersmeet.errors import OptionError, WatersmeetError
from watersmeet.runtime.spark.workers import PROBE, WorkerFacts, require_able

VERSION = watersmeet.__version__


def facts(version: str = VERSION, problem: str = "", free: int = 1 << 30) -> WorkerFacts:
    return WorkerFacts("node7", "/usr/bin/python3", version, problem, free)


def test_a_worker_without_the_package():
    with pytest.raises(WatersmeetError) as caught:
        require_able(facts("", "ModuleNotFoundError: No module named 'watersmeet'"), None, None)
    assert str(caught.value) == (
        "[WORKERS_CANNOT_WORK] the Python workers of Spark cannot import watersmeet: "
        "ModuleNotFoundError: No module named 'watersmeet' (/usr/bin/python3 on node7). "
        f"set PYSPARK_PYTHON={sys.executable} before Spark starts, or install watersmeet {VERSION} there: "
        f"/usr/bin/python3 -m pip install watersmeet=={VERSION}"
    )


def test_a_worker_of_another_version():
    with pytest.raises(WatersmeetError, match=f"have watersmeet 0.0.9, the driver {VERSION} "):
        require_able(facts("0.0.9"), None, None)


@pytest.mark.parametrize(("free", "state"), [(-1, "is missing"), (1 << 20, r"has 1\.0 MiB free")])
def test_a_worker_without_room_in_memory(free, state):
    with pytest.raises(OptionError, match=rf"/dev/shm {state} on node7, and a slot may use 2\.0 MiB there"):
        require_able(facts(free=free), "/dev/shm", 2 << 20)


def test_a_worker_that_has_all_it_needs():
    require_able(facts(), "/dev/shm", 1 << 30)
    require_able(facts(free=-1), None, None)


def test_the_probe_needs_nothing_but_python(tmp_path):
    """As in a worker that lacks the package: an interpreter without ours."""
    program = f"{PROBE}\nprint(list(probe(iter(['{tmp_path}']))))"
    told = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    ((_, python, version, problem, free),) = eval(told.stdout)
    assert (python, version) == (sys.executable, "")
    assert "No module named 'watersmeet'" in problem
    assert free > 0
