"""Connections for snapshots. Their settings are those of the stream, so that values have the same texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import pq

from headgate import postgres
from headgate.postgres import Connection
from headgate.wire.pgtypes import SESSION

__all__ = ["READERS_LOCK_TIMEOUT", "connect_pinned", "open_raw"]

# Of whoever reads at a point that somebody else holds. An ALTER TABLE that comes between waits for the holder, so who
# waited behind the ALTER would wait for ever, and with it every query of the table.
READERS_LOCK_TIMEOUT = b"set lock_timeout = '3s'"

_SETTINGS = SESSION | {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A policy would hide rows without a word. The stream knows no policies, so whoever reads must be above them.
    "row_security": "off",
    "jit": "off",  # one statement, one pass: it never pays
}


def connect_pinned(url: str, name: str) -> Connection:
    """An ordinary connection; `name` is what `pg_stat_activity` shows. Errors are ours."""
    connection = postgres.connect(url, name, _SETTINGS)
    connection.execute(_without_timeouts(connection.info.server_version))
    return connection


@contextmanager
def open_raw(url: str, name: str, **more: str) -> Iterator[pq.abc.PGconn]:
    """A connection without psycopg's comforts, for COPY and for replication."""
    with postgres.open_raw(url, name, _SETTINGS, **more) as connection:
        connection.exec_(_without_timeouts(connection.server_version))
        yield connection


def _without_timeouts(server_version: int) -> bytes:
    """What can only be said once connected, since older servers do not know it."""
    return b"set transaction_timeout = 0" if server_version >= 170000 else b"select"
