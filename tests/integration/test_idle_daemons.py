"""Spark's Python daemons that have nothing to do are ended, and Spark starts them again when it wants them."""

from __future__ import annotations

import time

import psutil
import pytest
from pyspark.sql import SparkSession

from headgate.pipeline.daemons import IdleDaemons

pytestmark = pytest.mark.spark


def _count(spark: SparkSession) -> int:
    return spark.range(1000).mapInArrow(lambda batches: batches, "id bigint").count()


def _working(java: int) -> set[int]:
    """The daemons that have a worker."""
    return {daemon.pid for daemon in psutil.Process(java).children() if _workers(daemon)}


def _workers(daemon: psutil.Process) -> list[psutil.Process]:
    """Its workers; none if it ends just now."""
    try:
        return daemon.children()
    except psutil.NoSuchProcess:
        return []


def _await_end_of_workers(java: int) -> None:
    """Spark ends those that have had nothing to do for a minute."""
    deadline = time.monotonic() + 300
    while workers := [worker for daemon in psutil.Process(java).children() for worker in _workers(daemon)]:
        assert time.monotonic() < deadline
        psutil.wait_procs(workers, timeout=1)


def _is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_an_idle_daemon_is_ended_and_comes_again(spark: SparkSession) -> None:
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    daemons = IdleDaemons(spark)
    while daemons.sweep():  # those that other tests have left idle
        pass
    assert _count(spark) == 1000
    working = _working(java)
    assert working
    assert not working & {*daemons.sweep(), *daemons.sweep()}, "its worker waits for more"
    _await_end_of_workers(java)
    assert not working & {*daemons.sweep()}, "idle, but perhaps only just"
    ended = daemons.sweep()
    assert working <= {*ended}
    psutil.wait_procs([psutil.Process(pid) for pid in ended if psutil.pid_exists(pid)], timeout=60)
    assert not any(map(_is_running, ended))
    assert _count(spark) == 1000


def test_a_session_without_a_java_of_ours_has_none(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext._gateway, "proc", None)
    assert IdleDaemons(spark).sweep() == []
