"""The one way to open a connection: in UTF-8, with a timeout, and with an error whose SQLSTATE is known.

libpq does not tell the SQLSTATE of a connection that was refused, only words in the server's language. Its trace of
the protocol does, so a connection is opened with the trace on; what was written of it is kept in memory, read, and
thrown away.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo, pq, sql
from psycopg.rows import dict_row

from headgate.model import ConnectError, HeadgateError
from headgate.postgres.errors import server_error

__all__ = ["Connection", "connect", "connection_string", "open_raw", "server_address"]

Connection = psycopg.Connection[dict[str, Any]]

CONNECT_TIMEOUT_S = 10
_MOST_TRACE_BYTES = 1 << 16
_ERROR = re.compile(rb'\tErrorResponse\t S "[^"]*"(?: V "[^"]*")? C "(\w{5})"')  # PgBouncer sends no V
_READY = (pq.PollingStatus.OK, pq.PollingStatus.FAILED)


def connection_string(url: str, name: str, settings: dict[str, str] | None = None, **more: str) -> str:
    """A URL with what every connection of ours has. `settings` are the session's; those of the URL stay.

    Of several hosts the primary is wanted: a standby can neither be read from a slot that the primary has, nor
    be told anything.
    """
    given = conninfo.conninfo_to_dict(url)
    several = "," in str(given.get("host") or given.get("hostaddr") or "")
    if several and "target_session_attrs" not in given:
        more["target_session_attrs"] = "read-write"
    options = " ".join(f"-c {setting}={value}" for setting, value in (settings or {}).items())
    return conninfo.make_conninfo(
        url,
        application_name=name,
        connect_timeout=CONNECT_TIMEOUT_S,
        client_encoding="UTF8",
        options=f"{given.get('options', '')} {options}".strip(),
        # A dead network is noticed in half a minute, not in the hours that TCP takes by default.
        keepalives_idle="10",
        keepalives_interval="5",
        keepalives_count="3",
        **more,
    )


def connect(url: str, name: str = "headgate", settings: dict[str, str] | None = None) -> Connection:
    """An ordinary connection in autocommit mode whose rows are dicts. Errors are ours."""
    text = connection_string(url, name, settings)
    try:
        return psycopg.connect(text, autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        raise _why(text, error) from None
    except psycopg.Error as error:
        raise server_error("", str(error), server_address(text)) from None


def server_address(url: str) -> str:
    """Name the servers that an address means, for errors: never its user or password."""
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "postgres"
    hosts = str(given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", "local socket")).split(",")
    ports = str(given.get("port") or os.environ.get("PGPORT", "5432")).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return "postgres " + ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=False))


@contextmanager
def open_raw(url: str, name: str, settings: dict[str, str] | None = None, **more: str) -> Iterator[pq.abc.PGconn]:
    """A connection without psycopg's comforts, for COPY and for replication."""
    connection = connect_raw(connection_string(url, name, settings, **more))
    try:
        yield connection
    finally:
        connection.finish()


def connect_raw(text: str) -> pq.abc.PGconn:
    """Open a connection for the caller to finish.

    A database in SQL_ASCII does not know what its bytes mean, and a server asked for UTF-8 fails at the first that are
    none: there they are taken as they are, and whoever reads them looks.
    """
    connection, sqlstate = _poll(text)
    if connection.status == pq.ConnStatus.OK:
        if connection.parameter_status(b"server_encoding") == b"SQL_ASCII":
            connection.exec_(b"set client_encoding = 'SQL_ASCII'")
        return connection
    message, user = connection.get_error_message(), connection.user.decode()
    connection.finish()
    remedy = f"ALTER ROLE {sql.Identifier(user).as_string(None)} REPLICATION;" if sqlstate == "42501" else ""
    raise server_error(sqlstate, message, server_address(text), remedy=remedy)


def _why(text: str, error: psycopg.OperationalError) -> HeadgateError:
    """Ask once more, to hear the reason in a form that does not depend on the server's language."""
    if error.diag.sqlstate or isinstance(error, psycopg.errors.ConnectionTimeout):
        return server_error(error.diag.sqlstate or "", str(error), server_address(text))
    connection, sqlstate = _poll(text)
    connection.finish()
    return server_error(sqlstate, str(error), server_address(text))


def _poll(text: str) -> tuple[pq.abc.PGconn, str]:
    """A connection that is open or failed, and the SQLSTATE of the failure; empty if the server did not say one."""
    connection = pq.PGconn.connect_start(text.encode())
    trace = _trace(connection)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S * _hosts(text)
    try:
        while connection.status != pq.ConnStatus.BAD and (status := connection.connect_poll()) not in _READY:
            is_read = status == pq.PollingStatus.READING
            sockets = [connection.socket]
            left = deadline - time.monotonic()
            if left <= 0 or not any(select.select(sockets if is_read else [], [] if is_read else sockets, [], left)):
                connection.finish()
                where = server_address(text)
                raise ConnectError(f"no answer in {CONNECT_TIMEOUT_S} s", where=where, remedy="trying again")
        return connection, _sqlstate(connection, trace)
    finally:
        if trace is not None:
            os.close(trace)


def _hosts(text: str) -> int:
    given = conninfo.conninfo_to_dict(text)
    return str(given.get("host") or given.get("hostaddr") or "").count(",") + 1


def _trace(connection: pq.abc.PGconn) -> int | None:
    """Where libpq writes what it sends and receives; None where it cannot."""
    try:
        descriptor = os.memfd_create("headgate")
    except (AttributeError, OSError):
        return None
    try:
        connection.trace(descriptor)
    except psycopg.Error:
        os.close(descriptor)
        return None
    return descriptor


def _sqlstate(connection: pq.abc.PGconn, trace: int | None) -> str:
    if trace is None:
        return ""
    connection.untrace()
    if connection.status == pq.ConnStatus.OK:
        return ""
    found = _ERROR.findall(os.pread(trace, _MOST_TRACE_BYTES, 0))
    return found[-1].decode() if found else ""
