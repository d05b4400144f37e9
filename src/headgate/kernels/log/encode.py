"""Columns to record batches: what a producer would have sent, made without a Python loop over the records.

Every record carries its message id in a header, and constant headers behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import types

from headgate.kernels.jit import BYTES, BYTES_READ, compile_kernel, part
from headgate.kernels.log.walking import varint_width
from headgate.kernels.memory import copy
from headgate.wire.kafka.batch import CRC_START, HEADER, HEADER_BYTES, LENGTH_START, BatchHeader, crc32c
from headgate.wire.kafka.encode import uvarint

__all__ = [
    "COLUMN",
    "batch_of",
    "column_of",
    "encode_columns",
    "put_value",
    "put_varint",
    "sized",
    "value_width",
    "zigzag",
]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Offsets: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = tuple[Bytes, Offsets, npt.NDArray[np.bool_]]  # bytes, where each value begins, which are null

# Lengths, deltas and attributes of a record take at most: 5 + 1 + 1 + 5 + 5 + 5, and the length of the id 5.
_RECORD_OVERHEAD = 27
_HEADER_FIELDS = BatchHeader.__struct_fields__


def encode_columns(
    values: pa.Array,
    keys: pa.Array | None,
    ids: pa.Array,
    *,
    id_header: str,
    constant_headers: Sequence[tuple[str, bytes]] = (),
    timestamp: int,
    max_bytes: int,
) -> Iterator[bytes]:
    """Batches of at most `max_bytes`, but of one record at least, in the order of the rows."""
    head, tail = _header_frame(id_header, constant_headers)
    columns = [column_of(each) for each in (values, pa.nulls(len(values), pa.binary()) if keys is None else keys, ids)]
    sizes: Offsets = np.full(len(values), _RECORD_OVERHEAD + len(head) + len(tail), np.int64)
    for _, offsets, _ in columns:
        sizes += np.diff(offsets)
    for start, stop in _cuts(sizes, max_bytes - HEADER_BYTES):
        room: Bytes = np.empty(int(sizes[start:stop].sum()), np.uint8)
        flat = [part for column in columns for part in column]
        written = _kernel()(*flat, start, stop, np.frombuffer(head, np.uint8), np.frombuffer(tail, np.uint8), room)
        yield batch_of(room[:written], stop - start, timestamp, timestamp)


def _header_frame(id_header: str, constants: Sequence[tuple[str, bytes]]) -> tuple[bytes, bytes]:
    """What stands before and behind the id among the headers of every record."""
    head = zigzag(1 + len(constants)) + sized(id_header.encode())
    return head, b"".join(sized(name.encode()) + sized(value) for name, value in constants)


def zigzag(number: int) -> bytes:
    return uvarint(number << 1)


def sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def column_of(values: pa.Array) -> Column:
    """An Arrow array as a kernel takes it."""
    binary = values.cast(pa.large_binary())
    _, offset_buffer, data_buffer = binary.buffers()
    count = len(binary)
    offsets = (
        np.frombuffer(offset_buffer, np.int64)[binary.offset : binary.offset + count + 1]
        if offset_buffer and count
        else np.zeros(count + 1, np.int64)
    )
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    nulls = pc.is_null(binary).to_numpy(zero_copy_only=False)
    return data, np.ascontiguousarray(offsets), nulls


def _cuts(sizes: Offsets, most: int) -> Iterator[tuple[int, int]]:
    """Rows that fit into one batch."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, before + most, "right")))
        yield start, stop
        start, before = stop, int(ends[stop - 1])


def batch_of(records: Bytes, count: int, base_ms: int, max_ms: int) -> bytes:
    """Records with the header of their batch; the delta of the first one is to `base_ms`."""
    fields = dict.fromkeys(_HEADER_FIELDS, 0) | {
        "length": HEADER_BYTES - LENGTH_START + len(records),
        "leader_epoch": -1,
        "magic": 2,
        "last_offset_delta": count - 1,
        "base_timestamp": base_ms,
        "max_timestamp": max_ms,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
    }
    checked = HEADER.pack(*fields.values())[CRC_START:] + records.tobytes()
    fields["crc"] = crc32c(checked)
    return HEADER.pack(*fields.values())[:CRC_START] + checked


Kernel: TypeAlias = Callable[..., int]


# Bytes, where each value begins, which are null.
COLUMN = (
    BYTES_READ,
    types.Array(types.int64, 1, "C", readonly=True),
    types.Array(types.boolean, 1, "C", readonly=True),
)


@cache
def _kernel() -> Kernel:
    return compile_kernel(types.int64(*COLUMN * 3, types.int64, types.int64, BYTES_READ, BYTES_READ, BYTES), _encoding)


@part
def put_varint(room: Any, at: int, number: int) -> int:
    """Of a number that is not below -1."""
    zigzag = 1 if number < 0 else number << 1
    while zigzag >= 0x80:
        room[at] = zigzag & 0x7F | 0x80
        zigzag >>= 7
        at += 1
    room[at] = zigzag
    return at + 1


@part
def put_value(room: Any, at: int, data: Any, offsets: Any, nulls: Any, row: int) -> int:
    if nulls[row]:
        return int(put_varint(room, at, -1))
    begin, end = offsets[row], offsets[row + 1]
    at = put_varint(room, at, end - begin)
    return copy(room, at, data, begin, end)


@part
def value_width(offsets: Any, nulls: Any, row: int) -> int:
    if nulls[row]:
        return 1
    size = offsets[row + 1] - offsets[row]
    return int(varint_width(size) + size)


def _encoding(sources: int) -> Kernel:
    def kernel(
        values: Any,
        value_at: Any,
        value_nulls: Any,
        keys: Any,
        key_at: Any,
        key_nulls: Any,
        ids: Any,
        id_at: Any,
        id_nulls: Any,
        start: int,
        stop: int,
        head: Any,
        tail: Any,
        room: Any,
    ) -> int:
        at = 0 * sources  # closed over, see compile_kernel
        for row in range(start, stop):
            size = 2 + varint_width(row - start) + value_width(key_at, key_nulls, row)
            size += value_width(value_at, value_nulls, row) + value_width(id_at, id_nulls, row) + len(head) + len(tail)
            at = put_varint(room, at, size)
            room[at], room[at + 1] = 0, 0  # attributes, and no delta of time
            at = put_varint(room, at + 2, row - start)
            at = put_value(room, at, keys, key_at, key_nulls, row)
            at = put_value(room, at, values, value_at, value_nulls, row)
            at = copy(room, at, head, 0, len(head))
            at = put_value(room, at, ids, id_at, id_nulls, row)
            at = copy(room, at, tail, 0, len(tail))
        return at

    return kernel
