"""What a producer may send, and with which code the rest is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass
from struct import pack_into

import pytest

from headgate.commitlog.configs import CONFIGS, check_configs, retention_class
from headgate.commitlog.prepare import MAX_PLAIN_BYTES, Rules, prepare, rules_of
from headgate.wire.kafka import Codec, Record, check_crc, encode_batch, read_batch_header, read_records
from headgate.wire.kafka.batch import HEADER_BYTES, crc32c
from headgate.wire.kafka.compression import compress
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

NOW = time.time_ns() // 1_000_000
PLAIN = Rules()
RECORDS = [Record(0, NOW, b"key", b"value"), Record(1, NOW + 1, b"other", None)]


def refused(records: bytes, rules: Rules = PLAIN) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        prepare(records, rules)
    return caught.value.code


def sealed(batch: bytes, at: int, form: str, value: int) -> bytes:
    """A batch with one number changed and a checksum that fits."""
    changed = bytearray(batch)
    pack_into(form, changed, at, value)
    pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def with_records(section: bytes, count: int) -> bytes:
    """A batch around bytes of our own."""
    model = encode_batch([Record(index, NOW, b"k", b"v") for index in range(count)])
    batch = bytearray(model[:HEADER_BYTES] + section)
    pack_into(">i", batch, 8, len(batch) - 12)
    return sealed(bytes(batch), 16, ">b", 2)


def test_batches_are_kept_as_they_are() -> None:
    first, second = encode_batch(RECORDS), encode_batch(RECORDS, codec=Codec.ZSTD)
    prepared = prepare(memoryview(first + second), Rules())
    assert [bytes(batch.data) for batch in prepared] == [first, second]
    assert [batch.count for batch in prepared] == [2, 2]
    assert [batch.max_timestamp for batch in prepared] == [NOW + 1, NOW + 1]
    assert prepared[0].plain is None
    assert prepared[1].plain == first[HEADER_BYTES:]


def test_topic_that_sql_does_not_read_keeps_no_positions() -> None:
    (batch,) = prepare(encode_batch(RECORDS, codec=Codec.GZIP), Rules(for_sql=False))
    assert (batch.positions, batch.plain) == (None, None)


def test_gateway_dates_the_batch() -> None:
    (batch,) = prepare(encode_batch(RECORDS), Rules(is_dated_here=True))
    header = read_batch_header(batch.data)
    check_crc(batch.data, header)
    assert header.is_log_append_time
    assert batch.append_time == header.max_timestamp >= NOW
    assert {record.timestamp for record in read_records(batch.data)} == {batch.append_time}


@dataclass(frozen=True)
class Wrong:
    """A batch that must not pass."""

    id: str
    code: ErrorCode
    batch: bytes
    rules: Rules = PLAIN


BATCH = encode_batch(RECORDS)
DAY_MS = 24 * 3600 * 1000
WRONG = [
    Wrong("nothing", ErrorCode.CORRUPT_MESSAGE, b""),
    Wrong("cut off", ErrorCode.CORRUPT_MESSAGE, BATCH[:-1]),
    Wrong("a flipped bit", ErrorCode.CORRUPT_MESSAGE, BATCH[:-1] + bytes([BATCH[-1] ^ 1])),
    Wrong("format 1", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, BATCH[:16] + b"\1" + BATCH[17:]),
    Wrong("too large", ErrorCode.MESSAGE_TOO_LARGE, BATCH, Rules(max_bytes=len(BATCH) - 1)),
    Wrong(
        "no key in a compacted topic", ErrorCode.INVALID_RECORD, encode_batch([Record(0, NOW)]), Rules(needs_keys=True)
    ),
    Wrong("control records", ErrorCode.INVALID_RECORD, encode_batch(RECORDS, is_control=True)),
    Wrong(
        "a bit that says so by mistake",
        ErrorCode.CORRUPT_MESSAGE,
        BATCH[:22] + bytes([BATCH[22] | 0x10]) + BATCH[23:],
    ),
    Wrong("a transaction", ErrorCode.INVALID_TXN_STATE, encode_batch(RECORDS, is_transactional=True, producer_id=1)),
    Wrong("dated by the producer", ErrorCode.INVALID_TIMESTAMP, encode_batch(RECORDS, log_append_time=NOW)),
    Wrong("tomorrow", ErrorCode.INVALID_TIMESTAMP, encode_batch([Record(0, NOW + DAY_MS, b"k")])),
    Wrong(
        "last week",
        ErrorCode.INVALID_TIMESTAMP,
        encode_batch([Record(0, NOW - 7 * DAY_MS)]),
        Rules(before_max_ms=DAY_MS),
    ),
    Wrong("gaps", ErrorCode.INVALID_RECORD, encode_batch([RECORDS[0], Record(5, NOW)])),
    Wrong("gaps inside", ErrorCode.INVALID_RECORD, sealed(encode_batch([Record(0, NOW), Record(2, NOW)]), 23, ">i", 1)),
    Wrong("too few records", ErrorCode.CORRUPT_MESSAGE, with_records(BATCH[HEADER_BYTES:], 3)),
    Wrong("too many records", ErrorCode.CORRUPT_MESSAGE, with_records(BATCH[HEADER_BYTES:], 1)),
    Wrong("no records", ErrorCode.INVALID_RECORD, sealed(sealed(with_records(b"", 1), 57, ">i", 0), 23, ">i", -1)),
    Wrong("not compressed", ErrorCode.CORRUPT_MESSAGE, sealed(BATCH, 21, ">h", Codec.LZ4)),
    Wrong("no sequence", ErrorCode.INVALID_RECORD, encode_batch(RECORDS, producer_id=7)),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.id)
def test_refused(wrong: Wrong) -> None:
    assert refused(wrong.batch, wrong.rules) is wrong.code


def test_bomb_is_refused_before_it_takes_the_memory() -> None:
    bomb = compress(Codec.GZIP, bytes(MAX_PLAIN_BYTES + 1))
    batch = sealed(with_records(bomb, 1), 21, ">h", Codec.GZIP)
    assert len(batch) < 1_000_000
    assert refused(batch) is ErrorCode.MESSAGE_TOO_LARGE


def test_lengths_in_a_long_form_are_rewritten_for_sql() -> None:
    """A value's length 1 as the bytes 82 00: what producers do not do, and readers must take."""
    long_form = b"\x12\0\0\0\x02k\x82\0v\0"  # length 9: attributes, two deltas, key, value, no headers
    batch = with_records(long_form, 1)
    (prepared,) = prepare(batch, Rules())
    assert bytes(prepared.data) == batch
    assert prepared.plain == encode_batch([Record(0, NOW, b"k", b"v")])[HEADER_BYTES:]


