"""Ends Python daemons of Spark's that have nothing to do.

Spark starts one for each kind of work, four of them for a pipeline's start alone, and lets them live as long as itself:
150 MB for nothing. One that is gone is started again when it is wanted, which is how Spark survives their crashes.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import psutil
from pyspark.sql import SparkSession

__all__ = ["IdleDaemons"]

_log = logging.getLogger(__name__)

# Spark keeps a worker for a minute after its work: no daemon can have had one between two looks.
_EVERY_S = 30.0
_MODULE = "pyspark.daemon"


class IdleDaemons:
    """Looks after the daemons of the Java process that this process has started."""

    def __init__(self, spark: SparkSession) -> None:
        java = getattr(spark.sparkContext._gateway, "proc", None)  # None where Java has started this process
        self._java: int | None = java and java.pid
        self._idle: set[psutil.Process] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="idle-daemons", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def sweep(self) -> list[int]:
        """End those that had no worker the last time either, and return their process ids."""
        idle = {daemon for daemon in self._daemons() if _is_idle(daemon)}
        done, self._idle = idle & self._idle, idle
        for daemon in done:
            with suppress(psutil.Error):
                daemon.terminate()
        return [daemon.pid for daemon in done]

    def _daemons(self) -> list[psutil.Process]:
        try:
            children = psutil.Process(self._java).children() if self._java else []
        except psutil.Error:
            return []
        return [child for child in children if _is_daemon(child)]

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            if ended := self.sweep():
                _log.debug("ended Spark's idle Python daemons", extra={"pids": ended})


def _is_daemon(process: psutil.Process) -> bool:
    try:
        return _MODULE in process.cmdline()
    except psutil.Error:
        return False


def _is_idle(daemon: psutil.Process) -> bool:
    try:
        return not daemon.children()
    except psutil.Error:
        return False
