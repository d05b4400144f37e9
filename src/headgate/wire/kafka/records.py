"""The records inside a batch: read one by one, and written.

For those who must look inside: compaction, offsets by time, SQL. Produce and Fetch pass batches on as bytes.

A record is a varint length, attributes, varint deltas of time and offset, key, value and headers. Varints are
zigzag-coded: small negative numbers are short, too. -1 stands for null.

Specification: Apache Kafka documentation, Implementation, "Message Format", Record; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from headgate.model import ProtocolError
from headgate.wire.kafka.batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_START,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc32c,
    read_batch_header,
)
from headgate.wire.kafka.compression import Codec, compress, decompress
from headgate.wire.kafka.encode import uvarint

__all__ = ["MAX_RECORDS_BYTES", "Record", "RecordHeader", "encode_batch", "read_records"]

MAX_RECORDS_BYTES = 128 * 1024 * 1024
_REMEDY = "The batch is damaged; send it again with a current client."

RecordHeader = tuple[str, bytes | None]


class Record(msgspec.Struct, frozen=True):
    """One message. Headers keep their order; keys may repeat and values may be null."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()


def read_records(batch: bytes | memoryview, *, max_bytes: int = MAX_RECORDS_BYTES) -> Iterator[Record]:
    """The records of one batch, whose checksum the caller has checked.

    Records that take more than `max_bytes` when decompressed, or that are not what the header says, raise
    `ProtocolError`.
    """
    header = read_batch_header(batch)
    content = bytes(batch[HEADER_BYTES : header.size])
    try:
        yield from _walk(header, decompress(header.codec, content, max_bytes=max_bytes))
    except ProtocolError as error:
        raise error.at("record batch") from None
    except IndexError:
        raise _broken("a record ends too early") from None
    except UnicodeDecodeError:
        raise _broken("the key of a header is not UTF-8") from None


def _walk(header: BatchHeader, data: bytes) -> Iterator[Record]:
    position, last_delta = 0, -1
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(header.count):
        size, position = _varint(data, position)
        end = position + size
        if size < 0 or end > len(data):
            raise _broken(f"a record of {size} bytes")
        time_delta, position = _varint(data, position + 1)  # the attributes are unused
        delta, position = _varint(data, position)
        if not last_delta < delta <= header.last_offset_delta:
            raise _broken(f"a record with the offset delta {delta} after {last_delta}")
        key, position = _sized(data, position)
        value, position = _sized(data, position)
        headers, position = _headers(data, position)
        if position != end:
            raise _broken("a record is not as long as it says")
        timestamp = header.base_timestamp + time_delta if append_time is None else append_time
        yield Record(header.base_offset + delta, timestamp, key, value, headers)
        last_delta = delta
    if position != len(data):
        raise _broken(f"{len(data) - position} bytes follow the records")


def _headers(data: bytes, position: int) -> tuple[tuple[RecordHeader, ...], int]:
    if data[position] == 0:
        return (), position + 1
    count, position = _varint(data, position)
    if not 0 <= count <= (len(data) - position) // 2:
        raise _broken(f"a record with {count} headers")
    headers: list[RecordHeader] = []
    for _ in range(count):
        key, position = _sized(data, position)
        value, position = _sized(data, position)
        if key is None:
            raise _broken("a header without a key")
        headers.append((str(key, "utf-8"), value))
    return tuple(headers), position


def _sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    byte = data[position]
    if byte < 0x80 and not byte & 1:  # most are short, and this is where the time goes
        size, position = byte >> 1, position + 1
    else:
        size, position = _varint(data, position)
    if size < 0:
        if size != -1:
            raise _broken(f"a length of {size}")
        return None, position
    end = position + size
    if end > len(data):
        raise IndexError
    return data[position:end], end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits: as in Protocol Buffers, says "Protocol Primitive Types", VARLONG."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise _broken("a varint is longer than 64 bits")


def _broken(what: str) -> ProtocolError:
    return ProtocolError(what, remedy=_REMEDY, where="record batch")


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """One batch. Offsets must rise and may leave gaps, as they do after compaction."""
    if not records:
        raise _broken("a batch without records")
    first, last = records[0], records[-1]
    content = compress(codec, b"".join(_record(record, first) for record in records))
    flags = (log_append_time is not None, LOG_APPEND_TIME_BIT), (is_transactional, TRANSACTIONAL_BIT)
    attributes = codec | sum(bit for is_set, bit in (*flags, (is_control, CONTROL_BIT)) if is_set)
    max_timestamp = max(record.timestamp for record in records) if log_append_time is None else log_append_time
    header = BatchHeader(
        base_offset=first.offset,
        length=HEADER_BYTES - LENGTH_START + len(content),
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last.offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    checked = HEADER.pack(*msgspec.structs.astuple(header))[CRC_START:] + content
    header = msgspec.structs.replace(header, crc=crc32c(checked))
    return HEADER.pack(*msgspec.structs.astuple(header))[:CRC_START] + checked


def _record(record: Record, first: Record) -> bytes:
    parts = [
        b"\0",
        _zigzag(record.timestamp - first.timestamp),
        _zigzag(record.offset - first.offset),
        _prefixed(record.key),
        _prefixed(record.value),
        _zigzag(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += _prefixed(key.encode()), _prefixed(value)
    body = b"".join(parts)
    return _zigzag(len(body)) + body


def _prefixed(data: bytes | None) -> bytes:
    return _zigzag(-1) if data is None else _zigzag(len(data)) + data


def _zigzag(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))
