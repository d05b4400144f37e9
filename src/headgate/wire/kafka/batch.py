"""Record batches (format 2) as bytes: the header is read and checked without looking at the records.

    0  base offset int64          17  CRC32C uint32            43  producer id int64
    8  length int32               21  attributes int16         51  producer epoch int16
    12 leader epoch int32         23  last offset delta int32  53  base sequence int32
    16 magic int8                 27  base time int64          57  record count int32
                                  35  max time int64           61  records, compressed or not

The length counts from byte 12, the checksum from byte 21. Base offset and leader epoch lie before both: a log gives a
batch its place by writing twelve bytes, and never touches what the producer sent.

Specification: Apache Kafka documentation, Implementation, "Message Format", Record Batch; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import google_crc32c
import msgspec

from headgate.model import ProtocolError
from headgate.wire.kafka.compression import Codec

__all__ = [
    "HEADER_BYTES",
    "BatchHeader",
    "check_crc",
    "crc32c",
    "place_batch",
    "placed",
    "read_batch_header",
    "split_batches",
    "stamped",
]

HEADER_BYTES = 61
HEADER = Struct(">qiibIhiqqqhii")
LENGTH_START = 12  # where the bytes that `length` counts begin
CRC_START = 21
# "Message Format", Record Batch, attributes.
COMPRESSION_BITS, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT = 0x07, 0x08, 0x10, 0x20
_LEAST_RECORD_BYTES = 7
_BASE_OFFSET, _LEADER_EPOCH = Struct(">q"), Struct(">i")
_ATTRIBUTES, _CHECKSUM, _CHECKSUM_AT = Struct(">h"), Struct(">I"), 17
_PRODUCER, _PRODUCER_AT = Struct(">qhi"), 43
_REMEDY = "The batch is damaged, or of a producer too old for Kafka 4; send it again with a current client."


class BatchHeader(msgspec.Struct, frozen=True):
    """The 61 bytes in front of the records. The field names are the protocol's."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_START + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & COMPRESSION_BITS)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def read_batch_header(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, whose bytes must all be there; the checksum is not looked at."""
    left = len(data) - position
    if left < HEADER_BYTES:
        raise _broken(f"a batch of {left} bytes")
    header = BatchHeader(*HEADER.unpack_from(data, position))
    if header.magic != 2:
        raise _broken(f"a batch of format {header.magic}")
    if not HEADER_BYTES <= header.size <= left:
        raise _broken(f"a batch of {header.size} bytes in {left}")
    if header.attributes & COMPRESSION_BITS > Codec.ZSTD:
        raise _broken(f"an unknown compression {header.attributes & COMPRESSION_BITS}")
    _check_count(header)
    return header


def _check_count(header: BatchHeader) -> None:
    if not 0 <= header.count <= header.last_offset_delta + 1:
        raise _broken(f"a batch of {header.count} records over {header.last_offset_delta + 1} offsets")
    is_plain = not header.attributes & COMPRESSION_BITS
    if is_plain and header.count * _LEAST_RECORD_BYTES > header.size - HEADER_BYTES:
        raise _broken(f"a batch of {header.count} records in {header.size} bytes")


def check_crc(data: bytes | memoryview, header: BatchHeader, position: int = 0) -> None:
    """Raise `ProtocolError` unless the batch at `position` is the one that its producer made."""
    if crc32c(data[position + CRC_START : position + header.size]) != header.crc:
        raise _broken("a batch whose checksum is wrong")


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of record batches: CRC-32C (Castagnoli), RFC 3720 appendix B.4."""
    # The package takes no views; the copy costs half as much again as the checksum.
    value: int = google_crc32c.value(bytes(data))
    return value


def split_batches(data: bytes | memoryview, *, allow_partial: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch with its bytes. The last of a Fetch response may be cut off, which `allow_partial` lets pass."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        if allow_partial and _is_partial(view, position):
            return
        header = read_batch_header(view, position)
        yield header, view[position : position + header.size]
        position += header.size


def _is_partial(view: memoryview, position: int) -> bool:
    left = len(view) - position
    if left < HEADER_BYTES:
        return True
    length: int = _LEADER_EPOCH.unpack_from(view, position + 8)[0]
    return length > left - LENGTH_START


def place_batch(data: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Give the batch at `position` its place in the log, in the buffer itself."""
    _BASE_OFFSET.pack_into(data, position, base_offset)
    _LEADER_EPOCH.pack_into(data, position + LENGTH_START, leader_epoch)


def placed(batch: bytes | memoryview, base_offset: int, leader_epoch: int) -> bytes:
    """A copy of one batch with its place in the log."""
    return b"".join((_BASE_OFFSET.pack(base_offset), batch[8:12], _LEADER_EPOCH.pack(leader_epoch), batch[16:]))


def stamped(batch: bytes | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """Return a copy of one batch as one that another producer sends: in no transaction, with offsets that begin at 0.

    Of the attributes only the compression stays: a batch that the log dated says other times than its records.
    """
    made = bytearray(batch)
    _BASE_OFFSET.pack_into(made, 0, 0)
    _LEADER_EPOCH.pack_into(made, LENGTH_START, -1)
    (attributes,) = _ATTRIBUTES.unpack_from(made, CRC_START)
    _ATTRIBUTES.pack_into(made, CRC_START, attributes & COMPRESSION_BITS)
    _PRODUCER.pack_into(made, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _CHECKSUM.pack_into(made, _CHECKSUM_AT, crc32c(memoryview(made)[CRC_START:]))
    return bytes(made)


def _broken(what: str) -> ProtocolError:
    return ProtocolError(what, remedy=_REMEDY, where="record batch")
