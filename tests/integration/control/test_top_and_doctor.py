"""`headgate top` and `headgate doctor` on a control plane that serves, and on none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from typer.testing import CliRunner, Result

from headgate.cli.app import app
from headgate.cli.top import blocks
from headgate.config import load
from headgate.control.doctor import gather, secrets_of
from headgate.embedded import Endpoints
from headgate.model import ConnectError, DeliveryError, Status

from .conftest import ROUTED, Shop, serving
from .test_control_pages import SECRETS

TOKEN = "a-token-of-a-test"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Shop, str]]:
    (tmp_path / "headgate.toml").write_text(ROUTED)
    shop = Shop(tmp_path / "headgate.toml")
    for client in serving(shop, TOKEN):
        yield shop, str(client.base_url)


def run(*command: str) -> Result:
    return CliRunner().invoke(app, command, env={"HEADGATE_TOKEN": TOKEN})


def test_top_shows_health_cause_and_remedy(guarded: tuple[Shop, str]) -> None:
    shop, url = guarded
    shop.supervisor("p").reporter.status(Status.ERROR, DeliveryError("[red]the stream is full", remedy="raise it"))
    shop.supervisor("plain").reporter.batch(rows=1234, payload_bytes=1, duplicates=0, seconds=0.5)
    shown = run("top", "--once", "--url", url).stdout
    for text in ("1 error", "[red]the stream is full", "try: raise it", "1,234", "plain", "0 slots at risk", "500 ms"):
        assert text in shown, text
    assert isinstance(run("top", "--once", "--url", "http://127.0.0.1:1").exception, ConnectError)


def test_a_sparkline_of_characters() -> None:
    assert blocks([0, 5, 10]) == "▁▅█"
    assert blocks([0, 0]) == "▁▁"
    assert blocks([]) == ""


def test_a_report_has_everything_and_no_secret(tmp_path: Path, endpoints: Endpoints) -> None:
    (tmp_path / "headgate.toml").write_text(SECRETS.format(mapping="http://127.0.0.1:1/"))
    config = load(tmp_path / "headgate.toml")
    secrets = set(re.findall(r"s3cret-[\w-]+", SECRETS))
    assert all(any(secret in known for known in secrets_of(config)) for secret in secrets)
    logs = config.project.data_dir / "logs"
    logs.mkdir(parents=True)
    said = [f"connecting with {secret}" for secret in sorted(secrets)]
    said += [
        "failed: nats://someone:pass-of-a-url@host:4222",
        "ERROR:  duplicate key",
        "DETAIL:  Key (id)=(a-row-value)",
    ]
    said += ["STATEMENT:  insert into t", "\tvalues ('a-row-value')", "LOG:  after the statement"]
    (logs / "server.log").write_text("\n".join(said))
    status = {
        "pipelines": [{"pipeline": "cdc", "error": {"message": "bad s3cret-kafka"},
                       "routing": {"unmatched_samples": ["a-row-value"]}}],
        "broker": {"problem": 'subscription 5 of the group g is parked: invalid input "a-row-value"'},
        "relay": {"counters": {"latest": ["a-row-value"]}},
    }  # fmt: skip
    answers = {"/status": status, "/pipelines": status, "/pipelines/cdc/offsets": {"reached": "0/1"}}
    text = gather(config, lambda path: json.loads(json.dumps(answers[path])))
    for part in (
        "pyspark",
        '"slot": "s"',
        "duplicate key",
        "subscription 5 of the group g is parked",
        "after the statement",
        "cannot be had",
        '"reached": "0/1"',
    ):
        assert part in text, part
    for secret in (*secrets, "a-row-value", "pass-of-a-url", "someone"):
        assert secret not in text, secret


def test_a_report_looks_at_slots_and_locks(tmp_path: Path, endpoints: Endpoints) -> None:
    url = endpoints.postgres_url
    assert url is not None
    (tmp_path / "headgate.toml").write_text(ROUTED + f'\n[postgres]\nurl = "{url}"\n')
    with psycopg.connect(url) as connection:
        connection.execute("select pg_advisory_xact_lock(4711), 'a-row-value'")
        output = tmp_path / "report.txt"
        result = run("doctor", "--config", str(tmp_path / "headgate.toml"), "--output", str(output))
    assert result.exit_code == 0, result.output
    text = output.read_text()
    assert output.stat().st_mode & 0o077 == 0
    assert "headgate is not running" in text
    assert '"locktype": "advisory"' in text
    assert '"wal_level": "logical"' in text
    assert "a-row-value" not in text


def test_a_report_of_a_running_headgate(guarded: tuple[Shop, str], tmp_path: Path) -> None:
    _, url = guarded
    assert httpx.get(f"{url}/health").status_code == 200
    result = run("doctor", "--url", url, "--output", str(tmp_path / "report.txt"))
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.txt").read_text()
    assert '"pipeline": "plain"' in text
    assert TOKEN not in text
