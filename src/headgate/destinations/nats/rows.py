"""The rows of a delivery: the columns a destination receives, cut into blocks, and which rows cannot be sent.

The check runs on whole column buffers and looks at single rows only when a buffer holds something suspicious, so a
batch without faults costs a few nanoseconds per row. It matters: a line break in a topic would let a row inject
protocol commands, and a topic such as `$JS.API.STREAM.DELETE.X` would be obeyed by the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import DataError, UsageError
from headgate.model.record import MESSAGE_ID, PAYLOAD, TOPIC
from headgate.wire.nats import check_publish_subject
from headgate.wire.nats.subject import MAX_SUBJECT_BYTES

__all__ = ["BadRow", "bad_rows", "blocks", "byte_column", "delivery_table"]

HEADERS = "_headers"
MAX_HEADER_BYTES = 65_535  # JetStream refuses a longer header block (10097)
MSG_ID_HEADER = b"NATS/1.0\r\nNats-Msg-Id: "
FIXED_HEADER_BYTES = len(MSG_ID_HEADER) + len(b"\r\n\r\n")
_CHECK_ROWS = 65_536

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that no NATS server would take, and why."""

    row: int
    message_id: str
    reason: str


def delivery_table(
    topics: pa.Array, message_ids: pa.Array, payloads: pa.Array, headers: pa.Array | bytes | None = None
) -> pa.Table:
    """The columns as one table.

    `headers` holds further header lines, each ending in a line break; one value serves all rows. A payload that is
    null is sent as an empty one.
    """
    columns = {TOPIC: topics, MESSAGE_ID: message_ids, PAYLOAD: payloads}
    if isinstance(headers, bytes):
        headers = pa.DictionaryArray.from_arrays(np.zeros(len(topics), np.int8), pa.array([headers]))
    if headers is not None:
        columns[HEADERS] = headers
    if len({len(column) for column in columns.values()}) > 1:
        raise UsageError("topics, message ids, payloads and headers differ in length")
    for name, column in columns.items():
        if not _is_text(column.type) and (name in (TOPIC, MESSAGE_ID) or not _is_binary(column.type)):
            raise UsageError(f"column {name} is {column.type}", remedy="text for topics and ids, binary for the rest")
    return pa.table(columns)


