"""Wall time and CPU time of a command with all processes below it, also those that outlive their parents.

    python -I benchmarks/process_tree.py <report> <command> ...      a process that does nothing else

The kernel tells the CPU time of a process, and of all those that it has waited for, to whoever waits for it. Two kinds
of processes would be lost that way, and Spark has both:

| process                                                        | how it is counted                              |
|----------------------------------------------------------------|------------------------------------------------|
| its parent has exited before it                                | we are the subreaper: it becomes our child     |
| its parent ignores SIGCHLD, as pyspark.daemon does: the kernel | by its last figures in /proc, which are read   |
| forgets it, and what it took                                   | ten times a second                             |

Known limitation: of the second kind, what a process takes after the last look, at most a tenth of a second, is lost.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_S = 0.1
PATIENCE_S = 60
"""What is still running so long after the command has ended is killed."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a command took, and what it said."""

    code: int
    wall_s: float
    cpu_s: float
    output: str


def measured(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Measured:
    """Run a command to its end. If we are interrupted, all processes below it are killed."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-measured-") as name:
        report, said = Path(name) / "report", Path(name) / "said"
        with said.open("wb") as out:
            runner = subprocess.Popen(
                [sys.executable, "-I", __file__, str(report), *command],
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                runner.wait()
            finally:
                runner.terminate()
                runner.wait()
        output = said.read_text(errors="replace")
        if not report.exists():
            raise RuntimeError(f"the measurement of {command} broke off:\n{output}")
        return Measured(**json.loads(report.read_text()), output=output)


# --- the process that measures ---------------------------------------------------------------------------------------


def main(report: Path, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, signal.SIGTERM)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    signal.signal(signal.SIGTERM, end_all)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    began = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=[])
    forgotten: dict[tuple[int, int], float] = {}
    code, wall_s, cpu_s = None, 0.0, 0.0
    while True:
        signal.sigtimedwait([signal.SIGCHLD], LOOK_S)
        now = time.perf_counter() - began
        if code is not None and now > wall_s + PATIENCE_S:
            kill_all()
        # Before anything is reaped, so that what is counted when it is reaped is known by its number.
        look(forgotten)
        ended, seconds = reap()
        cpu_s += seconds
        for key in [key for key in forgotten if key[0] in ended]:
            del forgotten[key]
        if pid in ended:
            code, wall_s = ended[pid], now
        if not has_children():
            break
    figures = {"code": code, "wall_s": wall_s, "cpu_s": cpu_s + sum(forgotten.values())}
    report.write_text(json.dumps(figures))


def reap() -> tuple[dict[int, int], float]:
    """The exit codes of our children that have ended, and the CPU seconds of them and of all they have waited for."""
    ended: dict[int, int] = {}
    seconds = 0.0
    while has_children():
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            break
        ended[pid] = os.waitstatus_to_exitcode(status)
        seconds += usage.ru_utime + usage.ru_stime
    return ended, seconds


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def look(forgotten: dict[tuple[int, int], float]) -> None:
    """Note the CPU seconds, by number and start, of all processes below us whose parents will not wait for them."""
    found = processes_below(os.getpid())
    for parent in {stat.parent for stat in found.values()}:
        if ignores_children(parent):
            for pid, stat in found.items():
                if stat.parent == parent:
                    forgotten[pid, stat.started] = stat.cpu_s


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc tells of a process; the CPU seconds are its own and those of children that it has waited for."""

    parent: int
    started: int
    cpu_s: float


def processes_below(pid: int) -> dict[int, Stat]:
    everything = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    values = file.read().rsplit(")", 1)[1].split()
            except (OSError, IndexError):  # it has ended meanwhile
                continue
            everything[int(entry)] = Stat(int(values[1]), int(values[19]), sum(map(int, values[11:15])) / TICKS_PER_S)
    children: dict[int, list[int]] = {}
    for number, stat in everything.items():
        children.setdefault(stat.parent, []).append(number)
    found: dict[int, Stat] = {}
    waiting = list(children.get(pid, []))
    while waiting:
        number = waiting.pop()
        found[number] = everything[number]
        waiting += children.get(number, [])
    return found


def ignores_children(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status") as file:
            mask = next((line.split()[1] for line in file if line.startswith("SigIgn")), "0")
    except OSError:
        return False
    return bool(int(mask, 16) >> (signal.SIGCHLD - 1) & 1)


def kill_all() -> None:
    for pid in processes_below(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def end_all(*_: object) -> NoReturn:
    """Leave nothing running: what is forked while we kill becomes ours, and is killed in the next round."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while has_children():
        kill_all()
        reap()
        time.sleep(0.01)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
