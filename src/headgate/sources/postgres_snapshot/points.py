"""Takes a consistent point of a database, and holds it while others read.

    with exported_point(url, schema, table) as point: ...    `commit_lsn < point.lsn` is in the rows
    with filtered_point(url, schema, table) as point: ...    what `point`'s xmin, xmax and xip show is in the rows

Before anything else the table is locked against changes of its shape (ACCESS SHARE, which SELECT also takes): ALTER
TABLE may rewrite a table, TRUNCATE empties it, and neither leaves anything for older snapshots to see.
"""

from __future__ import annotations

import select
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import psycopg
from psycopg import pq, sql

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError, Kind
from headgate.postgres import Connection, postgres_error, server_error, sqlstate_of
from headgate.sources.postgres_snapshot.blockers import RunningTransaction, blocked, running_transactions
from headgate.sources.postgres_snapshot.connections import connect_pinned, open_raw
from headgate.wire.pgoutput import parse_lsn

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "Method",
    "Point",
    "await_ends",
    "exported_point",
    "filtered_point",
    "lock_table",
    "new_slot",
    "take_point",
]

Method: TypeAlias = Literal["export", "filter"]

DEFAULT_TIMEOUT_S = 60.0
_POLL_S = 0.02
_NAME = "headgate snapshot"

_POINT = """
select pg_catalog.pg_export_snapshot() as name, pg_catalog.pg_current_wal_lsn()::text as lsn,
       pg_catalog.pg_current_snapshot()::text as snapshot
"""


@dataclass(frozen=True, slots=True)
class Point:
    """`xmin`, `xmax` and `xip` are PostgreSQL's 64-bit numbers, and only of the method `filter`."""

    method: Method
    lsn: int
    snapshot_name: str
    xmin: int = 0
    xmax: int = 0
    xip: tuple[int, ...] = ()


