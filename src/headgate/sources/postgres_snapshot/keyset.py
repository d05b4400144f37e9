"""A table in the order of its primary key, one short transaction after the other.

For tables that are too large for one transaction: a snapshot that is held for hours keeps PostgreSQL from cleaning up.
Each part begins behind the last key of the part before, so a row that stays is read once. The parts see the table at
different times, so together they are no state that the table ever had. What makes them one is the stream: applied from
before the first part on, row by row and whole, it ends at the table's state, whatever a part has or has not seen.

    for batch in read_by_key(options, table, primary_key(url, table)): ...   rows of one transaction
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from headgate.model import ConfigError
from headgate.postgres import Connection, postgres_error
from headgate.sources.postgres_snapshot.connections import connect_pinned
from headgate.sources.postgres_snapshot.options import SnapshotOptions
from headgate.sources.postgres_snapshot.plan import SnapshotTable
from headgate.sources.postgres_snapshot.points import await_ends
from headgate.wire.pgoutput import parse_lsn
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["Key", "current_lsn", "primary_key", "read_by_key", "settle"]

_NAME = "headgate snapshot"
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_PRIMARY_KEY = """
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type
from pg_catalog.pg_index i
cross join unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) with ordinality as k (number, place)
join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
where i.indrelid = %s and i.indisprimary order by k.place
"""

Key = tuple[tuple[str, str], ...]  # names and types


def settle(url: str, timeout_s: float) -> None:
    """Wait until every transaction that has an id now has ended: then all that the stream held before is visible."""
    with connect_pinned(url, _NAME) as connection:
        await_ends(connection, timeout_s)


def current_lsn(url: str) -> int:
    """Where the server's WAL ends now."""
    with connect_pinned(url, _NAME) as connection:
        row = connection.execute("select pg_current_wal_lsn()::text as lsn").fetchone()
    assert row is not None
    return parse_lsn(row["lsn"])


def primary_key(url: str, table: SnapshotTable) -> Key:
    """What orders the rows. Without one there is no place to go on from."""
    with connect_pinned(url, _NAME) as connection:
        rows = connection.execute(_PRIMARY_KEY, [table.relation.relation_id]).fetchall()
    published = {column.name for column in table.relation.columns}
    if not rows or not {row["name"] for row in rows} <= published:
        raise ConfigError(
            "only a table with a published primary key can be read in parts",
            where=f"{table.relation.schema}.{table.relation.name}",
            remedy="use the method export or filter",
        )
    return tuple((row["name"], row["type"]) for row in rows)


def read_by_key(options: SnapshotOptions, table: SnapshotTable, key: Key) -> Iterator[pa.RecordBatch]:
    """Batches of encoded rows, one per transaction, of `batch_rows` each but the last."""
    # Only executors encode; Spark's search for sources imports this package in every process.
    from headgate.kernels.changes.row_encoder import RowEncoder

    encoder = RowEncoder(table.relation, TypeCatalog(table.types), options.row_format, options.batch_rows)
    places = [[column.name for column in table.relation.columns].index(name) for name, _ in key]
    after: list[str] | None = None
    with connect_pinned(options.url, _NAME) as connection:
        while True:
            lines = _part(connection, _statement(table, key, after, options.batch_rows))
            if lines:
                rows = list(encoder.encode(b"".join(lines)))
                yield pa.RecordBatch.from_arrays([pa.concat_arrays(rows)], names=["_row"])
            if len(lines) < options.batch_rows:
                return
            after = _key_of(lines[-1], places)


def _part(connection: Connection, statement: sql.Composed) -> list[bytes]:
    try:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            return [bytes(line) for line in copy]
    except psycopg.OperationalError as error:
        raise postgres_error(error, "postgres") from None


def _statement(table: SnapshotTable, key: Key, after: list[str] | None, count: int) -> sql.Composed:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.relation.columns)
    names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in key)
    # The server made these texts from its own catalog.
    bounds: list[Any] = [sql.SQL("({})").format(sql.SQL(table.row_filter))] if table.row_filter else []
    if after is not None:
        values = [sql.SQL("{}::{}").format(value, sql.SQL(kind)) for value, (_, kind) in zip(after, key, strict=True)]
        bounds.append(sql.SQL("({}) > ({})").format(names, sql.SQL(", ").join(values)))
    where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(bounds)) if bounds else sql.SQL("")
    return sql.SQL("COPY (SELECT {} FROM {}{} ORDER BY {} LIMIT {}) TO STDOUT").format(
        columns, sql.Identifier(table.relation.schema, table.relation.name), where, names, count
    )


def _key_of(line: bytes, places: list[int]) -> list[str]:
    """The key of a row of COPY's text. It is never NULL."""
    values = line.removesuffix(b"\n").split(b"\t")
    return [_ESCAPE.sub(lambda match: _LETTERS.get(match[1], match[1]), values[place]).decode() for place in places]
