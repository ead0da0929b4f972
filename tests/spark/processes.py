"""Driver processes that a test starts, looks into and kills; and only those."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

import watersmeet
from tests.spark.helpers import until
from watersmeet.failpoints import VARIABLE

ROOT = Path(__file__).parents[2]
PACKAGES = Path(watersmeet.__file__).parents[1]


def visiting(spark: SparkSession) -> dict[str, str]:
    """The environment of drivers that are guests in the JVM of a session, one at a time."""
    server = spark._jvm.org.apache.spark.api.python.Py4JServer(spark.sparkContext._jsc.sc().conf())
    server.start()
    return {"PYSPARK_GATEWAY_PORT": str(server.getListeningPort()), "PYSPARK_GATEWAY_SECRET": server.secret()}


class Driver:
    """A `driver_program` over a folder: parked when made, at work after `go`."""

    def __init__(
        self,
        folder: Path,
        *,
        failpoint: str | None = None,
        master: str = "local[2]",
        **environment: str,
    ) -> None:
        paths = [str(PACKAGES), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
        env.pop(VARIABLE, None)
        if failpoint is not None:
            env[VARIABLE] = failpoint
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"driver-{len(list(folder.glob('driver-*')))}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.driver_program", str(folder), master],
                cwd=ROOT,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def go(self) -> None:
        self._until_said("ready")
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def wait_started(self) -> None:
        self._until_said("started")

    def wait(self, seconds: float = 240) -> int:
        """The exit code; negative is the signal that ended it."""
        return self.process.wait(seconds)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL the driver; its JVM sees the end of its input and goes too."""
        if not self.ended:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def complaint(self) -> str:
        """What it wrote to its standard error, without the frames of the JVM."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.said.append(line.strip())

    def _until_said(self, word: str) -> None:
        until(lambda: word in self.said or self.ended, 240, f"the driver to be {word}")


def children(pid: int) -> dict[int, str]:
    """All processes below one, with their command lines."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: dict[int, str] = {}
    waiting = list(parents.get(pid, []))
    while waiting:
        child = waiting.pop()
        try:
            found[child] = (Path("/proc") / str(child) / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        waiting += parents.get(child, [])
    return found