@contextmanager
def take_point(
    url: str, method: Method, schema: str, table: str, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Iterator[Point]:
    """A point by either method."""
    taken = exported_point if method == "export" else filtered_point
    with taken(url, schema, table, timeout_s) as point:
        yield point


@contextmanager
def exported_point(url: str, schema: str, table: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Point]:
    """Where a new slot begins, which is exact: transactions with `commit_lsn < lsn` are in the snapshot, no others.

    The slot is temporary and ends with this. To create one, PostgreSQL waits for every transaction that is writing.
    """
    held = _locked(url, schema, table, timeout_s)
    with held as connection, open_raw(url, _NAME, replication="database") as holder:
        lsn, name = new_slot(holder, connection, timeout_s)
        yield Point("export", lsn, name)


@contextmanager
def filtered_point(url: str, schema: str, table: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Point]:
    """A plain snapshot, which tells by transaction ids what it contains.

    A commit can be read from the stream before new snapshots see it, namely while it waits for a standby. So first
    every transaction that has an id now must have ended. Then all that was published before this was called is in
    the snapshot: whoever notes the stream's last sequence **before** calling this needs nothing up to that sequence.

    PostgreSQL's own list of running transactions (`xip`) would not do for the wait: it ends at the highest
    transaction that has completed, and the one that waits for its standby is often higher than that.
    """
    with connect_pinned(url, _NAME) as connection:
        await_ends(connection, timeout_s)
        with _locked(url, schema, table, timeout_s), connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            row = connection.execute(_POINT).fetchone()
            assert row is not None
            xmin, xmax, xip = row["snapshot"].split(":")
            running = tuple(int(xid) for xid in xip.split(",") if xid)
            yield Point("filter", parse_lsn(row["lsn"]), row["name"], int(xmin), int(xmax), running)


@contextmanager
def _locked(url: str, schema: str, table: str, timeout_s: float) -> Iterator[Connection]:
    """Holds the lock, in a connection of its own: to take it may take a snapshot, too, which must not be the point."""
    with connect_pinned(url, _NAME) as connection, connection.transaction():
        lock_table(connection, schema, table, timeout_s)
        yield connection


def lock_table(connection: Connection, schema: str, table: str, timeout_s: float) -> None:
    """A partitioned table with all its partitions."""
    where = f"{schema}.{table}"
    name = sql.Identifier(schema, table)
    try:
        connection.execute(sql.SQL("set local lock_timeout = {}").format(f"{max(int(timeout_s * 1000), 1)}ms"))
        try:
            with connection.transaction():
                connection.execute(sql.SQL("lock table {} in access share mode").format(name))
        except psycopg.errors.InsufficientPrivilege:  # whoever may read some of its columns locks it by reading them
            connection.execute(sql.SQL("select from {} limit 0").format(name))
    except psycopg.errors.LockNotAvailable:
        raise ConnectError(
            f"somebody changes the table for more than {timeout_s:g} s",
            where=where,
            remedy="end the ALTER, VACUUM FULL or other exclusive lock on it, then try again",
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        grant = sql.SQL("GRANT SELECT ON {} TO {};").format(name, sql.Identifier(connection.info.user))
        raise AuthError(
            f"the role {connection.info.user} may not read it: {error.diag.message_primary}",
            where=where,
            remedy=grant.as_string(None),
        ) from None
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise ConfigError(
            f"there is no table {where}", where=where, remedy="correct the name, or create the table"
        ) from None
    except psycopg.errors.WrongObjectType as error:
        raise ConfigError(
            error.diag.message_primary or f"{where} is no table", where=where, remedy="ask for an ordinary table"
        ) from None


def await_ends(connection: Connection, timeout_s: float) -> None:
    """Until every transaction that has an id now has ended."""
    deadline = time.monotonic() + timeout_s
    waiting = {each.xid: each for each in _running_here(connection)}
    while waiting:
        if time.monotonic() > deadline:
            raise blocked(list(waiting.values()), timeout_s)
        time.sleep(_POLL_S)
        waiting = {each.xid: each for each in _running_here(connection) if each.xid in waiting}


def _running_here(connection: Connection) -> list[RunningTransaction]:
    """The stream has nothing of other databases."""
    return [each for each in running_transactions(connection) if each.database == connection.info.dbname]


def new_slot(
    holder: pq.abc.PGconn, connection: Connection, timeout_s: float, name: str | None = None, *, failover: bool = False
) -> tuple[int, str]:
    """Consistent point and snapshot of a new slot. The snapshot lives until the holder's next command.

    A slot without a name is temporary, and ends with the holder's connection.
    """
    options = ", FAILOVER true" if failover and name else ""
    export = f"(SNAPSHOT 'export'{options})" if holder.server_version >= 150000 else "EXPORT_SNAPSHOT"
    slot = sql.Identifier(name).as_string(None) if name else f"headgate_snapshot_{uuid.uuid4().hex[:16]} TEMPORARY"
    holder.send_query(f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput {export}".encode())
    result = _result(holder, connection, timeout_s)
    if result is None or result.status != pq.ExecStatus.TUPLES_OK:
        raise _creation_error(result, holder)
    lsn, snapshot_name = result.get_value(0, 1), result.get_value(0, 2)
    assert lsn is not None
    assert snapshot_name is not None
    return parse_lsn(lsn.decode()), snapshot_name.decode()


def _result(holder: pq.abc.PGconn, connection: Connection, timeout_s: float) -> pq.abc.PGresult | None:
    """The one result of a command, without waiting for ever."""
    deadline = time.monotonic() + timeout_s
    while holder.is_busy():
        left = deadline - time.monotonic()
        ready, _, _ = select.select([holder.socket], [], [], max(left, 0))
        if not ready:
            holder.get_cancel().cancel()  # else it would wait on, without us
            raise blocked(running_transactions(connection), timeout_s)
        try:
            holder.consume_input()
        except psycopg.Error as error:
            raise postgres_error(error, "postgres") from None
    first = holder.get_result()
    while holder.get_result() is not None:
        pass
    return first


def _creation_error(result: pq.abc.PGresult | None, holder: pq.abc.PGconn) -> HeadgateError:
    text = result.get_error_message() if result else holder.get_error_message()
    error = server_error(sqlstate_of(result), text, "snapshot")
    if error.kind is Kind.OCCUPIED:
        error.remedy += ', or use the method "filter", which needs none'
    return error
