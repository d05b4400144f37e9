"""What a producer sent, checked and made ready for the log: batches with the positions of their records.

The rules are Kafka's, and so are the codes of the refusals. A batch stays as it was sent, but for topics whose records
the gateway dates: their batches get its time, and a new checksum.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from struct import Struct

import msgspec

from headgate.commitlog.configs import is_compacted, long_of, value_of
from headgate.kernels.log.positions import Positions, walk
from headgate.model import ProtocolError
from headgate.wire.kafka.batch import (
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    check_crc,
    crc32c,
    split_batches,
)
from headgate.wire.kafka.compression import Codec, TooMuchError, decompress
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.records import Record, encode_batch, read_records
from headgate.wire.kafka.refusal import Refused

__all__ = ["MAX_PLAIN_BYTES", "Batch", "Rules", "is_heavy", "prepare", "rules_of"]

# How much may come out of a batch: in proportion to what the topic takes, because nobody else's data grows so much.
MAX_PLAIN_BYTES = 128 * 1024 * 1024
_LEAST_PLAIN_BYTES = 1024 * 1024
_MAX_GROWTH = 16
_MUCH_PLAIN_BYTES, _MUCH_PACKED_BYTES = 4 * 1024 * 1024, 2048
_MAGIC_AT, _MAGIC = 16, 2
_ATTRIBUTES_AT, _CODEC_BITS = 21, 0b111
_DATED = Struct(">hiqq")  # from the attributes to the greatest time
_CRC, _CRC_AT = Struct(">I"), 17
_NO_TIME = -1


class Rules(msgspec.Struct, frozen=True):
    """What a topic asks of its batches."""

    max_bytes: int = 1048588
    needs_keys: bool = False
    is_dated_here: bool = False  # LogAppendTime
    before_max_ms: int = 2**63 - 1
    after_max_ms: int = 3600000
    for_sql: bool = True

    @property
    def max_plain_bytes(self) -> int:
        """Of the records of a compressed batch."""
        return min(max(self.max_bytes * _MAX_GROWTH, _LEAST_PLAIN_BYTES), MAX_PLAIN_BYTES)


class Batch(msgspec.Struct, frozen=True):
    """One batch on its way into the log. The fields are those of `kafka.incoming`."""

    data: memoryview
    count: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    positions: Positions | None  # none: the topic is not read by SQL
    plain: bytes | None

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def append_time(self) -> int:
        """When the gateway dated it; -1 if its producer did."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME_BIT else _NO_TIME


def rules_of(configs: Mapping[str, str]) -> Rules:
    """The rules of a topic with these settings."""
    return Rules(
        max_bytes=long_of(configs, "max.message.bytes"),
        needs_keys=is_compacted(configs),
        is_dated_here=value_of(configs, "message.timestamp.type") == "LogAppendTime",
        before_max_ms=long_of(configs, "message.timestamp.before.max.ms"),
        after_max_ms=long_of(configs, "message.timestamp.after.max.ms"),
        for_sql=value_of(configs, "headgate.sql") == "true",
    )


def is_heavy(records: bytes | memoryview) -> bool:
    """Whether `prepare` may take long: much, or something that may become much."""
    if len(records) <= _ATTRIBUTES_AT + 1:
        return False
    is_plain = not records[_ATTRIBUTES_AT + 1] & _CODEC_BITS
    return len(records) > (_MUCH_PLAIN_BYTES if is_plain else _MUCH_PACKED_BYTES)


def prepare(records: bytes | memoryview, rules: Rules, *, in_transaction: bool = False) -> tuple[Batch, ...]:
    """The batches of one partition in a Produce request. Raises `Refused`."""
    now_ms = time.time_ns() // 1_000_000
    _check_format(records)
    try:
        found = tuple(split_batches(records))
    except ProtocolError as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, error.message) from None
    return tuple(_prepare(header, data, rules, now_ms, in_transaction=in_transaction) for header, data in found)


def _check_transaction(header: BatchHeader, *, in_transaction: bool) -> None:
    if header.is_transactional is not in_transaction:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            "a batch of a transaction, in a request without a transactional id"
            if header.is_transactional
            else "a batch of no transaction, in a request with a transactional id",
        )
    if in_transaction and header.producer_id < 0:
        raise Refused(ErrorCode.INVALID_RECORD, "a batch of a transaction without a producer id")


