"""The Java process that Spark runs in: started once for each Python process, ahead of the session if somebody asks.

It takes seconds and a core; whoever has servers to start meanwhile begins with it, and opens the session later.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from headgate.runtime.worker_log import VARIABLE, WorkerLog

__all__ = ["ensure_java"]

_starting = threading.Lock()


def ensure_java(settings: Mapping[str, str], output: Path) -> None:
    """Start Java with these settings of Spark, unless this process has one; whoever comes second waits for the first.

    What Java and the workers print goes to `output`, not to the terminal.
    """
    with _starting:
        if SparkContext._gateway is not None:
            return
        conf = SparkConf(loadDefaults=False)
        for key, value in settings.items():
            conf.set(key, value)
        with output.open("wb") as file:
            gateway = launch_gateway(conf, _Arguments(stdout=file, stderr=file))  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


class _Arguments(dict[str, Any]):
    """Of the process. PySpark sets its environment; Java hands that on to the workers, which log to who is named there.

    In our own environment the name would reach whatever else this process starts meanwhile.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value | {VARIABLE: str(_worker_log().path)} if key == "env" else value)


@cache
def _worker_log() -> WorkerLog:
    log = WorkerLog()
    atexit.register(log.close)
    return log
