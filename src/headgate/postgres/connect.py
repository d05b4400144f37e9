"""The one way to open a connection: named, in UTF-8, with a timeout, and on a line whose death is noticed.

`connect` and `connect_raw` raise our errors. `open_connection`, `open_async` and `pool.make_pool` raise psycopg's, for
callers that have remedies of their own. What an address says itself of name, timeouts and keepalives is left alone.

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
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, pq, sql
from psycopg.rows import dict_row

from headgate.model import ConfigError, ConnectError, HeadgateError
from headgate.postgres.errors import server_error

__all__ = ["Connection", "connect", "connection_string", "open_async", "open_connection", "open_raw", "server_address"]

Connection = psycopg.Connection[dict[str, Any]]
C = TypeVar("C", bound=psycopg.AsyncConnection[Any])

CONNECT_TIMEOUT_S = 10
# A dead network is noticed in half a minute, not in the hours that TCP takes by default. The last counts for what was
# sent and not acknowledged; Linux lets it decide on keepalives, too.
_LINE = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_MOST_TRACE_BYTES = 1 << 16
_ERROR = re.compile(rb'\tErrorResponse\t S "[^"]*"(?: V "[^"]*")? C "(\w{5})"')  # PgBouncer sends no V
_READY = (pq.PollingStatus.OK, pq.PollingStatus.FAILED)


def connection_string(
    url: str, name: str, settings: dict[str, str] | None = None, timeout_s: int = CONNECT_TIMEOUT_S, **more: str
) -> str:
    """A URL with what every connection of ours has, except where the URL says it itself.

    `name` is what `pg_stat_activity` shows, unless the URL or PGAPPNAME says another. Code that looks for sessions by
    their name gives `application_name`, which nobody overrules. `settings` are the session's; those of the URL stay.

    Of several hosts the primary is wanted: a standby can neither be read from a slot that the primary has, nor
    be told anything.
    """
    given = _parsed(url)
    wanted = {"fallback_application_name": name, **_LINE}
    if "PGCONNECT_TIMEOUT" not in os.environ:
        wanted["connect_timeout"] = str(timeout_s)
    if _hosts(given) > 1:
        wanted["target_session_attrs"] = "read-write"
    ours = {option: value for option, value in wanted.items() if option not in given}
    if settings:
        own = given.get("options") or os.environ.get("PGOPTIONS", "")
        ours["options"] = " ".join([str(own), *(f"-c {name}={value}" for name, value in settings.items())]).strip()
    return conninfo.make_conninfo(url, client_encoding="UTF8", **{**ours, **more})


def _parsed(url: str) -> dict[str, Any]:
    """What an address says. libpq's own complaint would repeat it, with the password."""
    try:
        return conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise ConfigError(
            "this is no address of PostgreSQL", where="postgres", remedy="write postgres://user@host:5432/database"
        ) from None


def connect(url: str, name: str = "headgate", settings: dict[str, str] | None = None) -> Connection:
    """An ordinary connection in autocommit mode whose rows are dicts. Errors are ours."""
    text = connection_string(url, name, settings)
    try:
        return psycopg.connect(text, autocommit=True, row_factory=dict_row)
    except psycopg.OperationalError as error:
        raise _why(text, error) from None
    except psycopg.Error as error:
        raise server_error("", str(error), server_address(text)) from None


def open_connection(
    url: str,
    name: str,
    settings: dict[str, str] | None = None,
    *,
    timeout_s: int = CONNECT_TIMEOUT_S,
    prepare_threshold: int | None = 5,
) -> psycopg.Connection:
    """An ordinary connection in autocommit mode whose rows are tuples. Raises psycopg's errors."""
    text = connection_string(url, name, settings, timeout_s)
    return psycopg.connect(text, autocommit=True, prepare_threshold=prepare_threshold)


async def open_async(
    kind: type[C],
    url: str,
    name: str,
    *,
    timeout_s: int = CONNECT_TIMEOUT_S,
    prepare_threshold: int | None = 5,
    **more: str,
) -> C:
    """A connection of this class for asyncio, in autocommit mode. Raises psycopg's errors."""
    text = connection_string(url, name, None, timeout_s, **more)
    return await kind.connect(text, autocommit=True, prepare_threshold=prepare_threshold)


def server_address(url: str) -> str:
    """Name the servers that an address means, for errors: never its user or password."""
    try:
        given = _parsed(url)
    except ConfigError:
        return "postgres"
    hosts = str(given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST", "local socket")).split(",")
    ports = str(given.get("port") or os.environ.get("PGPORT", "5432")).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return "postgres " + ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=False))


@contextmanager
def open_raw(url: str, name: str, settings: dict[str, str] | None = None, **more: str) -> Iterator[pq.abc.PGconn]:
    """A connection without psycopg's comforts, for COPY and for replication."""
    connection = connect_raw(connection_string(url, name, settings, CONNECT_TIMEOUT_S, **more))
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
    given = conninfo.conninfo_to_dict(text)
    timeout_s = max(int(given.get("connect_timeout") or 0), 0) or CONNECT_TIMEOUT_S
    deadline = time.monotonic() + timeout_s * _hosts(given)
    try:
        while connection.status != pq.ConnStatus.BAD and (status := connection.connect_poll()) not in _READY:
            is_read = status == pq.PollingStatus.READING
            sockets = [connection.socket]
            left = deadline - time.monotonic()
            if left <= 0 or not any(select.select(sockets if is_read else [], [] if is_read else sockets, [], left)):
                connection.finish()
                where = server_address(text)
                raise ConnectError(f"no answer in {timeout_s} s", where=where, remedy="trying again")
        return connection, _sqlstate(connection, trace)
    finally:
        if trace is not None:
            os.close(trace)


def _hosts(given: dict[str, Any]) -> int:
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
