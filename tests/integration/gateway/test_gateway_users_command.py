"""`headgate gateway users`, as an administrator types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, running
from tests.integration.gateway.test_gateway_users import plain

TIMEOUT_S = 60.0
ROOT = {"root": "root's password"}


@pytest.fixture
def config(tmp_path: Path, fresh_database: str) -> Path:
    file = tmp_path / "headgate.toml"
    users = f'[gateway.users]\nroot = "{ROOT["root"]}"\n'
    file.write_text(f'[project]\ndata_dir = "{tmp_path}/data"\n[postgres]\nurl = "{fresh_database}"\n{users}')
    return file


@pytest.fixture
def gateway(fresh_database: str) -> Iterator[GatewayThread]:
    with running(fresh_database, users=ROOT) as started:
        yield started


def users(config: Path, *arguments: str, said: str = "", **environment: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "headgate", "gateway", "users", *arguments, "--config", str(config)]
    done = subprocess.run(
        command, input=said, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_set_list_remove(config: Path, gateway: GatewayThread) -> None:
    assert users(config, "set", "ann", said="correct horse\n")[0] == 0
    code, shown, _ = users(config, "list")
    assert code == 0
    assert [line.split()[:2] for line in shown.splitlines()] == [
        ["root", "configuration"],
        ["ann", "SCRAM-SHA-256,"],
        ["ann", "SCRAM-SHA-512,"],
    ]
    assert "horse" not in shown
    with RawClient(gateway.port) as client:
        assert plain(client, "ann", "correct horse").error_code == 0
        assert users(config, "remove", "ann")[0] == 0
        assert client.receive_frame() is None
    assert [each["name"] for each in json.loads(users(config, "list", "--json")[1])] == ["root"]
    code, _, told = users(config, "remove", "ann")
    assert code == 2
    assert "headgate gateway users list" in told


def test_a_password_from_the_environment_for_one_mechanism(config: Path, fresh_database: str) -> None:
    more = ("--mechanism", "scram-sha-512", "--iterations", "16384")
    assert users(config, "set", "böb", *more, HEADGATE_GATEWAY_PASSWORD="correct horse")[0] == 0
    with psycopg.connect(fresh_database) as connection:
        rows = connection.execute("select name, mechanism, iterations from kafka.users").fetchall()
    assert rows == [("böb", "SCRAM-SHA-512", 16384)]


@pytest.mark.parametrize(
    ("arguments", "said", "told"),
    [
        (("set", "ann"), "short\n", "at least 8 characters"),
        (("set", "ann"), "", "at least 8 characters"),
        (("set", ""), "correct horse", "control characters"),
        (("set", "a\nb"), "correct horse", "control characters"),
        (("set", "ann", "--mechanism", "GSSAPI"), "correct horse", "GSSAPI"),
        (("set", "ann", "--iterations", "1"), "correct horse", "4096"),
    ],
)
def test_what_is_refused_says_why(config: Path, arguments: tuple[str, ...], said: str, told: str) -> None:
    code, _, error = users(config, *arguments, said=said)
    assert code == 2
    assert told in error


def test_a_user_of_the_configuration_keeps_that_password(config: Path, gateway: GatewayThread) -> None:
    code, _, told = users(config, "set", "root", said="another password\n")
    assert code == 0
    assert "in the configuration" in told
    with RawClient(gateway.port) as client:
        assert plain(client, "root", ROOT["root"]).error_code == 0
