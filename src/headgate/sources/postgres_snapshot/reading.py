"""One range of a table as rows: encoded as in events, or in the table's own columns.

read_range(options, range_)               -> batches of one column, `_row`
read_typed(options, range_, typed)        -> batches of the table's columns
located(range_), located_ranges(batches)  -> a range as a row, and back, to be read by a later step of a query
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.record import OP, PAYLOAD, POSITION, SCHEMA, TABLE
from headgate.sources.postgres_snapshot.copying import SnapshotRange, copy_texts
from headgate.sources.typed import COMMIT_TIME, XID
from headgate.wire.pgtypes import TypeCatalog

if TYPE_CHECKING:
    from headgate.sources.postgres_snapshot.options import RowFormat, SnapshotOptions
    from headgate.sources.typed import TypedTable

__all__ = ["LOCATED_SCHEMA", "ROW", "ROWS_SCHEMA", "located", "located_ranges", "read_range", "read_typed"]

ROW = "_row"
ROWS_SCHEMA = f"{ROW} binary"
_ROWS_ARROW = pa.schema([(ROW, pa.binary())])

_RANGE = "_range"
LOCATED_SCHEMA = f"{_RANGE} binary"
_LOCATED_ARROW = pa.schema([(_RANGE, pa.binary())])

# A map of one entry, "data": the only part of an event that its typed row is made of.
_EVENT_HEAD = b"\x81\xa4data"


def read_range(options: SnapshotOptions, range_: SnapshotRange) -> Iterator[pa.RecordBatch]:
    """The rows of a range, each with the bytes of `data` in an event for it; batches of up to `batch_rows`."""
    for column in _columns(options, range_, options.row_format):
        yield pa.RecordBatch.from_arrays([column], schema=_ROWS_ARROW)


def _columns(options: SnapshotOptions, range_: SnapshotRange, format: RowFormat) -> Iterator[pa.Array]:  # noqa: A002
    # Only executors encode; Spark's search for sources imports this module in every process.
    from headgate.kernels.changes.row_encoder import RowEncoder

    table = range_.table
    encoder = RowEncoder(table.relation, TypeCatalog(table.types), format, options.batch_rows)
    gathered: list[pa.Array] = []
    with closing(copy_texts(options.url, range_, options.batch_rows, options.batch_bytes)) as pieces:
        for piece in pieces:
            gathered += encoder.encode(piece.text)
            if piece.is_last and gathered:
                yield pa.concat_arrays(gathered)
                gathered.clear()
    encoder.finish()


def read_typed(options: SnapshotOptions, range_: SnapshotRange, typed: TypedTable) -> Iterator[pa.RecordBatch]:
    """The rows of a range with the types and values that the typed shape of `pgcdc` gives them."""
    types = TypeCatalog(range_.table.types)
    own = list(range(len(typed.columns)))
    for rows in _columns(options, range_, "msgpack"):
        yield typed.rows(_as_inserts(rows, typed), types).select(own)


def _as_inserts(rows: pa.Array, typed: TypedTable) -> pa.RecordBatch:
    """Rows as the events that would have inserted them, as far as `TypedTable.rows` looks at those."""

    def all_of(value: str | int | None, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(rows))

    columns = {
        SCHEMA: all_of(typed.schema, pa.string()),
        TABLE: all_of(typed.name, pa.string()),
        OP: all_of("insert", pa.string()),
        POSITION: all_of(None, pa.string()),
        COMMIT_TIME: all_of(None, pa.timestamp("us", tz="UTC")),
        XID: all_of(None, pa.int64()),
        PAYLOAD: pc.binary_join_element_wise(pa.scalar(_EVENT_HEAD), rows, b""),
    }
    return pa.RecordBatch.from_pydict(columns)


def located(range_: SnapshotRange) -> pa.RecordBatch:
    """The range itself as a row."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(range_)], pa.binary())], schema=_LOCATED_ARROW)


def located_ranges(batches: Iterable[pa.RecordBatch]) -> Iterator[SnapshotRange]:
    """What `located` made. The rows come from this query's own source, which is why unpickling them is safe."""
    for batch in batches:
        for row in batch.column(_RANGE):
            yield pickle.loads(row.as_py())  # noqa: S301
