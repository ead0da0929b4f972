"""What a process prints while it starts is kept back; what it prints later is passed on, and its end is noticed."""

import subprocess
import sys

PROGRAM = """
import subprocess, sys, time
from watersmeet.runtime.spark.quiet_start import quiet_start

with quiet_start(verbose=sys.argv[1] == "verbose") as said:
    started = subprocess.Popen(
        ["sh", "-c", "echo 'WARNING: start-up noise' >&2; echo; read go; echo later >&2"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    started.stdout.readline()
started.communicate("go")
time.sleep(1)  # a thread passes it on
print(list(said.lines))
print("ours", file=sys.stderr)
"""


def run(how: str) -> tuple[str, list[str]]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout, sorted(done.stderr.splitlines())


def test_start_up_is_kept_back_and_all_else_is_passed_on():
    assert run("quiet") == ("['WARNING: start-up noise']\n", ["later", "ours"])


def test_verbose_keeps_nothing_back():
    assert run("verbose") == ("[]\n", ["WARNING: start-up noise", "later", "ours"])
