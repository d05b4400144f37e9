"""One range of a table as COPY's text, read in a snapshot that somebody holds."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import pq, sql

from headgate.model import AuthError, HeadgateError, StateError
from headgate.postgres import server_error, sqlstate_of
from headgate.sources.postgres_snapshot.connections import READERS_LOCK_TIMEOUT, open_raw
from headgate.sources.postgres_snapshot.plan import SnapshotTable, TableRange

if TYPE_CHECKING:
    from headgate.kernels.changes.copy_data import Received

__all__ = ["Piece", "SnapshotRange", "copy_texts", "reader_name"]

_MAY_NOT = b"42501"
# Encoding a piece takes so long as the socket's buffers take in from the server, which then need not wait.
_PIECE_ROWS = 1024
_PIECE_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """All that is needed to read a range but the address. Goes to the executors."""

    table: SnapshotTable
    part: TableRange
    snapshot_name: str

    @property
    def where(self) -> str:
        """Its name in errors."""
        return f"{self.table.relation.schema}.{self.table.relation.name}, range {self.part.number}"


class Piece(NamedTuple):
    """Whole rows of COPY's text, good until the next piece is asked for, and whether a batch ends with them."""

    text: memoryview
    is_last: bool


def reader_name(snapshot_name: str) -> str:
    """How the connections that use a snapshot call themselves."""
    return f"headgate snapshot {snapshot_name}"


def copy_texts(url: str, range_: SnapshotRange, batch_rows: int, batch_bytes: int) -> Generator[Piece]:
    """The rows of a range, in pieces that go together to batches: `batch_rows` rows, or fewer at `batch_bytes`."""
    name = reader_name(range_.snapshot_name)
    with open_raw(url, name, application_name=name) as connection:
        _enter_snapshot(connection, range_)
        statement = range_.table.copy_statement(range_.part).as_bytes(None)
        _require(connection, connection.exec_(statement), pq.ExecStatus.COPY_OUT, range_)
        receive = _receiver(connection)
        rows_left, bytes_left, is_more = batch_rows, batch_bytes, True
        while is_more:
            received = receive(min(rows_left, _PIECE_ROWS), _PIECE_BYTES)
            if received.end:
                _require(connection, connection.get_result(), pq.ExecStatus.COMMAND_OK, range_)
            is_more = not received.end
            rows_left, bytes_left = rows_left - received.rows, bytes_left - len(received.text)
            is_last = not is_more or rows_left <= 0 or bytes_left <= 0
            yield Piece(received.text, is_last)
            if is_last:
                rows_left, bytes_left = batch_rows, batch_bytes


def _receiver(connection: pq.abc.PGconn) -> Callable[[int, int], Received]:
    # Only executors copy; Spark's search for sources imports this module in every process.
    from headgate.kernels.changes.copy_data import fast_receiver

    fast = fast_receiver(getattr(connection, "pgconn_ptr", None))
    return fast.receive if fast else SlowReceiver(connection).receive


class SlowReceiver:
    """`CopyReceiver` in Python for each row: for where libpq's functions cannot be found.

    A `BytesIO` takes rows in for next to nothing; a list of them would cost as much again as receiving them.
    """

    def __init__(self, connection: pq.abc.PGconn) -> None:
        self._connection = connection

    def receive(self, most_rows: int, most_bytes: int) -> Received:
        from headgate.kernels.changes.copy_data import Received

        buffer = io.BytesIO()
        get, put = self._connection.get_copy_data, buffer.write
        rows, room = 0, most_bytes
        while rows < most_rows and room > 0:
            try:
                size, data = get(0)
            except psycopg.Error:
                return Received(buffer.getbuffer(), rows, -2)
            if size < 0:
                return Received(buffer.getbuffer(), rows, size)
            put(data)
            rows += 1
            room -= size
        return Received(buffer.getbuffer(), rows, 0)


def _enter_snapshot(connection: pq.abc.PGconn, range_: SnapshotRange) -> None:
    _require(connection, connection.exec_(READERS_LOCK_TIMEOUT), pq.ExecStatus.COMMAND_OK, range_)
    begin = connection.exec_(b"begin isolation level repeatable read read only")
    _require(connection, begin, pq.ExecStatus.COMMAND_OK, range_)
    snapshot = sql.SQL("set transaction snapshot {}").format(range_.snapshot_name).as_bytes(None)
    result = connection.exec_(snapshot)
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise StateError(
            f"the snapshot cannot be used: {_message(connection, result)}",
            where=range_.where,
            remedy="whoever holds it must hold it until all is read, on the same server; take a new one",
        )


def _require(
    connection: pq.abc.PGconn, result: pq.abc.PGresult | None, status: pq.ExecStatus, range_: SnapshotRange
) -> None:
    if result is None or result.status != status:
        raise _failure(connection, result, range_)


def _message(connection: pq.abc.PGconn, result: pq.abc.PGresult | None) -> str:
    primary = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) if result is not None else None
    return primary.decode(errors="replace") if primary else connection.get_error_message().strip()


def _failure(connection: pq.abc.PGconn, result: pq.abc.PGresult | None, range_: SnapshotRange) -> HeadgateError:
    message = _message(connection, result)
    if result is not None and result.error_field(pq.DiagnosticField.SQLSTATE) == _MAY_NOT:
        return AuthError(message, where=range_.where, remedy=_permission(connection, range_, message))
    return server_error(sqlstate_of(result), message, range_.where)


def _permission(connection: pq.abc.PGconn, range_: SnapshotRange, message: str) -> str:
    role = sql.Identifier(connection.user.decode())
    leaf = sql.Identifier(range_.part.leaf.schema, range_.part.leaf.name)
    if "row-level security" in message:
        return sql.SQL("ALTER ROLE {} BYPASSRLS;").format(role).as_string(None)
    return sql.SQL("GRANT SELECT ON {} TO {};").format(leaf, role).as_string(None)
