"""`headgate gateway acls` and `headgate gateway quotas`, as an administrator types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.gateway.access import USERS, login
from tests.gateway.servers import running

TIMEOUT_S = 60.0


@pytest.fixture
def config(tmp_path: Path, fresh_database: str) -> Path:
    file = tmp_path / "headgate.toml"
    file.write_text(f'[project]\ndata_dir = "{tmp_path}/data"\n[postgres]\nurl = "{fresh_database}"\n')
    return file


def command(config: Path, *arguments: str) -> tuple[int, str, str]:
    line = [sys.executable, "-m", "headgate", "gateway", *arguments, "--config", str(config)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout, done.stderr


READS = ("User:alice", "--operation", "read", "--operation", "WRITE", "--topic", "orders.", "--prefix")


def test_acls(config: Path, fresh_database: str) -> None:
    assert command(config, "acls", "add", *READS)[0] == 0
    assert command(config, "acls", "add", "User:bob", "--operation", "ALL", "--cluster", "--deny")[0] == 0
    code, shown, _ = command(config, "acls", "list")
    assert code == 0
    assert shown.splitlines() == [
        "User:alice  ALLOW READ on TOPIC orders....",
        "User:alice  ALLOW WRITE on TOPIC orders....",
        "User:bob  DENY ALL on CLUSTER kafka-cluster",
    ]
    with running(fresh_database, users=USERS, authorization="acls") as gateway, login(gateway, "alice") as client:
        assert client.fetch("orders.eu").responses[0].partitions[0].error_code == 3, "allowed, and not there"
        assert client.fetch("other").responses[0].partitions[0].error_code == 29
    assert len(json.loads(command(config, "acls", "list", "--topic", "orders.eu", "--json")[1])) == 2
    assert json.loads(command(config, "acls", "list", "--topic", "order", "--json")[1]) == []
    assert command(config, "acls", "remove", *READS)[0] == 0
    code, _, told = command(config, "acls", "remove", *READS)
    assert code == 2
    assert "headgate gateway acls list" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("User:a", "--operation", "READ"), "about one thing"),
        (("User:a", "--operation", "READ", "--topic", "t", "--group", "g"), "about one thing"),
        (("alice", "--operation", "READ", "--topic", "t"), "User:name"),
        (("User:a", "--operation", "REED", "--topic", "t"), "REED"),
        (("User:a", "--operation", "READ", "--topic", ""), "1 to 1000"),
    ],
)
def test_what_is_no_acl(config: Path, arguments: tuple[str, ...], told: str) -> None:
    code, _, error = command(config, "acls", "add", *arguments)
    assert code == 2
    assert told in error


def test_quotas(config: Path, fresh_database: str) -> None:
    assert command(config, "quotas", "set", "--user", "alice", "--producer-byte-rate", "1000")[0] == 0
    more = ("--user", "*", "--client-id", "c", "--consumer-byte-rate", "5", "--request-percentage", "50")
    assert command(config, "quotas", "set", *more)[0] == 0
    assert command(config, "quotas", "list")[1].splitlines() == [
        "any user with client id c  consumer_byte_rate 5, request_percentage 50",
        "user alice  producer_byte_rate 1000",
    ]
    assert command(config, "quotas", "remove", "--user", "*", "--client-id", "c")[0] == 0
    with psycopg.connect(fresh_database) as connection:
        rows = connection.execute("select user_name, client_id, key, value from kafka.quotas").fetchall()
    assert rows == [("alice", "", "producer_byte_rate", 1000.0)]
    assert command(config, "quotas", "remove", "--user", "bob")[0] == 2
    assert command(config, "quotas", "set", "--producer-byte-rate", "1")[0] == 2
    assert command(config, "quotas", "set", "--user", "alice")[0] == 2
    assert command(config, "quotas", "set", "--user", "alice", "--producer-byte-rate", "-1")[0] == 2
