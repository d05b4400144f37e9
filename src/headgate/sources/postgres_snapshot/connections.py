"""Connections for snapshots. Their settings are those of the stream, so that values have the same texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import conninfo, pq
from psycopg.rows import dict_row

from headgate.sources.postgres_cdc.replication import connect_error
from headgate.sources.postgres_cdc.slot import Connection
from headgate.wire.pgtypes import SESSION

__all__ = ["connect_pinned", "open_raw"]

_CONNECT_TIMEOUT_S = 10
_SETTINGS = SESSION | {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A policy would hide rows without a word. The stream knows no policies, so whoever reads must be above them.
    "row_security": "off",
    "jit": "off",  # one statement, one pass: it never pays
}


def connect_pinned(url: str, name: str) -> Connection:
    """An ordinary connection; `name` is what `pg_stat_activity` shows. Errors are ours."""
    try:
        connection = psycopg.connect(_parameters(url, name), autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        raise connect_error(str(error), "postgres") from None
    connection.execute(_without_timeouts(connection.info.server_version))
    return connection


@contextmanager
def open_raw(url: str, name: str, **more: str) -> Iterator[pq.abc.PGconn]:
    """The same without psycopg's comforts, for COPY and for replication."""
    connection = pq.PGconn.connect(_parameters(url, name, **more).encode())
    try:
        if connection.status != pq.ConnStatus.OK:
            raise connect_error(connection.get_error_message(), "postgres")
        connection.exec_(_without_timeouts(connection.server_version))
        yield connection
    finally:
        connection.finish()


def _parameters(url: str, name: str, **more: str) -> str:
    return conninfo.make_conninfo(
        url,
        application_name=name,
        connect_timeout=_CONNECT_TIMEOUT_S,
        options=" ".join(f"-c {setting}={value}" for setting, value in _SETTINGS.items()),
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        **more,
    )


def _without_timeouts(server_version: int) -> bytes:
    """What can only be said once connected, since older servers do not know it."""
    return b"set transaction_timeout = 0" if server_version >= 170000 else b"select"
