"""The records of a log: a header of 28 bytes, little-endian, then a payload.

    flags u32 | kind u32 | length of the payload u32 | uid u64 | seq u64 | payload

The format has no checksum. What protects it is that a record counts only after `fdatasync`, that `seq` rises from
record to record, and that the other fields have few lawful values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

from headgate.model import DataError

__all__ = [
    "HEADER",
    "MAX_PAYLOAD_BYTES",
    "MAX_SEQ",
    "TAKEN_DOWN",
    "Extent",
    "Header",
    "Record",
    "encode",
    "ends_with_record",
    "headers",
    "is_sound",
    "measure",
]

HEADER = struct.Struct("<IIIQQ")
TAKEN_DOWN = 1
MAX_SEQ = 2**53 - 1  # what every consumer's numbers can hold
MAX_PAYLOAD_BYTES = 16 << 20

_MOST_FLAGS = 3  # taken down, rebased
_MOST_KINDS = 255
_MOST_UID = 2**64 - 1
# Where a header might begin: lawful flags and kind, and the zero that ends every seq.
_LIKELY_HEADER = re.compile(rb"(?=[\x00-\x03]\x00{3}[^\x00]\x00{3}.{19}\x00)", re.DOTALL)


class Record(NamedTuple):
    """One event of a log."""

    seq: int
    kind: int
    uid: int
    payload: bytes


class Header(NamedTuple):
    """The header of a record and where it lies in its file."""

    offset: int
    flags: int
    kind: int
    size: int
    uid: int
    seq: int

    @property
    def end(self) -> int:
        return self.offset + HEADER.size + self.size


class Extent(NamedTuple):
    """What sound records a file has, from its beginning."""

    events: int
    last_seq: int
    end: int


def encode(seq: int, kind: int, uid: int, payload: bytes) -> bytes:
    """The header for a payload; refuses what could not be read back."""
    size = len(payload)
    if not (0 < kind <= _MOST_KINDS and 0 <= uid <= _MOST_UID and size <= MAX_PAYLOAD_BYTES and 0 < seq <= MAX_SEQ):
        raise DataError(
            f"kind {kind}, uid {uid}, seq {seq} with {size} bytes is no record of an event log",
            remedy=f"kinds are 1 to {_MOST_KINDS}, payloads have at most {MAX_PAYLOAD_BYTES >> 20} MiB",
        )
    return HEADER.pack(0, kind, size, uid, seq)


def is_sound(flags: int, kind: int, size: int, seq: int, after: int) -> bool:
    """Whether a header can be one, behind a record with the sequence number `after`."""
    return flags <= _MOST_FLAGS and 0 < kind <= _MOST_KINDS and size <= MAX_PAYLOAD_BYTES and after < seq <= MAX_SEQ


def headers(data: bytes | mmap, after: int, before: int = MAX_SEQ + 1) -> Iterator[Header]:
    """The headers of complete and sound records, from the beginning on; numbers lie between `after` and `before`."""
    offset, end = 0, len(data)
    while offset + HEADER.size <= end:
        flags, kind, size, uid, seq = HEADER.unpack_from(data, offset)
        if not is_sound(flags, kind, size, seq, after) or seq >= before or offset + HEADER.size + size > end:
            return
        yield Header(offset, flags, kind, size, uid, seq)
        offset, after = offset + HEADER.size + size, seq


def measure(data: bytes | mmap, after: int, before: int = MAX_SEQ + 1) -> Extent:
    """How far the sound records of a file go."""
    events, end = 0, 0
    for header in headers(data, after, before):
        events, after, end = events + 1, header.seq, header.end
    return Extent(events, after, end)


def ends_with_record(data: bytes, after: int, before: int) -> bool:
    """Whether the data ends where a record ends, one with `after` < seq < `before`."""
    for found in _LIKELY_HEADER.finditer(data):
        flags, kind, size, _, seq = HEADER.unpack_from(data, found.start())
        if found.start() + HEADER.size + size == len(data) and seq < before and is_sound(flags, kind, size, seq, after):
            return True
    return False
