"""The schema: made once however many make it, by a role that may do little, and never by one that is too old."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from headgate.commitlog.append import append, append_arguments
from headgate.commitlog.install import install, plan
from headgate.commitlog.parameters import TYPES_SQL, register
from headgate.commitlog.prepare import Batch
from headgate.embedded import Endpoints
from headgate.model import AuthError, OccupiedError, StateError
from headgate.postgres.migrations import migrate
from tests.gateway.servers import new_database
from tests.integration.commitlog.log_topics import batch, create

VERSIONS = sorted(step.key for step in plan().steps if isinstance(step.key, int))  # numbers may be missing
VERSION = VERSIONS[-1]


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
        assert rows == [(version,) for version in VERSIONS]


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


def _install_version(connection: psycopg.Connection, version: int) -> None:
    """As an older headgate has left it."""
    migrate(connection, replace(plan(), steps=plan().steps[:version]))


def _append_as_before(connection: psycopg.Connection, batches: list[tuple[int, Batch]]) -> list[tuple[int, ...]]:
    """As gateways of the versions before say it: the error and the first offset of each batch."""
    row = connection.execute(TYPES_SQL).fetchone()
    assert row is not None
    register(connection, *row)
    statement = "select error, base_offset from kafka.append(%b, %b, %b)"
    return connection.execute(statement, append_arguments(batches, is_durable=True)).fetchall()


def test_a_log_of_the_version_before_goes_on(empty_url: str) -> None:
    """Offsets, sequences, rights, and a gateway of that version that is still running."""
    reader = f"r{uuid4().hex[:8]}"
    role = sql.Identifier(reader)
    with psycopg.connect(empty_url, autocommit=True) as connection:
        _install_version(connection, 7)
        parts = create(connection, "old", 2)
        first = batch(b"a", b"b", producer=5, epoch=0, sequence=0)
        _append_as_before(connection, [(parts[0], first), (parts[1], batch(b"x"))])
        connection.execute(sql.SQL("create role {}").format(role))
        try:
            for on in ("schema kafka", "kafka.topics", "kafka.spans", "kafka.batches", "kafka.partitions"):
                right = "usage" if on.startswith("schema") else "select"
                connection.execute(sql.SQL(f"grant {right} on {on} to {{}}").format(role))
            connection.execute(sql.SQL("grant update (size) on kafka.partitions to {}").format(role))
            install(connection)
            second = batch(b"c", producer=5, epoch=0, sequence=2)
            outcomes = append(connection, [(parts[0], first), (parts[0], second), (parts[1], batch(b"y"))])
            assert [each.base_offset for each in outcomes] == [0, 2, 1]
            rows = connection.execute("select value, global_offset from kafka.messages order by 2")
            assert list(rows) == [(value, at) for at, value in enumerate([b"a", b"b", b"x", b"c", b"y"])]
            connection.execute(sql.SQL("set role {}").format(role))
            rows = connection.execute("select value from kafka.read('old', 0, 1, 10)")
            assert list(rows) == [(b"b",), (b"c",)]
            rights = connection.execute(
                "select has_column_privilege('kafka.partitions', 'size', 'update'),"
                " has_table_privilege('kafka.partitions', 'insert')"
            )
            assert list(rights) == [(True, False)]
            connection.execute("reset role")
        finally:
            connection.execute("reset role")
            connection.execute(sql.SQL("drop owned by {}; drop role {}").format(role, role))
        # What a gateway of version 7 says, of topics, retention and compaction.
        with connection.transaction():
            connection.execute("select from kafka.head for update")
            connection.execute("update kafka.partitions set size = size - 10 where part_id = %s", [parts[0]])
        connection.execute("update kafka.partitions set compact_next = next_offset where part_id = %s", [parts[0]])
        rows = connection.execute(
            "select size, next_offset, compact_next from kafka.partitions where part_id = %s", [parts[0]]
        )
        assert list(rows) == [(first.size + second.size - 10, 3, 3)]
        assert list(connection.execute("select * from kafka.delete_records(%s, 1)", [parts[0]])) == [(1, 3)]
        connection.execute("delete from kafka.producers where seen_at < now() - interval '1 day'")
        connection.execute("select kafka.delete_topic(id) from kafka.topics")
        assert list(connection.execute("select * from kafka.partitions")) == []
        assert list(connection.execute("select count(*) from kafka.states where part_id > 0")) == [(0,)]


def test_an_upgrade_gives_way_to_an_open_transaction(empty_url: str) -> None:
    """Appends do not queue behind it."""
    with psycopg.connect(empty_url) as backup, psycopg.connect(empty_url, autocommit=True) as connection:
        _install_version(connection, 7)
        (part,) = create(connection, "old")
        backup.execute("select from kafka.partitions")
        with pytest.raises(OccupiedError, match="open"):
            install(connection)
        assert _append_as_before(connection, [(part, batch(b"a"))]) == [(0, 0)]
        backup.rollback()
        install(connection)
        assert append(connection, [(part, batch(b"b"))])[0].base_offset == 1


def test_changes_through_the_view_lose_nothing_of_an_append(empty_url: str) -> None:
    """A statement that began before an append and waits for it takes over what that has changed."""
    with psycopg.connect(empty_url) as writer, psycopg.connect(empty_url, autocommit=True) as connection:
        install(connection)
        (part,) = create(connection, "t")
        append(writer, [(part, batch(b"a"))])
        waits = threading.Thread(
            target=connection.execute, args=["update kafka.partitions set size = size - 1, compact_next = 1"]
        )
        waits.start()
        with psycopg.connect(empty_url, autocommit=True) as other:
            while not list(other.execute("select from pg_stat_activity where wait_event_type = 'Lock'")):
                time.sleep(0.01)
        writer.commit()
        waits.join()
        rows = connection.execute("select next_offset, size, compact_next from kafka.partitions")
        assert list(rows) == [(1, batch(b"a").size - 1, 1)]