def blocks(table: pa.Table, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a table into batches of plain binary columns, small enough to build and send in one piece."""
    for batch in table.to_batches(max_chunksize=max_rows):
        ends = np.cumsum(sum(_lengths(column) for column in batch.columns))
        first = 0
        while first < batch.num_rows:
            limit = max_bytes + (ends[first - 1] if first else 0)
            stop = max(first + 1, int(np.searchsorted(ends, limit, side="right")))
            yield _as_binary(batch.slice(first, stop - first))
            first = stop


def bad_rows(table: pa.Table, max_payload: int, extra_header_bytes: int = 0) -> list[BadRow]:
    """Every row that cannot be sent; empty for a good table."""
    found: list[BadRow] = []
    first = 0
    for batch in table.to_batches(max_chunksize=_CHECK_ROWS):
        if not _is_clean(batch, max_payload, extra_header_bytes):
            found += _faults(batch, first, max_payload, extra_header_bytes)
        first += batch.num_rows
    return found


def byte_column(column: pa.Array) -> tuple[Bytes, Ints]:
    """The data of a binary column without nulls, and where each row begins and ends in it."""
    _, offset_buffer, data_buffer = column.buffers()
    if not len(column):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    offsets = np.frombuffer(offset_buffer, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _is_clean(batch: pa.RecordBatch, max_payload: int, extra_header_bytes: int) -> bool:
    topics, ids = batch.column(TOPIC), batch.column(MESSAGE_ID)
    if topics.null_count or ids.null_count:
        return False
    header = _lengths(ids) + (FIXED_HEADER_BYTES + extra_header_bytes)
    if HEADERS in batch.schema.names:
        if not _headers_are_lines(batch.column(HEADERS)):
            return False
        header = header + _lengths(batch.column(HEADERS))
    total = header + _lengths(batch.column(PAYLOAD))
    if header.max(initial=0) > MAX_HEADER_BYTES or total.max(initial=0) > max_payload:
        return False
    return _ids_are_clean(ids) and _topics_are_clean(topics)


def _ids_are_clean(ids: pa.Array) -> bool:
    data, offsets = byte_column(_binary(ids))
    return bool((np.diff(offsets) > 0).all()) and not _has_blank(data)


def _topics_are_clean(topics: pa.Array) -> bool:
    data, offsets = byte_column(_binary(topics))
    lengths = np.diff(offsets)
    if not (lengths > 0).all() or lengths.max(initial=0) > MAX_SUBJECT_BYTES or _has_blank(data):
        return False
    if (data == ord("*")).any() or (data == ord(">")).any():
        return False
    first, last, dots = data[offsets[:-1]], data[offsets[1:] - 1], data == ord(".")
    # Two dots in a row are an empty token, or the end of one bad topic and the start of another.
    doubled = bool((dots[:-1] & dots[1:]).any())
    return not doubled and not np.isin(first, (ord("."), ord("$"))).any() and not (last == ord(".")).any()


def _has_blank(data: Bytes) -> bool:
    return bool((data <= ord(" ")).any() or (data == 127).any())


def _headers_are_lines(headers: pa.Array) -> bool:
    lines = _binary(headers)
    whole = pc.or_(pc.ends_with(lines, b"\r\n"), pc.equal(pc.binary_length(lines), 0))
    broken = pc.or_(pc.starts_with(lines, b"\r\n"), pc.match_substring(lines, b"\r\n\r\n"))
    return not headers.null_count and bool(pc.all(pc.and_not(whole, broken)).as_py() in (True, None))


def _faults(batch: pa.RecordBatch, first: int, max_payload: int, extra: int) -> Iterator[BadRow]:
    """The slow, row by row check that says what is wrong."""
    payload_bytes = _lengths(batch.column(PAYLOAD))
    header_column = batch.column(HEADERS) if HEADERS in batch.schema.names else None
    for index in range(batch.num_rows):
        topic, message_id = batch.column(TOPIC)[index].as_py(), batch.column(MESSAGE_ID)[index].as_py()
        lines = b"" if header_column is None else header_column[index].as_py()
        reason = _topic_fault(topic) or _id_fault(message_id) or _header_fault(lines)
        if not reason:
            header_bytes = len(message_id.encode()) + FIXED_HEADER_BYTES + extra + len(lines)
            reason = _size_fault(header_bytes, int(payload_bytes[index]), max_payload)
        if reason:
            yield BadRow(first + index, message_id or "", reason)


def _topic_fault(topic: str | None) -> str:
    if topic is None:
        return "has no topic"
    try:
        check_publish_subject(topic)
    except DataError as error:
        return error.message
    return ""


def _id_fault(message_id: str | None) -> str:
    if not message_id:
        return "has no message id"
    blank = _has_blank(np.frombuffer(message_id.encode(), np.uint8))
    return "has a blank or control character in its id" if blank else ""


def _header_fault(lines: bytes | None) -> str:
    if lines is None or (lines and not lines.endswith(b"\r\n")) or lines.startswith(b"\r\n") or b"\r\n\r\n" in lines:
        return "has malformed headers"
    return ""


def _size_fault(header_bytes: int, payload_bytes: int, max_payload: int) -> str:
    if header_bytes > MAX_HEADER_BYTES:
        return f"has {header_bytes} bytes of headers, more than {MAX_HEADER_BYTES}"
    if header_bytes + payload_bytes > max_payload:
        return f"has {header_bytes + payload_bytes} bytes, more than the server's max_payload of {max_payload}"
    return ""


def _lengths(column: pa.Array) -> Ints:
    lengths: Ints = pc.fill_null(pc.binary_length(_decoded(column)), 0).to_numpy().astype(np.int64)
    return lengths


def _as_binary(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pc.fill_null(_binary(column), b"") if column.null_count else _binary(column) for column in batch.columns]
    return pa.record_batch(columns, names=batch.schema.names)


def _binary(column: pa.Array) -> pa.Array:
    return _decoded(column).cast(pa.binary())


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
