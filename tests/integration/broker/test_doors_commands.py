"""`headgate broker serve`, its webhooks, and the broker of `headgate run`, as typed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psycopg
import pytest
from typer.testing import CliRunner, Result

from headgate.cli.app import app
from headgate.config import load
from headgate.config.broker import BrokerSection
from headgate.control import Service
from headgate.model import ConfigError, UsageError

TIMEOUT_S = 30


def webhooks(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["broker", "webhooks", *arguments, "--postgres", url])


def test_webhooks_are_added_listed_and_removed(database: str, tmp_path: Path) -> None:
    added = webhooks(database, "add", "crm", "https://crm.example/in", "--topic", "a", "-t", "b", "-H", "x-key: 1")
    assert added.stdout.startswith("whsec_")
    file = tmp_path / "secret"
    file.write_text("a secret of mine\n")
    changed = webhooks(
        database, "add", "crm", "https://crm.example/2", "--condition", "e.payload ? (s.params ->> 'key')",
        "--params", '{"key": "n"}', "--secret-file", str(file), "--retry", "5", "--retry", "50",
    )  # fmt: skip
    assert (changed.exit_code, changed.stdout) == (0, "")
    with psycopg.connect(database) as db:
        rows = db.execute("select url, secret, headers, retries_s from headgate.webhooks").fetchall()
    assert rows == [("https://crm.example/2", "a secret of mine", {}, [5.0, 50.0])]
    listed = webhooks(database, "list", "--json")
    [shown] = json.loads(listed.stdout)
    assert (shown["name"], shown["address"], shown["params"]) == ("crm", "https://crm.example", {"key": "n"})
    assert "a secret" not in listed.stdout
    assert webhooks(database, "remove", "crm").exit_code == 0
    assert isinstance(webhooks(database, "remove", "crm").exception, UsageError)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("x", "https://host/"), UsageError),
        (("x", "https://host/", "--topic", "a", "--condition", "true"), UsageError),
        (("x", "ftp://host/", "--topic", "a"), ConfigError),
        (("x", "https://me:pw@host/", "--topic", "a"), UsageError),
        (("no name", "https://host/", "--topic", "a"), UsageError),
        (("x", "https://host/", "--condition", "pg_sleep(1) is null"), UsageError),
        (("x", "https://host/", "--condition", "true", "--params", "{"), UsageError),
        (("x", "https://host/", "--topic", "a", "-H", "Host: other"), ConfigError),
        (("x", "https://host/", "--topic", "a", "--secret-file", "/nowhere/at/all"), UsageError),
    ],
    ids=["nothing", "both", "scheme", "password", "name", "condition", "params", "header", "no-secret"],
)
def test_webhooks_that_are_refused(template: tuple[str, str], arguments: tuple[str, ...], kind: type) -> None:
    server, name = template
    result = webhooks(psycopg.conninfo.make_conninfo(server, dbname=name), "add", *arguments)
    assert isinstance(result.exception, kind), result.output


def test_the_doors_are_served_until_ctrl_c(database: str) -> None:
    command = [sys.executable, "-m", "headgate", "broker", "serve", "--port", "0", "--postgres", database]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.stream("GET", f"{url}/events?topic=t", timeout=TIMEOUT_S) as response:
            lines = response.iter_lines()
            next(lines)
            with psycopg.connect(database, autocommit=True) as db:
                db.execute("select headgate.publish('t', '{\"n\": 1}')")
            assert 'data: {"n": 1}' in (next(lines) for _ in range(10))
            process.send_signal(signal.SIGINT)
            assert list(lines)[-2:] == [": the server stops", ""]
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert "stopped" in errors
    assert "Traceback" not in errors


def test_strangers_need_a_token(database: str) -> None:
    result = CliRunner().invoke(app, ["broker", "serve", "--host", "0.0.0.0", "--postgres", database])
    assert isinstance(result.exception, UsageError)
    assert "token" in result.exception.message


def test_run_starts_the_broker_beside_the_pipelines(database: str, tmp_path: Path) -> None:
    path = tmp_path / "headgate.toml"
    path.write_text(f"""
[project]
data_dir = "data"
[postgres]
url = "{psycopg.conninfo.make_conninfo(database)}"
[nats]
url = "nats://127.0.0.1:1"
[control]
port = 0
[broker]
enabled = true
port = 0
token = "s3cret-of-doors"
""")
    service = Service(load(path))
    try:
        service.start()
        broker = service.status()["broker"]
        assert broker["status"] == "running"
        assert httpx.get(f"{broker['url']}/events?topic=t").status_code == 401
        assert httpx.get(f"{service.url}/ready").json() == {"ready": True, "pipelines": {"broker": "running"}}
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("select headgate.publish('later', '1', due_at => now() + interval '1 hour')")
        deadline = time.monotonic() + 60
        while "headgate_broker_scheduled 1.0" not in httpx.get(f"{service.url}/metrics").text:
            assert time.monotonic() < deadline, "what is in the broker is not told"
            threading.Event().wait(0.1)
        assert service.status()["broker"]["problem"] is None
        page = httpx.get(service.url).text
        assert broker["url"] in page
        assert "s3cret" not in page
    finally:
        service.stop()
    assert service.status()["broker"]["status"] == "stopped"


def test_a_pooler_in_the_configuration() -> None:
    """What `[broker]` says about notifications reaches the process; the address is not shown."""
    section = BrokerSection.model_validate(
        {"url": "postgres://pooler/shop", "listen_url": "postgres://u:s3cret@db/shop"}
    )
    options = section.options("postgres://other")
    assert options.postgres_url == "postgres://pooler/shop"
    assert options.connecting.listen_url == "postgres://u:s3cret@db/shop"
    assert "s3cret" not in f"{section!r} {options!r}"
    assert not BrokerSection.model_validate({"listen": False}).options("x").connecting.listen