def test_every_default_is_allowed() -> None:
    check_configs({name: config.default for name, config in CONFIGS.items()})
    assert rules_of({}) == Rules()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.thing", "1"),
        ("retention.ms", "-2"),
        ("retention.ms", "1e3"),
        ("retention.ms", "9" * 30),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,shred"),
        ("message.timestamp.type", "Never"),
        ("min.cleanable.dirty.ratio", "2"),
        ("headgate.sql", "yes"),
    ],
)
def test_settings_that_are_refused(name: str, value: str) -> None:
    with pytest.raises(Refused) as caught:
        check_configs({name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, ("delete 604800000", 604800000)),
        ({"retention.ms": "-1"}, ("forever", None)),
        ({"retention.ms": "5"}, ("delete 5", 5)),
        ({"cleanup.policy": "compact"}, ("compact", None)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "5"}, ("compact", None)),
    ],
    ids=["default", "forever", "short", "compact", "both"],
)
def test_retention_class(configs: dict[str, str], expected: tuple[str, int | None]) -> None:
    assert retention_class(configs) == expected


@pytest.mark.parametrize(
    ("keys", "blamed"), [((None, None), (0, 1)), ((b"a", None, b"", None), (1, 3)), ((None, b"a"), (0,))], ids=range(3)
)
def test_the_records_without_a_key_are_named(keys: tuple[bytes | None, ...], blamed: tuple[int, ...]) -> None:
    batch = encode_batch([Record(number, NOW, key) for number, key in enumerate(keys)])
    with pytest.raises(Refused) as caught:
        prepare(batch, Rules(needs_keys=True))
    assert caught.value.records == blamed
