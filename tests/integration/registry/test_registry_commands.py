"""`headgate registry`, and `[registry]` beside pipelines."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.config import load
from headgate.control.service import Service
from headgate.model import UsageError
from tests.integration.registry.test_registry_api import USER, register

TIMEOUT_S = 60.0


@pytest.fixture
def file(tmp_path: Path, database: str) -> Path:
    path = tmp_path / "headgate.toml"
    path.write_text(f"""
[project]
data_dir = "data"
[postgres]
url = "{database}"
[nats]
url = "nats://127.0.0.1:1"
[control]
port = 0
[registry]
enabled = true
port = 0
users = {{ ann = "s3cret-of-schemas" }}
""")
    return path


def test_the_registry_serves_until_ctrl_c(file: Path) -> None:
    command = [sys.executable, "-m", "headgate", "registry", "--port", "0", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().removeprefix("schema.registry.url=")
        assert httpx.get(f"{url}/subjects", timeout=TIMEOUT_S).status_code == 401
        assert httpx.get(f"{url}/subjects", timeout=TIMEOUT_S, auth=("ann", "s3cret-of-schemas")).json() == []
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert "stopped" in errors
    assert "Traceback" not in errors


def test_strangers_need_names() -> None:
    result = CliRunner().invoke(app, ["registry", "--host", "0.0.0.0"])
    assert isinstance(result.exception, UsageError)
    assert "users" in result.exception.message


def test_run_starts_it_beside_the_pipelines_and_again_when_it_dies(file: Path) -> None:
    service = Service(load(file))
    try:
        service.start()
        status = service.status()["registry"]
        assert status["status"] == "running"
        with httpx.Client(base_url=status["url"], auth=("ann", "s3cret-of-schemas"), timeout=TIMEOUT_S) as client:
            register(client, "users", USER)
        assert httpx.get(f"{service.url}/ready").json() == {"ready": True, "pipelines": {"registry": "running"}}
        wait_for(service, "headgate_registry_subjects 1.0")
        assert "s3cret" not in httpx.get(service.url).text
        subprocess.run(["kill", "-9", str(status["pid"])], check=True)
        wait_for(service, "headgate_registry_restarts_total 1.0")
        wait_for(service, "headgate_registry_up 1.0")
        assert service.status()["registry"]["url"] == status["url"]
        answer = httpx.get(f"{status['url']}/subjects", auth=("ann", "s3cret-of-schemas"), timeout=TIMEOUT_S)
        assert answer.json() == ["users"]
    finally:
        service.stop()
    assert service.status()["registry"]["status"] == "stopped"


def wait_for(service: Service, line: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while line not in httpx.get(f"{service.url}/metrics").text:
        assert time.monotonic() < deadline, line
        threading.Event().wait(0.1)
