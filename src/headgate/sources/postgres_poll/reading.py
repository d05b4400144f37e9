"""Planned rows as Arrow, read on an executor. Values get the types and forms that `pgcdc` gives them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.record import OP, PAYLOAD, POSITION, SCHEMA, TABLE
from headgate.sources.postgres_poll.connections import connected
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.statements import rows_of
from headgate.sources.postgres_poll.table import RESERVED, ROW_NUMBER, PolledTable
from headgate.sources.random.generator import position_column
from headgate.sources.typed import COMMIT_TIME, XID, TypedColumn, TypedTable
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["read_rows"]

_log = logging.getLogger(__name__)

_NUMBER = TypedColumn(ROW_NUMBER, "bigint", pa.int64(), 0)
_BATCH_ROWS = 8192
# A map of one entry, "data": the only part of an event that its typed row is made of.
_EVENT_HEAD = b"\x81\xa4data"


def read_rows(options: PollOptions, table: PolledTable, first: int, keys: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows with these keys, numbered from `first`. One that is gone leaves its number unused."""
    # Only executors encode; Spark's search for sources imports this package in every process.
    from headgate.kernels.changes.row_encoder import RowEncoder

    types = TypeCatalog(table.types)
    typed = TypedTable(table.typed.schema, table.typed.name, (*table.typed.columns, _NUMBER))
    encoder = RowEncoder(table.relation, types, "msgpack", _BATCH_ROWS)
    statement = rows_of(table, first, [column.to_pylist() for column in keys.columns])
    count = 0
    with connected(options.url, table.where) as connection, connection.cursor() as cursor:
        with cursor.copy(statement) as copy:
            while lines := list(islice(copy, _BATCH_ROWS)):
                for rows in encoder.encode(b"".join(lines)):
                    count += len(rows)
                    yield _batch(rows, typed, types, table)
        encoder.finish()
    if count < keys.num_rows:
        _log.warning(
            "planned rows are gone",
            extra={"table": table.where, "planned": keys.num_rows, "gone": keys.num_rows - count},
        )


def _batch(rows: pa.Array, typed: TypedTable, types: TypeCatalog, table: PolledTable) -> pa.RecordBatch:
    values = typed.rows(_as_events(rows, typed), types)
    own = len(table.typed.columns)
    numbers = values.column(own).to_numpy(zero_copy_only=False).astype(np.uint64)
    constants = {SCHEMA: typed.schema, TABLE: typed.name, OP: "read"}
    reserved = [
        position_column(numbers) if name == POSITION else pa.repeat(pa.scalar(constants[name]), len(rows))
        for name in RESERVED
    ]
    names = [column.name for column in table.typed.columns]
    return pa.RecordBatch.from_arrays([*values.columns[:own], *reserved], names=[*names, *RESERVED])


def _as_events(rows: pa.Array, typed: TypedTable) -> pa.RecordBatch:
    """Encoded rows as insert events, as far as `TypedTable.rows` looks at those."""
    count = len(rows)
    texts = {SCHEMA: typed.schema, TABLE: typed.name, OP: "insert", POSITION: None}
    columns = {name: pa.repeat(pa.scalar(text, pa.string()), count) for name, text in texts.items()}
    columns[COMMIT_TIME] = pa.nulls(count, pa.timestamp("us", tz="UTC"))
    columns[XID] = pa.nulls(count, pa.int64())
    columns[PAYLOAD] = pc.binary_join_element_wise(pa.scalar(_EVENT_HEAD), rows, b"")
    return pa.RecordBatch.from_pydict(columns)
