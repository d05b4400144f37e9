"""The Java process that Spark runs in: started once for each Python process, ahead of the session if somebody asks.

It takes seconds and a core; whoever has servers to start meanwhile begins with it, and opens the session later.

PySpark would start it through `spark-submit`, which tells it a home of Spark. Java then sends every Python worker to
the copy of PySpark that lies there in an archive of sources, and each of them compiles what it imports anew: 0.3 s of
CPU a process, of which a start has six. Without a home they import the PySpark that is installed beside headgate, like
the driver. So on one machine Java is started here, by the command that Spark's own launcher makes. On a cluster, where
somebody has a Spark or a Python for its workers of their own, and if the launcher fails, `spark-submit` does it.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from headgate.runtime.worker_log import VARIABLE, WorkerLog

__all__ = ["ensure_java"]

_starting = threading.Lock()
_LOOK_EVERY_S = 0.02
_OWN_SPARK = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")
# glibc gives every few of Java's hundred threads a heap of its own, which it rarely gives back.
_ARENAS = {"MALLOC_ARENA_MAX": "2"}


def ensure_java(settings: Mapping[str, str], master: str, output: Path) -> None:
    """Start Java with these settings of Spark, unless this process has one; whoever comes second waits for the first.

    What Java and the workers print goes to `output`, not to the terminal.
    """
    with _starting:
        if SparkContext._gateway is not None:
            return
        with output.open("wb") as file:
            command = _java_command(settings) if _is_ours(master) else None
            gateway = _start(command, file) if command else _submit(settings, file)
        SparkContext._ensure_initialized(gateway=gateway)


def _is_ours(master: str) -> bool:
    """Return whether Spark and the Python of its workers are those that this process runs with."""
    workers = os.environ.get("PYSPARK_PYTHON", sys.executable)
    is_local = master.startswith("local") and os.name == "posix"
    return is_local and Path(workers) == Path(sys.executable) and not any(map(os.environ.get, _OWN_SPARK))


def _start(command: Sequence[str], file: IO[bytes]) -> JavaGateway:
    """Start Java by this command, without a home of Spark."""
    with tempfile.TemporaryDirectory(prefix="headgate-java-") as directory:
        told = Path(directory, "address")
        variables = _variables() | {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(told), "SPARK_CONNECT_MODE": "0"}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Java ends when it is closed
            stdout=file,
            stderr=file,
            env=os.environ | variables,
            preexec_fn=_ignore_interrupt,
        )
        while not told.exists():
            if process.poll() is not None:
                raise RuntimeError(f"Java ended with {process.returncode} before it was ready")
            time.sleep(_LOOK_EVERY_S)
        with told.open("rb") as address:
            port, secret = read_int(address), UTF8Deserializer().loads(address)  # type: ignore[no-untyped-call]
    with _set_environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = process
    return gateway


def _java_command(settings: Mapping[str, str]) -> list[str]:
    """Ask Spark's launcher how Java is to be started; nothing if it cannot say.

    It prints a lone zero byte, then each argument with a zero byte behind it.
    """
    home = _find_spark_home()
    jars = Path(home, "jars")
    core = next(jars.glob("spark-core_*.jar"), None)
    if core is None:
        return []
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java"))
    command = [java, "-Xmx128m", "-cp", f"{jars}/*", "org.apache.spark.launcher.Main"]
    command += ["org.apache.spark.deploy.SparkSubmit", *_arguments(settings)]
    # It looks for the jars by the version of Scala: `spark-core_2.13-4.3.0.jar`.
    environment = os.environ | {"SPARK_HOME": home, "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0]}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return []
    _, _, arguments = done.stdout.partition(b"\0\n")
    return [os.fsdecode(argument) for argument in arguments.split(b"\0")[:-1]] if not done.returncode else []


def _arguments(settings: Mapping[str, str]) -> Sequence[str]:
    options = [option for key, value in settings.items() for option in ("--conf", f"{key}={value}")]
    return options + shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))


def _submit(settings: Mapping[str, str], file: IO[bytes]) -> JavaGateway:
    """Start Java as PySpark does."""
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    return launch_gateway(conf, _Arguments(stdout=file, stderr=file))  # type: ignore[no-untyped-call]


def _ignore_interrupt() -> None:
    """Ctrl-C in a terminal is for the service, which ends Java when the pipelines have stopped."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _set_environment(**variables: str) -> Iterator[None]:
    """Tell PySpark, which takes it from nowhere else, of a Java that runs already."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


class _Arguments(dict[str, Any]):
    """Of the process. PySpark sets its environment; Java hands that on to the workers."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value | _variables() if key == "env" else value)


def _variables() -> dict[str, str]:
    """What Java's environment has besides ours: there the name of the log reaches the workers and nobody else."""
    return _ARENAS | {VARIABLE: str(_worker_log().path)}


@cache
def _worker_log() -> WorkerLog:
    log = WorkerLog()
    atexit.register(log.close)
    return log
