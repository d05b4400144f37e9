"""Record batches: what is written is read back, and kafka-python reads and writes the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.wire.kafka import Codec, Record, check_crc, encode_batch, placed, read_batch_header, read_records
from tests.property.kafka_wire.kafka_wire_oracles import kafka_python

_theirs = kafka_python("record.default_records")

_INT63 = 2**63 - 1
_TIMES = st.integers(0, 2**45)
_BLOBS = st.none() | st.binary(max_size=30) | st.binary(min_size=64, max_size=80)
_HEADERS = st.lists(st.tuples(st.sampled_from(["a", "a", "é"]), st.none() | st.binary(max_size=9)), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn, *, dense: bool = False) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        records.append(Record(offset, draw(_TIMES), draw(_BLOBS), draw(_BLOBS), tuple(draw(_HEADERS))))
        offset += 1 if dense else draw(st.integers(1, 300))
    return records


@given(record_lists(), st.sampled_from(list(Codec)))
def test_records_survive(records: list[Record], codec: Codec) -> None:
    batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=5, is_transactional=True)
    header = read_batch_header(batch)
    check_crc(batch, header)
    assert list(read_records(batch)) == records
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert (header.count, header.codec, header.size) == (len(records), codec, len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.is_transactional
    assert not header.is_control


@settings(max_examples=60)
@given(record_lists(), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD]))
def test_kafka_python_reads_our_batches(records: list[Record], codec: Codec) -> None:
    theirs = _theirs.DefaultRecordBatch(encode_batch(records, codec=codec))
    assert theirs.validate_crc()
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == records


@settings(max_examples=60)
@given(record_lists(dense=True), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD]))
def test_we_read_batches_of_kafka_python(records: list[Record], codec: Codec) -> None:
    builder: Any = _theirs.DefaultRecordBatchBuilder(2, codec.value, 0, 9, 1, 4, 10**6)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = read_batch_header(batch)
    check_crc(batch, header)
    base = records[0].offset
    moved = placed(batch, base, 3)
    check_crc(moved, read_batch_header(moved))
    assert list(read_records(moved)) == records
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 4)


@pytest.mark.parametrize("number", [0, -1, 1, 63, -64, 64, 2**31 - 1, -(2**31), 2**62])
def test_times_of_any_size_survive(number: int) -> None:
    records = [Record(0, 0), Record(1, number)]
    assert list(read_records(encode_batch(records))) == records