def _check_format(records: bytes | memoryview) -> None:
    if len(records) <= _MAGIC_AT:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "no batch")
    if records[_MAGIC_AT] in (0, 1):
        raise Refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "record formats before 2 are not taken")


def _prepare(header: BatchHeader, data: memoryview, rules: Rules, now_ms: int, *, in_transaction: bool) -> Batch:
    if header.size > rules.max_bytes:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {header.size} bytes; the topic takes {rules.max_bytes}")
    try:
        check_crc(data, header)
    except ProtocolError as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, error.message) from None
    _check_transaction(header, in_transaction=in_transaction)
    _check_header(header)
    section = data[HEADER_BYTES:]
    plain = None if header.codec is Codec.NONE else _inflated(header, section, rules.max_plain_bytes)
    positions = _positions(section if plain is None else plain, header)
    if rules.needs_keys and positions.has_null_keys:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            "a record of a compacted topic must have a key",
            records=positions.without_key(),
        )
    if positions.has_odd_headers:
        _check_records(data, rules.max_plain_bytes)
    if positions.has_long_forms and rules.for_sql:
        plain = _rewritten(data, header, rules.max_plain_bytes)
        positions = _positions(plain, header)
    if rules.is_dated_here:
        data = _dated(header, data, now_ms)
        positions = msgspec.structs.replace(positions, ts_delta=b"", ts_far=b"")
        attributes, max_timestamp = header.attributes | LOG_APPEND_TIME_BIT, now_ms
    else:
        attributes, max_timestamp = header.attributes, _newest(header, positions, rules, now_ms)
    return Batch(
        data=data,
        count=header.count,
        attributes=attributes,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        positions=positions if rules.for_sql else None,
        plain=plain if rules.for_sql else None,
    )


def _check_header(header: BatchHeader) -> None:
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        raise Refused(
            ErrorCode.INVALID_RECORD, f"{header.count} records over {header.last_offset_delta + 1} offsets in a batch"
        )
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.is_log_append_time:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not date a batch as appended")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise Refused(ErrorCode.INVALID_RECORD, "a batch of an idempotent producer without a sequence")


def _inflated(header: BatchHeader, section: memoryview, max_bytes: int) -> bytes:
    try:
        return decompress(header.codec, bytes(section), max_bytes=max_bytes)
    except TooMuchError as error:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, error.message) from None
    except ProtocolError as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, error.message) from None


def _positions(section: bytes | memoryview, header: BatchHeader) -> Positions:
    positions = walk(section, header.count) if len(section) else None
    if positions is None:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "the records do not fill their batch")
    if positions.off_delta:
        raise Refused(ErrorCode.INVALID_RECORD, "the offsets inside the batch are not consecutive")
    return positions


def _check_records(data: memoryview, max_bytes: int) -> list[Record]:
    try:
        return list(read_records(data, max_bytes=max_bytes))
    except ProtocolError as error:
        raise Refused(ErrorCode.INVALID_RECORD, error.message) from None


def _rewritten(data: memoryview, header: BatchHeader, max_bytes: int) -> bytes:
    """The records with their numbers in the shortest form: SQL computes where things are from their lengths."""
    base = Record(header.base_offset, header.base_timestamp)
    start = len(encode_batch([base]))
    return b"".join(encode_batch([base, record])[start:] for record in _check_records(data, max_bytes))


def _newest(header: BatchHeader, positions: Positions, rules: Rules, now_ms: int) -> int:
    """The greatest timestamp, which need not be what the header says."""
    least = header.base_timestamp + positions.least_ts_delta
    greatest = header.base_timestamp + positions.greatest_ts_delta
    if greatest > now_ms + rules.after_max_ms or (least != _NO_TIME and least < now_ms - rules.before_max_ms):
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a timestamp too far from the gateway's clock")
    return greatest


def _dated(header: BatchHeader, data: memoryview, now_ms: int) -> memoryview:
    batch = bytearray(data)
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _DATED.pack_into(batch, CRC_START, attributes, header.last_offset_delta, header.base_timestamp, now_ms)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return memoryview(batch)
