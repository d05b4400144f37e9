"""Record batches: headers, checksums, places in the log, and every codec with its bounds."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest
import zstandard

from headgate.model import ProtocolError
from headgate.wire.kafka import (
    Codec,
    Record,
    check_crc,
    encode_batch,
    place_batch,
    placed,
    read_batch_header,
    read_records,
    split_batches,
)
from headgate.wire.kafka.batch import HEADER, crc32c
from headgate.wire.kafka.compression import compress, decompress

RECORDS = [Record(10 + n, 1000 + n, b"k%d" % n, None if n == 1 else b"v" * 50) for n in range(3)]
BATCH = encode_batch(RECORDS, leader_epoch=4)
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def changed(**fields: int) -> bytes:
    """The batch with other numbers in its header, and the checksum that goes with them."""
    header = msgspec.structs.replace(read_batch_header(BATCH), **fields)
    content = HEADER.pack(*msgspec.structs.astuple(header))[21:] + BATCH[61:]
    header = msgspec.structs.replace(header, crc=crc32c(content))
    return HEADER.pack(*msgspec.structs.astuple(header))[:21] + content


def test_crc32c_is_the_one_of_the_rfc() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4 uses the same polynomial
    assert crc32c(memoryview(bytes(32))) == 0x8A9136AA


def test_a_header_is_read_without_the_records() -> None:
    header = read_batch_header(BATCH)
    assert (header.base_offset, header.last_offset, header.count) == (10, 12, 3)
    assert (header.leader_epoch, header.magic, header.codec) == (4, 2, Codec.NONE)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.size == len(BATCH)
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (False, False, False)
    check_crc(BATCH, header)


@pytest.mark.parametrize("position", [21, 40, 60, 61, len(BATCH) - 1])
def test_a_changed_bit_is_found(position: int) -> None:
    damaged = bytearray(BATCH)
    damaged[position] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        check_crc(bytes(damaged), read_batch_header(BATCH))


def test_a_place_in_the_log_leaves_the_checksum_alone() -> None:
    moved = placed(memoryview(BATCH), 2**40, 7)
    header = read_batch_header(moved)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (2**40, 2**40 + 2, 7)
    check_crc(moved, header)
    assert [record.offset for record in read_records(moved)] == [2**40, 2**40 + 1, 2**40 + 2]

    both = bytearray(BATCH + BATCH)
    place_batch(both, 2**40, 7, len(BATCH))
    assert both == BATCH + moved


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"magic": 1}, "format 1"),
        ({"magic": 0}, "format 0"),
        ({"length": 48}, "bytes in"),
        ({"length": -1}, "bytes in"),
        ({"length": 2**31 - 1}, "bytes in"),
        ({"attributes": 5}, "compression 5"),
        ({"count": -1}, "-1 records"),
        ({"count": 4}, "4 records over 3 offsets"),
        ({"count": 1000, "last_offset_delta": 999}, "1000 records in"),
        ({"last_offset_delta": -1}, "over 0 offsets"),
    ],
)
def test_headers_that_cannot_be_are_refused(fields: dict[str, int], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        read_batch_header(changed(**fields))
    assert caught.value.where == "record batch"
    assert caught.value.remedy


def test_a_buffer_is_split_into_batches() -> None:
    other = encode_batch([Record(13, 5)])
    parts = list(split_batches(BATCH + other))
    assert [bytes(batch) for _, batch in parts] == [BATCH, other]
    assert [header.base_offset for header, _ in parts] == [10, 13]
    assert list(split_batches(b"")) == []


@pytest.mark.parametrize("size", [1, 11, 60, 61, len(BATCH) - 1])
def test_a_batch_that_is_cut_off_is_refused_unless_it_is_allowed(size: int) -> None:
    data = BATCH + BATCH[:size]
    assert len(list(split_batches(data, allow_partial=True))) == 1
    with pytest.raises(ProtocolError):
        list(split_batches(data))


def test_a_log_append_time_is_that_of_every_record() -> None:
    batch = encode_batch(RECORDS, log_append_time=77)
    assert read_batch_header(batch).is_log_append_time
    assert {record.timestamp for record in read_records(batch)} == {77}


def test_control_batches_say_so() -> None:
    header = read_batch_header(encode_batch([Record(0, 0, b"\0\0\0\1")], is_control=True, is_transactional=True))
    assert header.is_control
    assert header.is_transactional


def test_headers_keep_their_order_their_repeated_keys_and_their_nulls() -> None:
    headers = (("a", b"1"), ("a", None), ("", b""), ("é", b"2"))
    (record,) = read_records(encode_batch([Record(0, 0, None, None, headers)]))
    assert record.headers == headers


def test_a_batch_without_records_cannot_be_written() -> None:
    with pytest.raises(ProtocolError):
        encode_batch([])


# One record: length, attributes, time, offset, key, value, headers.
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("0c 00 00 00 01 01 00 00", "follow the records"),
        ("0a 00 00 00 01 01 00", "as long as it says"),
        ("0e 00 00 00 01 01 00", "a record of 7 bytes"),
        ("01 00 00 00 01 01 00", "a record of -1 bytes"),
        ("0c 00 00 02 01 01 00", "offset delta 1"),
        ("0c 00 00 01 01 01 00", "offset delta -1"),
        ("0c 00 00 00 03 01 00", "length of -2"),
        ("0c 00 00 00 01 7e 00", "too early"),
        ("0c 00 00 00 01 01 01", "-1 headers"),
        ("0c 00 00 00 01 01 0e", "7 headers"),
        ("10 00 00 00 01 01 02 01 01", "without a key"),
        ("12 00 00 00 01 01 02 02 ff 01", "UTF-8"),
        ("ffffffffffffffffffffff01", "varint"),
        ("ffffffffffffffffff03", "varint"),
    ],
)
def test_records_that_cannot_be_are_refused(content: str, reason: str) -> None:
    body = bytes.fromhex(content)
    header = (0, 49 + len(body), -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    with pytest.raises(ProtocolError, match=reason):
        list(read_records(HEADER.pack(*header) + body))


def xerial(data: bytes) -> bytes:
    """Snappy as Java writes it, in blocks."""
    blocks = [bytes(pa.compress(data[at : at + 1000], "snappy", asbytes=True)) for at in range(0, len(data), 1000)]
    return (
        b"\x82SNAPPY\0" + bytes.fromhex("00000001 00000001") + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)
    )


def lz4_by_arrow(data: bytes) -> bytes:
    return bytes(pa.compress(data, "lz4", asbytes=True))


def zstd_without_size(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


@pytest.mark.parametrize(
    ("codec", "write"),
    [
        *((codec, lambda data, codec=codec: compress(codec, data)) for codec in COMPRESSED),
        (Codec.SNAPPY, xerial),
        (Codec.LZ4, lz4_by_arrow),
        (Codec.ZSTD, zstd_without_size),
        (Codec.GZIP, gzip.compress),
        (Codec.GZIP, lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    ],
)
@pytest.mark.parametrize("data", [b"", b"a", b"abc" * 5000, bytes(9_000_000)], ids=len)
def test_every_form_of_every_codec_is_read_up_to_the_bound(
    codec: Codec, write: Callable[[bytes], bytes], data: bytes
) -> None:
    packed = write(data)
    assert decompress(codec, packed, max_bytes=len(data)) == data
    if data:
        with pytest.raises(ProtocolError, match="more than"):
            decompress(codec, packed, max_bytes=len(data) - 1)
        with pytest.raises(ProtocolError):
            decompress(codec, packed[:-1], max_bytes=len(data))


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_a_bomb_costs_no_more_than_the_bound(codec: Codec) -> None:
    packed = compress(codec, bytes(50_000_000))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    with pytest.raises(ProtocolError, match="more than"):
        decompress(codec, packed, max_bytes=100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_damaged_data_leaves_no_memory_behind(codec: Codec) -> None:
    packed = compress(codec, b"abc" * 5000)[:-5]
    tracemalloc.start()
    for _ in range(50):
        with pytest.raises(ProtocolError):
            decompress(codec, packed, max_bytes=100_000)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 1_000_000


def test_a_zstd_window_above_the_bound_is_refused() -> None:
    frame = bytes.fromhex("28b52ffd 00 a8") + bytes(20)  # a window of 2 GiB
    with pytest.raises(ProtocolError, match="more than"):
        decompress(Codec.ZSTD, frame, max_bytes=100_000)


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xff" * 100, b"\x82SNAPPY\0", b"\x82SNAPPY\0" + bytes(8) + b"\x7f\xff\xff\xff"]
)
def test_rubbish_is_refused(codec: Codec, data: bytes) -> None:
    batch = HEADER.pack(0, 49 + len(data), -1, 2, 0, codec, 0, 0, 0, -1, -1, -1, 1) + data
    with pytest.raises(ProtocolError):
        list(read_records(batch))


def test_plain_records_have_a_bound_too() -> None:
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        list(read_records(BATCH, max_bytes=10))
