"""A standalone Spark cluster on one machine: a master, and workers that have nothing of the driver's but its address.

Each worker has a network and a view of the file system of its own, where the driver's data directory is empty. That
needs Linux, root and iproute2; without them `why_not` says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from headgate.embedded.java import find_java

__all__ = ["Cluster", "running_cluster", "why_not"]

_WORKERS = 2


def why_not() -> str | None:
    """Why no such cluster can run here; None if one can."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "mount"))):
        return "workers with a network of their own need root, iproute2 and util-linux"
    done = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "this kernel lets nobody make network namespaces"


class Cluster:
    """Where it is, and what runs in it."""

    def __init__(self, directory: Path, hidden: Path) -> None:
        self._directory = directory
        self.hidden = hidden  # workers find nothing there
        self._name = f"hg{os.getpid() % 100_000}"
        self._net = f"10.213.{os.getpid() % 250}"
        self.host = f"{self._net}.1"
        self.master = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        _ip("link", "add", self._name, "type", "bridge")
        _ip("addr", "add", f"{self.host}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")
        with socket.socket() as free:
            free.bind((self.host, 0))
            port = free.getsockname()[1]
        self.master = f"spark://{self.host}:{port}"
        options = ["--host", self.host, "--port", str(port), "--webui-port", "0"]
        self._start("master", [], "deploy.master.Master", options, self.host)
        for number in range(_WORKERS):
            self._start_worker(number)

    def _start_worker(self, number: int) -> None:
        """Behind a cable to the bridge, and with an empty directory in the place of the driver's."""
        space, host = f"{self._name}w{number}", f"{self._net}.{number + 2}"
        _ip("netns", "add", space)
        _ip("link", "add", f"{space}a", "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", f"{space}a", "master", self._name, "up")
        _ip("-n", space, "addr", "add", f"{host}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(self.hidden)]
        options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        options += ["--work-dir", str(self._directory / f"work{number}"), self.master]
        self._start(f"worker{number}", ["ip", "netns", "exec", space, *hide], "deploy.worker.Worker", options, host)

    def _start(self, name: str, before: Sequence[str], module: str, options: list[str], host: str) -> None:
        spark = Path(pyspark.__file__).parent
        environ = {
            **os.environ,
            "JAVA_HOME": str(find_java(self._directory).home),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": host,
        }
        environ |= {"SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
        command = [*before, str(spark / "bin/spark-class"), f"org.apache.spark.{module}", *options]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def executors(self) -> list[psutil.Process]:
        """The executors that run now."""
        found = [child for each in self._processes for child in _below(each.pid)]
        return [each for each in found if "CoarseGrainedExecutorBackend" in " ".join(_command(each))]

    def stop(self) -> None:
        for process in self._processes:
            for child in _below(process.pid):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            process.send_signal(signal.SIGKILL)
            process.wait()
        for number in range(_WORKERS):
            _ip("netns", "delete", f"{self._name}w{number}", check=False)
        _ip("link", "delete", self._name, check=False)


@contextmanager
def running_cluster(directory: Path, hidden: Path) -> Iterator[Cluster]:
    """A master and two workers of one core each, which do not see what is in `hidden`."""
    directory.mkdir()
    hidden.mkdir(exist_ok=True)
    cluster = Cluster(directory, hidden)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)


def _below(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return process.cmdline()
    return []
