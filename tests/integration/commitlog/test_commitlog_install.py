"""The schema: made once however many make it, by a role that may do little, and never by one that is too old."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from headgate.commitlog.install import VERSION, install
from headgate.embedded import Endpoints
from headgate.model import AuthError, StateError
from tests.gateway.servers import new_database


@pytest.fixture
def empty_url(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


def test_several_install_at_once(empty_url: str) -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            with psycopg.connect(empty_url) as connection:
                install(connection)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with psycopg.connect(empty_url) as connection:
        rows = connection.execute("select version from kafka.migrations order by 1").fetchall()
        assert rows == [(version,) for version in range(1, VERSION + 1)]


def test_a_newer_schema_is_left_alone(empty_url: str) -> None:
    with psycopg.connect(empty_url, autocommit=True) as connection:
        install(connection)
        connection.execute("insert into kafka.migrations (version, name) values (%s, 'tomorrow')", [VERSION + 1])
        with pytest.raises(StateError, match=f"version {VERSION + 1}"):
            install(connection)


def test_no_superuser_is_needed(empty_url: str) -> None:
    role = f"r{uuid4().hex[:8]}"
    with psycopg.connect(empty_url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        try:
            connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
            with pytest.raises(AuthError, match="permission denied"):
                install(connection)
            connection.execute("reset role")
            connection.execute(sql.SQL("grant create on database {} to {}").format(database, sql.Identifier(role)))
            connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
            install(connection)
        finally:
            connection.execute("reset role")
            connection.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(role)))
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
