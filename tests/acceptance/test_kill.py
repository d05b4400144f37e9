"""Killing headgate with -9 in the middle and starting it again loses nothing and repeats nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from headgate.embedded import Stack
from tests.acceptance.conftest import Project
from tests.streams import read_stream

ROWS = 25_000
CONFIG = f"""
[control]
port = 0

[sources.orders]
type = "random"
rows_per_second = 1500
rows = {ROWS}
customers = 50

[destinations.events]
type = "nats"
stream = "KILL"
subjects = ["kill.>"]

[pipelines.orders]
source = "orders"
destinations = ["events"]
topic = "kill.{{kind}}"
"""


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def delivered(project: Project) -> int:
    status = project.status()
    return status["pipelines"][0]["rows_total"] if status and status["pipelines"] else 0


def recorded(project: Project) -> int:
    """Rows that the state says are delivered, by all runs."""
    state = project.directory / ".headgate/pipelines/orders/state.json"
    return int(json.loads(state.read_text())["rows"]) if state.exists() else 0


@pytest.mark.spark
@pytest.mark.timeout(280)
def test_killed_and_stopped_it_loses_and_repeats_nothing(project: Project) -> None:
    """kill -9, then a clean stop by each signal, which finishes the batch and records it, then the rest."""
    project.write(CONFIG)
    process = project.start("run")
    wait_for(lambda: delivered(project) >= 1000, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for number in (signal.SIGINT, signal.SIGTERM):
        process = project.start("run")
        # On a slow machine the runs before may have delivered everything.
        wait_for(lambda: delivered(project) >= 500 or (bool(project.status()) and recorded(project) >= ROWS), process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "batches delivered" in errors
        with Stack(project.directory / ".headgate", postgres=False) as endpoints:
            assert len(read_stream(endpoints.nats_url, "KILL", recorded(project))) == recorded(project)
    done = project.run("run", "--once")
    assert done.returncode == 0, done.stderr
    with Stack(project.directory / ".headgate", postgres=False) as endpoints:
        messages = read_stream(endpoints.nats_url, "KILL", ROWS)
    rows = [json.loads(message.data) for message in messages]
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert {message.subject for message in messages} == {f"kill.{row['kind']}" for row in rows}
