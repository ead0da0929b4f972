"""Comparisons of commits: statistics, order of runs, and the CPU time of whole process trees."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import process_tree, side_by_side
from benchmarks.paired import median_interval, order_of, summary
from benchmarks.process_tree import measured

BURNT_S = 0.6
BURN = f"import time\nwhile time.process_time() < {BURNT_S}: pass\n"


@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (30, 10)])
def test_the_interval_of_the_median_is_of_the_kth_values(n, k):
    """The ranks that tables of the sign test have for 95 %."""
    values = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
    assert median_interval(values) == (k, n + 1 - k)
    covered = 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n
    assert covered >= 0.95


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_values_have_no_interval(n):
    assert median_interval([1.0] * n) is None
    assert summary([1.0] * n) == {"median_ratio": 1.0, "interval_95": None}


def test_the_interval_holds_the_median_as_often_as_it_says():
    rng = np.random.default_rng(1)
    samples = rng.exponential(size=(2000, 10))
    intervals = [median_interval(sample) for sample in samples]
    assert np.mean([low <= math.log(2) <= high for low, high in intervals]) >= 0.96  # 97.9 % for ten values


def test_summary_of_ratios():
    ratios = [1.3, 0.9, 1.0, 1.1, 0.8, 1.2, 0.7, 1.4, 0.6, 1.5]
    assert summary(ratios) == {"median_ratio": 1.05, "interval_95": [0.7, 1.4]}


def test_pairs_begin_with_either_side_in_turn():
    assert [order_of(pair) for pair in range(3)] == [("old", "new"), ("new", "old"), ("old", "new")]


def test_arguments_after_two_dashes_are_the_workloads():
    assert side_by_side.split(["a", "b", "w", "--pairs", "3", "--", "--rows", "5"]) == (
        ["a", "b", "w", "--pairs", "3"],
        ["--rows", "5"],
    )
    assert side_by_side.split(["a", "b", "w"]) == (["a", "b", "w"], [])


# --- CPU time of process trees ---------------------------------------------------------------------------------------


def measure(script: str, folder: Path) -> process_tree.Measured:
    return measured([sys.executable, "-c", script], os.environ, folder)


def starting(script: str) -> str:
    """A script that starts another, which gets the number of its parent."""
    command = f"[sys.executable, '-c', {script!r}, str(os.getpid())]"
    return f"import os, subprocess, sys\nchild = subprocess.Popen({command})\n"


def test_a_process_and_the_children_it_waits_for(tmp_path):
    found = measure(starting(BURN) + "child.wait()\n" + BURN, tmp_path)
    assert found.code == 0
    assert 2 * BURNT_S <= found.cpu_s <= 2 * BURNT_S + 1
    assert found.wall_s >= BURNT_S


def test_a_grandchild_that_burns_cpu_after_its_parent_has_exited(tmp_path):
    later = "import os, sys, time\nwhile os.getppid() == int(sys.argv[1]): time.sleep(0.01)\n"
    started = time.perf_counter()
    found = measure(starting(later + BURN), tmp_path)
    whole_s = time.perf_counter() - started
    assert BURNT_S <= found.cpu_s <= BURNT_S + 1
    assert found.wall_s < whole_s - BURNT_S * 0.9, "the wall time is that of the command alone"


def test_a_child_of_a_process_that_ignores_its_children(tmp_path):
    """The kernel adds the CPU time of such a child to no other; pyspark.daemon is such a parent."""
    ignoring = "import signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    ended = "import os\nwhile os.path.exists(f'/proc/{child.pid}'): time.sleep(0.01)\n"
    found = measure(ignoring + starting(BURN + "time.sleep(0.3)") + ended, tmp_path)
    assert BURNT_S - 0.02 <= found.cpu_s <= BURNT_S + 1


def test_a_child_whose_ignoring_parent_ends_first_is_counted_once(tmp_path):
    ignoring = "import signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    burnt = BURN + "import os, sys\ntime.sleep(0.3)\nopen('burnt', 'w')\n"
    orphaned = "while os.getppid() == int(sys.argv[1]): time.sleep(0.01)\n"
    found = measure(
        ignoring + starting(burnt + orphaned) + "while not os.path.exists('burnt'): time.sleep(0.01)", tmp_path
    )
    assert BURNT_S <= found.cpu_s < 2 * BURNT_S


def test_a_command_that_fails_tells_why(tmp_path):
    found = measure("import sys\nprint('so far', flush=True)\nsys.exit('no further')", tmp_path)
    assert (found.code, found.output) == (1, "so far\nno further\n")


def test_nothing_is_left_running_when_a_measurement_is_interrupted(tmp_path):
    forever = f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    harness = "import os, signal, sys\nfrom pathlib import Path\nfrom benchmarks.process_tree import measured\n"
    harness += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs of a shell ignore it
    script = f"{harness}measured([sys.executable, '-c', {starting(forever) + 'child.wait()'!r}], os.environ, Path('.'))"
    root = Path(process_tree.__file__).parents[1]
    process = subprocess.Popen([sys.executable, "-c", script], cwd=root, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


# --- commits ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with two commits, whose `watersmeet` says which it is."""
    root = tmp_path / "repository"
    package = root / "src" / "watersmeet"
    package.mkdir(parents=True)
    monkeypatch.setattr(side_by_side, "ROOT", root)
    side_by_side.git("init", "--quiet")
    for number in range(2):
        (package / "__init__.py").write_text(f"NUMBER = {number}\n")
        side_by_side.git("add", "-A")
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
        side_by_side.git(*who, "commit", "--quiet", "-m", f"number {number}")
    return root


WORKLOAD = """
def add_arguments(parser): parser.add_argument("--wrong", type=int, default=9)
def prepare(data, args): data.mkdir()
def run(data, work, args):
    import watersmeet
    assert watersmeet.NUMBER != args.wrong, "this one is wrong"
    (data / "ran").open("a").write(str(watersmeet.NUMBER))
    return {"results": 1}
"""


@pytest.fixture
def comparison(repository, tmp_path):
    revisions = {"old": "HEAD~1", "new": "HEAD"}
    folder = tmp_path / "compared"
    harness = folder / "harness" / "benchmarks"
    (harness / "workloads").mkdir(parents=True)
    own = Path(side_by_side.__file__).parent
    for file in ("__init__.py", "workloads/__init__.py", "workloads/__main__.py"):
        (harness / file).write_text((own / file).read_text())
    (harness / "workloads" / "tiny.py").write_text(WORKLOAD)
    with side_by_side.worktrees(revisions, folder) as trees:
        yield lambda *arguments: side_by_side.Comparison("tiny", arguments, folder, trees)
    assert len(side_by_side.git("worktree", "list").splitlines()) == 1
    assert not (folder / "old").exists()


def test_each_side_runs_with_its_own_commit_in_turn(comparison, capsys):
    made, report = side_by_side.compare(one := comparison(), pairs=3)
    assert (one.folder / "data" / "ran").read_text() == "011001"
    assert report == {"arguments": {"wrong": 9}, "findings": {"results": 1}}
    assert [set(pair) for pair in made] == [{"old", "new"}] * 3
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_run_that_fails_ends_the_comparison_with_its_output(comparison):
    with pytest.raises(SystemExit, match=r"tiny failed with the new commit \(exit code 1\)[\s\S]*this one is wrong"):
        side_by_side.compare(comparison("--wrong", "1"), pairs=3)
