"""One process runs a data directory, and says what it does from its first moment on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.config import load
from headgate.control import Service
from headgate.control.state_lock import StateLock
from headgate.embedded import Endpoints
from headgate.model import ConnectError, OccupiedError
from tests.described import check_answer

CONFIG = """
[project]
data_dir = "data"
[postgres]
url = "{url}"
[nats]
url = "nats://127.0.0.1:1"
[control]
port = 0
[relay]
enabled = true
port = 0
[sources.s]
type = "random"
[destinations.d]
type = "memory"
[pipelines.p]
source = "s"
destinations = ["d"]
topic = "t"
enabled = false
"""


@pytest.fixture
def config(tmp_path: Path, endpoints: Endpoints) -> Path:
    path = tmp_path / "headgate.toml"
    path.write_text(CONFIG.format(url=endpoints.postgres_url))
    return path


def ask(url: str) -> httpx.Response:
    """What it answers is as described."""
    with httpx.Client(event_hooks={"response": [check_answer]}) as client:
        return client.get(url)


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


def test_a_second_headgate_is_refused_and_told_who_is_there(config: Path) -> None:
    said: list[Any] = []

    def during(start: Callable[[], str]) -> None:
        url = start()
        said.append(ask(f"{url}/status").json())
        said.append(ask(f"{url}/ready").status_code)
        said.append(command("status", "--config", str(config)))
        said.append(command("status", "--json", "--config", str(config)))

    service = Service(load(config), prepare=lambda _: during(lambda: service.url))
    try:
        service.start()
        status, ready, (code, shown), (_, as_json) = said
        assert (status["phase"], status["doing"], ready) == ("starting", "opening servers", 503)
        assert (code, "starting: opening servers" in shown) == (1, True)
        assert json.loads(as_json[: as_json.rindex("}") + 1])["phase"] == "starting"
        assert service.status()["phase"] == "running"
        assert ask(f"{service.url}/status").json()["relay"]["status"] == "running"
        assert ask(f"{service.url}/ready").status_code == 200
        second = Service(load(config))
        with pytest.raises(OccupiedError, match=f"process {os.getpid()} runs headgate"):
            second.start()
        assert httpx.get(f"{service.url}/health").status_code == 200, "the first one goes on"
        assert command("status", "--config", str(config))[0] == 0
        code, told = command("reset", "p", "--yes", "--config", str(config))
        assert (code != 0, f"process {os.getpid()}" in told) == (True, True)
        assert not (config.parent / "data/pipelines/p/resets").exists()
    finally:
        service.stop()
    assert command("status", "--config", str(config)) == (1, "not running; start with: headgate run\n1")
    assert command("reset", "p", "--yes", "--config", str(config))[0] == 0


def test_the_lock_goes_with_its_process_and_not_with_its_children(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib, time\n"
        "from headgate.control.state_lock import StateLock\n"
        "lock = StateLock(pathlib.Path(sys.argv[1])); lock.acquire()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.stdin.read(); os._exit(0)\n"
        "print(os.getpid(), flush=True); os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.wait(60) == -9
        lock = StateLock(tmp_path)
        deadline = time.monotonic() + 60
        while lock.owner() is not None:  # who looks at its files just then keeps them open for a moment
            assert time.monotonic() < deadline
        lock.acquire()
        assert StateLock(tmp_path).owner() == os.getpid()
        lock.release()
        lock.release()


def test_a_start_that_fails_leaves_the_directory_free(config: Path) -> None:
    def fail(_: Endpoints) -> None:
        raise ConnectError("no", remedy="wait")

    with pytest.raises(ConnectError):
        Service(load(config), prepare=fail).start()
    assert StateLock(config.parent / "data").owner() is None
    assert command("status", "--config", str(config))[0] == 1
