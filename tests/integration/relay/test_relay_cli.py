"""`headgate relay` as its users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from headgate.cli import relay as relay_cli
from headgate.cli.app import app
from headgate.demo.network.rehearsal import Progress, Rehearsal
from headgate.model import OccupiedError
from tests.integration.relay.relay_follow import run
from tests.integration.relay.relay_serving import serving


def headgate(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headgate", "relay", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_simulation_ends_well_and_says_so() -> None:
    process = headgate("simulate", "--seconds", "1", "--lies", "0.2", "--rate", "100", "--workers", "1", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["ok"]
    assert result["honest"] == result["received"] == result["accepted"] > 100
    assert sum(result["dropped"].values()) == result["lies"] > 5


def test_a_simulation_that_does_not_add_up_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lossy(wanted: Rehearsal, as_json: bool) -> Progress:
        return Progress("http://x", 1, honest=5, accepted=4, received=4, missing=1)

    monkeypatch.setattr(relay_cli, "_rehearsed", lossy)
    result = CliRunner().invoke(app, ["relay", "simulate", "--json"])
    assert result.exit_code != 0
    assert "1 honest events are missing" in str(result.exception)


def test_a_relay_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    process = headgate("run", "--data-dir", str(tmp_path), "--port", "0", "--token", "quite-secret")
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        health = httpx.get(f"{url}/xrpc/_health", trust_env=False)
        assert health.json()["seq"] == 0
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    assert "stopped; the events stay" in err
    assert "quite-secret" not in err


def test_a_relay_is_light_and_starts_soon(tmp_path: Path) -> None:
    """It imports what it needs and nothing else; the ceilings are what a fresh one may weigh."""
    process = headgate("run", "--data-dir", str(tmp_path), "--port", "0")
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert httpx.get(f"{url}/_health", trust_env=False).status_code == 200
        running = psutil.Process(process.pid)
        used = running.cpu_times()
        assert running.memory_info().rss < 110 << 20  # 88 MiB on a quiet machine, of which libraries share a part
        assert used.user + used.system < 2.0  # half a second on a quiet machine
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_two_relays_do_not_share_a_directory(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path):
            with pytest.raises(OccupiedError, match="another process writes this event log"):
                async with serving(tmp_path):
                    pass

    run(test())
