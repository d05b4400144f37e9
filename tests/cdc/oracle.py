"""PostgreSQL's own logical replication as the judge: a native subscription into a second database.

The second database lies on the same server. CREATE SUBSCRIPTION would wait there for itself when it makes its slot,
so the slot is made first.
"""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.wire.pgoutput import parse_lsn
from tests.cdc.catalog import pin_session
from tests.cdc.shop import Connection, Shop
from tests.cdc.tables import Table

__all__ = ["SERVER_SETTINGS", "Oracle"]

# For the server under the tests: a subscription whose connection broke otherwise waits five seconds to try again.
SERVER_SETTINGS = {"wal_retrieve_retry_interval": "200ms"}

_POLL_S = 0.02


class Oracle:
    """A replica of a shop made by PostgreSQL alone, from the moment it is entered until it is left.

    `url` is a superuser's, through the server's socket. The shop must be published and still be empty.
    """

    def __init__(self, url: str, shop: Shop) -> None:
        self._url = url
        self._shop = shop
        self._name = f"{shop.name}_oracle"
        self._replica_url = make_conninfo(url, dbname=self._name)

    def __enter__(self) -> Self:
        try:
            self._create()
        except BaseException:
            self.drop()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.drop()

    def _create(self) -> None:
        name, publication = sql.Identifier(self._name), sql.Identifier(self._shop.publication)
        with _connect(self._url) as source:
            source.execute(sql.SQL("create database {}").format(name))
            source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self._name])
        with _connect(self._replica_url) as replica:
            self._shop.create(replica)
            query = sql.SQL(
                "create subscription {} connection {} publication {}"
                " with (create_slot = false, slot_name = {}, copy_data = false)"
            )
            replica.execute(query.format(name, sql.Literal(self._url), publication, name))

    def drop(self) -> None:
        """Remove subscription, slot and database, as far as they were made."""
        name = sql.Identifier(self._name)
        with _connect(self._url) as source:
            if source.execute("select from pg_database where datname = %s", [self._name]).rowcount:
                self._drop_subscription(name)
                source.execute(sql.SQL("drop database {} with (force)").format(name))
            self._drop_slot(source)

    def _drop_subscription(self, name: sql.Identifier) -> None:
        with _connect(self._replica_url) as replica:
            if replica.execute("select from pg_subscription where subname = %s", [self._name]).rowcount:
                replica.execute(sql.SQL("alter subscription {} disable").format(name))
                replica.execute(sql.SQL("alter subscription {} set (slot_name = none)").format(name))
                replica.execute(sql.SQL("drop subscription {}").format(name))

    def _drop_slot(self, source: Connection, timeout_s: float = 10.0) -> None:
        """The slot is busy until the disabled subscription's connection has ended."""
        deadline = time.monotonic() + timeout_s
        query = "select active_pid from pg_replication_slots where slot_name = %s"
        while row := source.execute(query, [self._name]).fetchone():
            if row[0] is None:
                source.execute("select pg_drop_replication_slot(%s)", [self._name])
            elif time.monotonic() > deadline:
                source.execute("select pg_terminate_backend(%s)", [row[0]])
            time.sleep(_POLL_S)

    def wait_for(self, lsn: int | None = None, timeout_s: float = 60.0) -> None:
        """Wait until the replica has everything up to an LSN; by default, up to now."""
        with _connect(self._url) as source:
            target = _current_lsn(source) if lsn is None else lsn
            deadline = time.monotonic() + timeout_s
            while (reached := self._reached(source)) < target:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the subscription is {target - reached} bytes behind after {timeout_s:.0f} s")
                time.sleep(_POLL_S)

    def _reached(self, source: Connection) -> int:
        query = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s"
        row = source.execute(query, [self._name]).fetchone()
        assert row is not None, "the subscription's slot is gone"
        return parse_lsn(row[0])

    def compare(self, limit: int = 5) -> list[str]:
        """Which rows the source and the replica do not both have, in readable lines. Call `wait_for` first."""
        with _connect(self._url) as source, _connect(self._replica_url) as replica:
            return [line for table in self._shop.tables for line in _compare(table, source, replica, limit)]


def _connect(url: str) -> Connection:
    return psycopg.connect(url, autocommit=True)


def _current_lsn(connection: Connection) -> int:
    row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(row[0])


def _rows(connection: Connection, table: Table) -> Counter[str]:
    with connection.transaction():
        pin_session(connection)
        query = sql.SQL("select t::text from {} t").format(table.identifier)
        return Counter(row[0] for row in connection.execute(query))


def _compare(table: Table, source: Connection, replica: Connection, limit: int) -> list[str]:
    here, there = _rows(source, table), _rows(replica, table)
    title = f"{table.schema!r}.{table.name!r}"
    lines = [f"{title}: {count} times only in the source: {row[:80]}" for row, count in (here - there).items()]
    lines += [f"{title}: {count} times only in the replica: {row[:80]}" for row, count in (there - here).items()]
    return lines[:limit] + ([f"{title}: and {len(lines) - limit} more"] if len(lines) > limit else [])
