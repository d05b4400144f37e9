"""Every kind of connection, as the server and the socket see it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import make_conninfo

from headgate.embedded import Endpoints
from headgate.postgres import PromptConnection, connect, open_async, open_connection, open_raw
from headgate.postgres.pool import make_pool

_LINE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: 30_000}
_NAME = "headgate test of connections"


@pytest.fixture
def url(endpoints: Endpoints) -> str:
    assert endpoints.postgres_tcp_url is not None
    return endpoints.postgres_tcp_url


@contextmanager
def _line(descriptor: int) -> Iterator[socket.socket]:
    with socket.socket(fileno=os.dup(descriptor)) as line:
        yield line


def _check(descriptor: int, pid: int, url: str) -> None:
    with _line(descriptor) as line:
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert {option: line.getsockopt(socket.IPPROTO_TCP, option) for option in _LINE} == _LINE
    with connect(url) as other:
        row = other.execute("select application_name from pg_stat_activity where pid = %s", [pid]).fetchone()
    assert row == {"application_name": _NAME}


def test_an_ordinary_connection(url: str) -> None:
    with connect(url, _NAME, {"statement_timeout": "7s"}) as connection:
        _check(connection.fileno(), connection.info.backend_pid, url)
        assert connection.execute("show statement_timeout").fetchone() == {"statement_timeout": "7s"}
        assert connection.execute("show client_encoding").fetchone() == {"client_encoding": "UTF8"}


def test_one_with_errors_of_the_driver(url: str) -> None:
    with open_connection(url, _NAME) as connection:
        _check(connection.fileno(), connection.info.backend_pid, url)
    with pytest.raises(psycopg.OperationalError):
        open_connection(make_conninfo(url, dbname="there_is_no_such_database"), _NAME)


@pytest.mark.parametrize("more", [{}, {"replication": "database"}], ids=["copy", "replication"])
def test_a_raw_one(url: str, more: dict[str, str]) -> None:
    with open_raw(url, _NAME, None, **more) as connection:
        assert connection.status == pq.ConnStatus.OK
        _check(connection.socket, connection.backend_pid, url)


@pytest.mark.parametrize("kind", [psycopg.AsyncConnection, PromptConnection])
def test_one_for_asyncio(url: str, kind: type[psycopg.AsyncConnection[Any]]) -> None:
    async def look() -> None:
        async with await open_async(kind, url, _NAME) as connection:
            assert type(connection) is kind
            _check(connection.fileno(), connection.info.backend_pid, url)

    asyncio.run(look())


def test_those_of_a_pool(url: str) -> None:
    configured: list[PromptConnection] = []

    async def configure(connection: PromptConnection) -> None:
        configured.append(connection)

    async def look() -> None:
        pool = make_pool(PromptConnection, url, _NAME, size=2, configure=configure)
        async with pool, pool.connection() as connection:
            assert connection in configured
            assert connection.autocommit
            _check(connection.fileno(), connection.info.backend_pid, url)

    asyncio.run(look())


def test_the_address_names_itself(url: str) -> None:
    named = make_conninfo(url, application_name="mine", keepalives_idle="77")
    with open_connection(named, _NAME) as connection, _line(connection.fileno()) as line:
        row = connection.execute("select current_setting('application_name')").fetchone()
        assert row == ("mine",)
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
