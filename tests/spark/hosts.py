"""Hosts on one machine: a Spark standalone master, workers and a driver that share nothing but a folder.

    host "driver" 10.77.0.1 ── bridge ─┬─ host "worker1" 10.77.0.2
      master, driver                   └─ host "worker2" 10.77.0.3

A host is a process in namespaces of its own: network, mounts (with its own /dev/shm), host name and processes. No
traffic leaves them. When that process ends, the kernel ends all others of the host, and frees its memory and network.

Linux only, and as root: `why_not` says what is missing.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from tests.spark.helpers import until
from tests.spark.processes import PACKAGES, ROOT, children

NAMESPACES = ("--net", "--mount", "--uts", "--pid")
TIER = Path("/dev/shm/tier")
"""The memory location on every host."""
TIER_BYTES = 64 << 20
MASTER = "spark://10.77.0.1:7077"
# The shared folder may lie below the /dev/shm that is hidden.
SET_UP = """
set -e
hostname "$0"
ip link set lo up
mount --bind "$1" /mnt
mount -t tmpfs -o size="$2" tmpfs /dev/shm
mkdir -p "$1" "$3"
mount --move /mnt "$1"
mount --bind "$1/hosts" /etc/hosts
echo ready
exec sleep infinity
"""
DAEMONS = {
    "SPARK_NO_DAEMONIZE": "1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def why_not() -> str:
    """What a machine lacks for hosts; empty if nothing."""
    if os.geteuid() != 0:
        return "namespaces need root"
    try:
        command = [
            "unshare",
            *NAMESPACES,
            "--fork",
            "sh",
            "-c",
            "ip link add port1 type veth peer name eth0 && ip link add bridge type bridge && mount -t tmpfs t /mnt",
        ]
        made = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"namespaces cannot be made: {error}"
    return made.stderr.strip()


class Host:
    """A host that is up; `shared` is the folder that all hosts see."""

    def __init__(self, name: str, address: str, shared: Path) -> None:
        self.name, self.address, self.shared = name, address, shared
        made = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", SET_UP]
        settings = [name, f"{shared}", f"{TIER_BYTES}", f"{TIER}"]
        self._process = subprocess.Popen([*made, *settings], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", f"host {name} does not start"
        (self.pid,) = map(int, Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split())
        self.started: list[subprocess.Popen[str]] = []

    @property
    def tier(self) -> Path:
        """The memory location, as seen from outside."""
        return Path(f"/proc/{self.pid}/root{TIER}")

    def connect(self, switch: Host) -> None:
        """Plug the host into the bridge of another."""
        port = f"port{self.address.rpartition('.')[2]}"
        switch.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", f"{self.pid}")
        switch.ip("link", "set", port, "master", "bridge", "up")
        self.ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")

    def ip(self, *arguments: str) -> None:
        subprocess.run(["nsenter", "--target", f"{self.pid}", "--net", "ip", *arguments], check=True, timeout=30)

    def start(self, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """Start a process on the host. Its output goes to a file in the shared folder."""
        here = {"SPARK_LOCAL_IP": self.address, "TMPDIR": f"{self.shared}", "PYTHONPATH": f"{PACKAGES}:{ROOT}"}
        with (self.shared / f"{self.name}.log").open("ab") as log:
            process = subprocess.Popen(
                ["nsenter", "--target", f"{self.pid}", *NAMESPACES, *command],
                env={**os.environ, **here, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        self.started.append(process)
        return process

    def processes(self) -> dict[int, str]:
        """All processes that run on the host but the first, with their command lines."""
        found = children(self._process.pid)
        for process in self.started:
            found |= children(process.pid)
        return {pid: command for pid, command in found.items() if pid != self.pid and command}  # a zombie has none

    def kill_processes(self) -> None:
        """Kill whatever runs on the host; the host and its memory stay."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), 30, f"the processes of {self.name} to end")

    def end(self) -> None:
        self._process.kill()
        self._process.wait(30)
        for process in self.started:
            process.wait(30)


class Cluster:
    """A Spark standalone cluster of a driver's host and workers' hosts."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.driver, *self.workers = hosts

    def start_master(self) -> None:
        self.driver.start([*_spark_class("master.Master"), "--host", self.driver.address, "--port", "7077"], **DAEMONS)

    def start_worker(self, host: Host, cores: int) -> None:
        settings = ["--host", host.address, "--cores", f"{cores}", "--memory", "1g"]
        place = ["--work-dir", f"{host.shared / host.name}", "--webui-port", "0"]
        host.start([*_spark_class("worker.Worker"), *settings, *place, MASTER], **DAEMONS)


@contextmanager
def cluster_of(workers: int, shared: Path, settings: Mapping[str, str], cores: int = 2) -> Iterator[Cluster]:
    """A running cluster; `settings` are for the driver's Spark. At the end all its processes are ended."""
    names = ["driver", *(f"worker{number}" for number in range(1, workers + 1))]
    addresses = [f"10.77.0.{number}" for number in range(1, workers + 2)]
    lines = [f"{address} {name}" for name, address in zip(names, addresses, strict=True)]
    (shared / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    (shared / "conf").mkdir()
    (shared / "conf" / "spark-defaults.conf").write_text("".join(f"{name} {v}\n" for name, v in settings.items()))
    hosts: list[Host] = []
    try:
        for name, address in zip(names, addresses, strict=True):
            hosts.append(Host(name, address, shared))
        switch = hosts[0]
        switch.ip("link", "add", "bridge", "type", "bridge")
        switch.ip("addr", "add", f"{switch.address}/24", "dev", "bridge")
        switch.ip("link", "set", "bridge", "up")
        for host in hosts[1:]:
            host.connect(switch)
        cluster = Cluster(hosts)
        cluster.start_master()
        for host in cluster.workers:
            cluster.start_worker(host, cores)
        yield cluster
    finally:
        for host in hosts:
            host.end()


def _spark_class(name: str) -> list[str]:
    return [f"{Path(pyspark.__file__).parent / 'bin' / 'spark-class'}", f"org.apache.spark.deploy.{name}"]
