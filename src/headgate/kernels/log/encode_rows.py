"""Rows to one record batch: each with its own key, headers and time, made without a Python loop over the records."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from headgate.kernels.jit import BYTES, compile_kernel, part
from headgate.kernels.log.encode import COLUMN, batch_of, column_of, put_value, put_varint, sized, value_width, zigzag
from headgate.kernels.log.walking import varint_width
from headgate.kernels.memory import copy
from headgate.model import ProtocolError

__all__ = ["compile_ahead", "encode_headers", "encode_rows"]

# Lengths, deltas and attributes of a record take at most: 5 + 1 + 10 + 5 + 5 + 5.
_RECORD_OVERHEAD = 31

Header: TypeAlias = tuple[str, str | dict[str, str] | None]
_headers = msgspec.json.Decoder(list[Header])
_NO_HEADERS = zigzag(0)


def encode_headers(text: str) -> bytes:
    """Headers as SQL writes them, to those of a record."""
    if text == "[]":
        return _NO_HEADERS
    try:
        pairs = _headers.decode(text)
        return zigzag(len(pairs)) + b"".join(sized(name.encode()) + _header_value(value) for name, value in pairs)
    except (msgspec.DecodeError, KeyError, binascii.Error) as error:
        raise ProtocolError(f"headers that cannot be read: {error}", remedy="See kafka.are_headers.") from None


def _header_value(value: str | dict[str, str] | None) -> bytes:
    if value is None:
        return b"\x01"
    return sized(base64.b64decode(value["base64"], validate=True) if isinstance(value, dict) else value.encode())


def encode_rows(keys: pa.Array, values: pa.Array, headers: pa.Array, times_ms: npt.NDArray[np.int64]) -> bytes:
    """All rows as one batch, in their order. `headers` are as `encode_headers` makes them."""
    columns = [column_of(each) for each in (keys, values, headers)]
    base_ms = int(times_ms[0])
    room = np.empty(
        _RECORD_OVERHEAD * len(values) + sum(int(offsets[-1] - offsets[0]) for _, offsets, _ in columns), np.uint8
    )
    flat = [part for column in columns for part in column]
    written = _kernel()(*flat, np.ascontiguousarray(times_ms - base_ms), room)
    return batch_of(room[:written], len(values), base_ms, int(times_ms.max()))


def compile_ahead() -> None:
    """The first batch on a machine takes seconds, which this lets one spend earlier."""
    _kernel()


Kernel: TypeAlias = Callable[..., int]


@cache
def _kernel() -> Kernel:
    return compile_kernel(types.int64(*COLUMN * 3, types.Array(types.int64, 1, "C", readonly=True), BYTES), _encoding)


@part
def _put_signed(room: Any, at: int, number: int) -> int:
    zigzag = np.uint64((number << 1) ^ (number >> 63))
    while zigzag >= np.uint64(0x80):
        room[at] = np.uint8(zigzag & np.uint64(0x7F)) | np.uint8(0x80)
        zigzag >>= np.uint64(7)
        at += 1
    room[at] = np.uint8(zigzag)
    return at + 1


@part
def _signed_width(number: int) -> int:
    zigzag = np.uint64((number << 1) ^ (number >> 63))
    width = 1
    while zigzag >= np.uint64(0x80):
        zigzag >>= np.uint64(7)
        width += 1
    return width


def _encoding(sources: int) -> Kernel:
    def kernel(
        keys: Any,
        key_at: Any,
        key_nulls: Any,
        values: Any,
        value_at: Any,
        value_nulls: Any,
        headers: Any,
        header_at: Any,
        header_nulls: Any,
        deltas: Any,
        room: Any,
    ) -> int:
        at = 0 * sources  # closed over, see compile_kernel
        for row in range(len(deltas)):
            begin, end = header_at[row], header_at[row + 1]
            size = 1 + _signed_width(deltas[row]) + varint_width(row) + value_width(key_at, key_nulls, row)
            size += value_width(value_at, value_nulls, row) + end - begin
            at = put_varint(room, at, size)
            room[at] = 0  # attributes
            at = _put_signed(room, at + 1, deltas[row])
            at = put_varint(room, at, row)
            at = put_value(room, at, keys, key_at, key_nulls, row)
            at = put_value(room, at, values, value_at, value_nulls, row)
            at = copy(room, at, headers, begin, end)
        return at

    return kernel
