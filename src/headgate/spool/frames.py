"""One request in the spool: a frame with its length and checksum, and the rows' numbers.

    length u32 | crc u32 | first row u64 | rows u32 | request (MessagePack)

The checksum covers all that follows it. A request is one frame however many events it brought, so that after a crash
either all of them are there or none.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import msgspec

from headgate.model import StateError

__all__ = ["HEAD_BYTES", "Frame", "Request", "decode_request", "encode_frame", "frame_at", "skip_frame"]

_HEAD = struct.Struct("<IIQI")
_CHECKED = struct.Struct("<QI")
_CRC_END = 8
HEAD_BYTES = _HEAD.size

Buffer = bytes | bytearray | memoryview


class Request(msgspec.Struct, frozen=True, array_like=True):
    """What was sent, and by whom. Headers that prove who it was are not among `headers`."""

    received_us: int
    key: bytes  # fingerprint of the idempotency key; empty without one
    client: str | None
    path: str
    content_type: str | None
    headers: dict[str, str]
    bodies: list[bytes]  # one row each


class Frame(NamedTuple):
    """Where a request lies, and which rows it is."""

    start: int
    end: int
    first_row: int
    rows: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Request)


def encode_frame(first_row: int, request: Request) -> bytes:
    payload = _encoder.encode(request)
    rows = len(request.bodies)
    crc = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(first_row, rows)))
    return _HEAD.pack(len(payload), crc, first_row, rows) + payload


def skip_frame(data: Buffer, start: int) -> Frame | None:
    """The frame at `start`, not looked into; None if it is not there whole."""
    if start + HEAD_BYTES > len(data):
        return None
    length, _, first_row, rows = _HEAD.unpack_from(data, start)
    end = start + HEAD_BYTES + length
    return Frame(start, end, first_row, rows) if end <= len(data) else None


def frame_at(data: Buffer, start: int) -> Frame | None:
    """The frame at `start`; None if it is not there whole and intact."""
    frame = skip_frame(data, start)
    if frame is None:
        return None
    (crc,) = struct.unpack_from("<I", data, start + 4)
    return frame if crc == zlib.crc32(memoryview(data)[start + _CRC_END : frame.end]) else None


def decode_request(data: Buffer, frame: Frame, where: str = "") -> Request:
    """What is in a frame that `frame_at` found."""
    try:
        request = _decoder.decode(memoryview(data)[frame.start + HEAD_BYTES : frame.end])
    except msgspec.MsgspecError as error:
        raise _unreadable(where, str(error)) from None
    if len(request.bodies) != frame.rows:
        raise _unreadable(where, "the number of rows differs")
    return request


def _unreadable(where: str, why: str) -> StateError:
    return StateError(
        f"a request in the spool cannot be read: {why}",
        where=where,
        remedy="was it written by a newer version? restore the file, or start anew with an empty spool",
    )
