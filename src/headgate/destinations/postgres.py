"""What destinations in PostgreSQL share: how errors are told, and rows that are written a few megabytes at a time."""

from __future__ import annotations

import abc

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.conninfo import conninfo_to_dict

from headgate.destinations.base import Failure, Sender, SendResult
from headgate.model import AuthError, ConnectError, HeadgateError, StateError, record

__all__ = ["ChunkSender", "database_of", "error_of"]

_CHUNK_BYTES = 4 << 20  # in one transaction; so long a log is locked for others
_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName)


def database_of(url: str) -> str:
    """Return host and database of an address, for people: it tells no secret."""
    known = conninfo_to_dict(url)
    return f"{known.get('host', 'localhost')}/{known.get('dbname', '')}"


def error_of(error: psycopg.Error, where: str, *, grant: str, gone: str) -> HeadgateError:
    """Return the error to raise; `grant` is the remedy for missing rights, `gone` that for a schema that is gone."""
    message = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return AuthError(message, where=where, remedy=grant)
    if isinstance(error, _MISSING):
        return StateError(message, where=where, remedy=gone)
    return ConnectError(message, where=where, remedy="check that PostgreSQL runs and takes connections")


class ChunkSender(Sender):
    """Collects rows, and has them written a few megabytes at a time, each time in one transaction."""

    def __init__(self, name: str, connection: psycopg.Connection) -> None:
        self._name = name
        self._connection = connection
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = self._payload_bytes = self._skipped = 0
        self._failures: dict[str, tuple[int, HeadgateError]] = {}

    def send(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        size = pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0
        self._rows += batch.num_rows
        self._payload_bytes += size
        self._waiting.append(batch)
        self._waiting_bytes += size
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._flush()

    def finish(self) -> SendResult:
        self._flush()
        failures = tuple(Failure(topic, *found).as_dict() for topic, found in self._failures.items())
        return SendResult(self._name, self._rows, self._payload_bytes, self._skipped, failures=failures)

    @abc.abstractmethod
    def _write(self, rows: pa.Table) -> None:
        """Write rows, inside a transaction."""

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_bytes = [], 0
        with self._connection.transaction():
            self._write(rows)

    def _fail(self, topic: str, rows: int, error: HeadgateError) -> None:
        """Note rows that were not written; of several errors of a topic the first counts."""
        known, first = self._failures.get(topic, (0, error))
        self._failures[topic] = (known + rows, first)
