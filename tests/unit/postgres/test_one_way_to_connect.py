"""Connections to PostgreSQL are opened in one room, and what an address says itself is left alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import headgate
from headgate.model import ConfigError
from headgate.postgres import connection_string

_SOURCE = Path(headgate.__file__).parent
_CLASSES = {"psycopg", "Connection", "AsyncConnection", "PromptConnection", "PGconn", "ReplicationConnection"}
_POOLS = {"AsyncConnectionPool", "ConnectionPool", "AsyncNullConnectionPool", "NullConnectionPool"}


def _calls(tree: ast.AST) -> Iterator[str]:
    """Calls that open connections: `psycopg.connect(...)`, `x.AsyncConnection.connect(...)`, pools of psycopg's."""
    from_psycopg = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("psycopg")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node.func)
        *before, last = text.split(".")
        if (
            (last in ("connect", "connect_start") and before and before[-1] in _CLASSES)
            or (last in from_psycopg and (last == "connect" or last in _POOLS))
            or (last in _POOLS and before and before[-1] == "psycopg_pool")
        ):
            yield text


@pytest.mark.parametrize(
    "text",
    [
        "import psycopg\npsycopg.connect('')",
        "import psycopg\npsycopg.AsyncConnection.connect('')",
        "from psycopg import connect\nconnect('')",
        "from psycopg import pq\npq.PGconn.connect_start(b'')",
        "from psycopg_pool import AsyncConnectionPool\nAsyncConnectionPool('')",
        "import psycopg_pool\npsycopg_pool.ConnectionPool('')",
    ],
)
def test_the_search_finds_every_way_to_connect(text: str) -> None:
    assert list(_calls(ast.parse(text)))


def test_only_the_room_of_postgres_connects() -> None:
    found = {
        str(path.relative_to(_SOURCE)): calls
        for path in _SOURCE.rglob("*.py")
        if (calls := list(_calls(ast.parse(path.read_text()))))
    }
    assert set(found) == {"postgres/connect.py", "postgres/pool.py"}, found


def test_what_the_address_says_is_left_alone() -> None:
    said = {
        "application_name": "mine",
        "connect_timeout": "3",
        "keepalives_idle": "77",
        "tcp_user_timeout": "0",
        "target_session_attrs": "any",
    }
    url = "postgres://one,two/shop?" + "&".join(f"{name}={value}" for name, value in said.items())
    found = conninfo_to_dict(connection_string(url, "headgate test"))
    assert {name: str(found[name]) for name in said} == said
    assert found["keepalives_interval"] == "5"


def test_what_the_environment_says_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    monkeypatch.setenv("PGOPTIONS", "-c geqo=off")
    found = conninfo_to_dict(connection_string("postgres://one/shop", "headgate test", {"jit": "off"}))
    assert "connect_timeout" not in found
    assert found["options"] == "-c geqo=off -c jit=off"
    assert "options" not in conninfo_to_dict(connection_string("postgres://one/shop", "headgate test"))


def test_a_name_that_sessions_are_found_by_is_not_overruled() -> None:
    url = "postgres://one/shop?application_name=mine"
    found = conninfo_to_dict(connection_string(url, "n", application_name="headgate gateway writer"))
    assert found["application_name"] == "headgate gateway writer"


def test_no_part_of_an_address_that_is_none_is_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        connection_string("postgres ://ann:secret@one/shop", "headgate test")
    assert "secret" not in str(caught.value) + caught.value.remedy
    assert caught.value.__suppress_context__
