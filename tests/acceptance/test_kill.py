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

ROWS = 9000
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


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_kill_9_twice_then_catch_up(project: Project) -> None:
    project.write(CONFIG)
    for _ in range(2):
        process = project.start("run")
        wait_for(lambda: delivered(project) >= 1500, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = project.run("run", "--once")
    assert done.returncode == 0, done.stderr
    with Stack(project.directory / ".headgate", postgres=False) as endpoints:
        messages = read_stream(endpoints.nats_url, "KILL", ROWS)
    rows = [json.loads(message.data) for message in messages]
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert {message.subject for message in messages} == {f"kill.{row['kind']}" for row in rows}


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_the_batch_and_a_restart_repeats_nothing(project: Project, number: signal.Signals) -> None:
    project.write(CONFIG.replace("rows = 9000", "rows = 4000"))
    process = project.start("run")
    wait_for(lambda: delivered(project) >= 1000, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "batches delivered" in errors
    state = json.loads((project.directory / ".headgate/pipelines/orders/state.json").read_text())
    with Stack(project.directory / ".headgate", postgres=False) as endpoints:
        first = read_stream(endpoints.nats_url, "KILL", state["rows"])
    assert len(first) == state["rows"]
    done = project.run("run", "--once")
    assert done.returncode == 0, done.stderr
    with Stack(project.directory / ".headgate", postgres=False) as endpoints:
        messages = read_stream(endpoints.nats_url, "KILL", 4000)
    assert [json.loads(message.data)["id"] for message in messages] == list(range(4000))
