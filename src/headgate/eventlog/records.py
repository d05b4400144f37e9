"""The records of a log: a header of 28 bytes, little-endian, then a payload.

    flags u32 | kind u32 | length of the rest u32 | uid u64 | seq u64 | payload | CRC-32C of all before it u32

Flags 4 and 8, always both, say that there is the checksum. Logs of before have records without: what protects those is
that a record counts only after `fdatasync`, that `seq` rises from record to record, and that the other fields have few
lawful values. A record that was taken down is not compared with its checksum, which was wiped with it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

import google_crc32c

from headgate.model import DataError

__all__ = [
    "CHECKED",
    "CHECK_BYTES",
    "HEADER",
    "LOST",
    "MAX_PAYLOAD_BYTES",
    "MAX_SEQ",
    "TAKEN_DOWN",
    "Damage",
    "Extent",
    "Header",
    "Record",
    "all_headers",
    "encode",
    "ends_with_record",
    "find_record",
    "headers",
    "intact_extent",
    "is_intact",
    "is_sound",
    "measure",
]

HEADER = struct.Struct("<IIIQQ")
TAKEN_DOWN = 1
CHECKED = 12  # two bits, so that no damage to one of them makes a record one without checksum
CHECK_BYTES = 4
LOST = 255  # the kind of a record that stands for others, which a repair could not save
MAX_SEQ = 2**53 - 1  # what every consumer's numbers can hold
MAX_PAYLOAD_BYTES = 16 << 20

_MOST_FLAGS = 3 | CHECKED  # taken down, rebased
_MOST_KINDS = 255
_MOST_UID = 2**64 - 1
# Where a header might begin: lawful flags and kind, and the zero that ends every seq.
_LIKELY_HEADER = re.compile(rb"(?=[\x00-\x03\x0c-\x0f]\x00{3}[^\x00]\x00{3}.{19}\x00)", re.DOTALL)


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

    @property
    def payload_end(self) -> int:
        return self.end - (CHECK_BYTES if self.flags & CHECKED else 0)


class Damage(NamedTuple):
    """Bytes of a file that are no records. Of the events between two numbers, both not counted, some may be lost."""

    path: str
    offset: int
    end: int
    after: int
    before: int

    @property
    def text(self) -> str:
        return f"events between {self.after} and {self.before} cannot be read"


class Extent(NamedTuple):
    """What sound records a file has, from its beginning."""

    events: int
    last_seq: int
    end: int


def encode(seq: int, kind: int, uid: int, payload: bytes) -> tuple[bytes, bytes, bytes]:
    """A record, in three parts; refuses what could not be read back."""
    size = len(payload) + CHECK_BYTES
    if not (0 < kind <= _MOST_KINDS and 0 <= uid <= _MOST_UID and size <= MAX_PAYLOAD_BYTES and 0 < seq <= MAX_SEQ):
        raise DataError(
            f"kind {kind}, uid {uid}, seq {seq} with {size} bytes is no record of an event log",
            remedy=f"kinds are 1 to {_MOST_KINDS}, payloads have at most {MAX_PAYLOAD_BYTES >> 20} MiB",
        )
    header = HEADER.pack(CHECKED, kind, size, uid, seq)
    return header, payload, google_crc32c.extend(google_crc32c.value(header), payload).to_bytes(CHECK_BYTES, "little")


def is_intact(data: bytes | mmap, offset: int, end: int) -> bool:
    """Whether the record from here to there, which is checked and not taken down, is what was written."""
    split = end - CHECK_BYTES
    return bool(google_crc32c.value(data[offset:split]) == int.from_bytes(data[split:end], "little"))


def find_record(data: bytes | mmap, start: int, after: int) -> int | None:
    """Where behind damage the next record begins that has a number above `after`; None if there is none.

    Bytes of other records look like headers often enough. One with a checksum shows that it is none; one without must
    lead, from header to header, to the next one that has a checksum, or to the end if there is none.
    """
    unchecked: list[tuple[int, int, int]] = []
    intact = len(data)
    for found in _LIKELY_HEADER.finditer(data, start):
        offset = found.start()
        flags, kind, size, _, seq = HEADER.unpack_from(data, offset)
        end = offset + HEADER.size + size
        if end > len(data) or not is_sound(flags, kind, size, seq, after):
            continue
        if not flags & CHECKED or flags & TAKEN_DOWN:
            unchecked.append((offset, end, seq))
        elif is_intact(data, offset, end):
            intact = offset
            break
    for offset, end, seq in unchecked:
        if _is_of_before(data, offset, end, seq, intact):
            return offset
    return intact if intact < len(data) else None


def _is_of_before(data: bytes | mmap, offset: int, end: int, seq: int, intact: int) -> bool:
    """Whether this is a record without a checksum that leads to the next intact one, and not one that has lost the
    flags of its checksum.
    """
    flags = int.from_bytes(data[offset : offset + 4], "little")
    with_flags = (flags | CHECKED).to_bytes(4, "little") + data[offset + 4 : end]
    if is_intact(with_flags, 0, len(with_flags)):
        return False
    for header in headers(data, seq, start=end):
        if end >= intact:
            break
        end = header.end
    return end == intact


def is_sound(flags: int, kind: int, size: int, seq: int, after: int) -> bool:
    """Whether a header can be one, behind a record with the sequence number `after`."""
    least = CHECK_BYTES if flags & CHECKED else 0
    is_lawful = (
        flags <= _MOST_FLAGS
        and flags & CHECKED in (0, CHECKED)
        and 0 < kind <= _MOST_KINDS
        and least <= size <= MAX_PAYLOAD_BYTES
    )
    return is_lawful and after < seq <= MAX_SEQ


def headers(data: bytes | mmap, after: int, before: int = MAX_SEQ + 1, start: int = 0) -> Iterator[Header]:
    """The headers of complete and sound records, from `start` on; numbers lie between `after` and `before`.

    None without a checksum follows one with: whoever writes checksums writes them from then on.
    """
    offset, end, has_checks = start, len(data), False
    while offset + HEADER.size <= end:
        flags, kind, size, uid, seq = HEADER.unpack_from(data, offset)
        if not is_sound(flags, kind, size, seq, after) or seq >= before or offset + HEADER.size + size > end:
            return
        if has_checks and not flags & CHECKED:
            return
        has_checks = bool(flags & CHECKED)
        yield Header(offset, flags, kind, size, uid, seq)
        offset, after = offset + HEADER.size + size, seq


def all_headers(data: bytes | mmap, after: int) -> Iterator[Header]:
    """The headers of all records that are what was written, also of those behind damage."""
    offset: int | None = 0
    while offset is not None and offset < len(data):
        end = offset
        for header in headers(data, after, start=offset):
            if not _is_whole(data, header):
                break
            yield header
            after, end = header.seq, header.end
        offset = find_record(data, end + 1, after) if end < len(data) else None


def measure(data: bytes | mmap, after: int, before: int = MAX_SEQ + 1, start: int = 0) -> Extent:
    """How far the sound records of a file go."""
    events, end = 0, start
    for header in headers(data, after, before, start):
        events, after, end = events + 1, header.seq, header.end
    return Extent(events, after, end)


def intact_extent(data: bytes | mmap, after: int, before: int = MAX_SEQ + 1) -> Extent:
    """How far the sound records of a file go, without those at its end whose payload never reached the disk."""
    found = list(headers(data, after, before))
    while found and not _is_whole(data, found[-1]):
        found.pop()
    return Extent(len(found), found[-1].seq, found[-1].end) if found else Extent(0, after, 0)


def _is_whole(data: bytes | mmap, header: Header) -> bool:
    is_checked = header.flags & CHECKED and not header.flags & TAKEN_DOWN
    return not is_checked or is_intact(data, header.offset, header.end)


def ends_with_record(data: bytes, after: int, before: int) -> bool:
    """Whether the data ends where a record ends, one with `after` < seq < `before`."""
    for found in _LIKELY_HEADER.finditer(data):
        flags, kind, size, _, seq = HEADER.unpack_from(data, found.start())
        if found.start() + HEADER.size + size == len(data) and seq < before and is_sound(flags, kind, size, seq, after):
            return True
    return False
