"""The commands and the SQL of docs/gateway.md about rights and quotas do what stands there."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from headgate.commitlog.install import install
from tests.documents import Terminal, block, blocks
from tests.integration.documents.test_commands_of_documents import configure, url

__all__ = ["url"]

PAGE = "docs/gateway.md"
pytestmark = pytest.mark.timeout(300)


def statements(beginning: str) -> bytes:
    (found,) = [each.text for each in blocks(PAGE) if each.language == "sql" and each.text.startswith(beginning)]
    return found.encode()


def test_acls(url: str, tmp_path: Path) -> None:
    configure(tmp_path, url)
    with Terminal(tmp_path) as terminal:
        terminal.play(block(PAGE, "headgate gateway acls add"))
        left = json.loads(terminal.run("headgate gateway acls list --json"))
    assert {each["operation"] for each in left} == {"READ", "WRITE"}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate kafka.acls")
        connection.execute(statements("insert into kafka.acls"))


def test_quotas(url: str, tmp_path: Path) -> None:
    configure(tmp_path, url)
    with Terminal(tmp_path) as terminal:
        terminal.play(block(PAGE, "headgate gateway quotas set"))
        (left,) = json.loads(terminal.run("headgate gateway quotas list --json"))
    assert left == {"user": "*", "client_id": "reports", "consumer_byte_rate": 1048576.0}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements("insert into kafka.quotas"))


def test_a_topic_is_shared(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        install(connection)
        connection.execute("insert into kafka.topics (name) values ('orders')")
        connection.execute("create role alice")
        try:
            connection.execute(statements("select kafka.share_topic"))
            rows = connection.execute(
                "select may_read, may_write from kafka.rights_of('alice', array['orders'], '{}') where kind = 'topic'"
            ).fetchall()
        finally:
            connection.execute("drop owned by alice; drop role alice")
    assert rows == [(True, True)]
