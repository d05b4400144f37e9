"""What a mirror sends is what was written: the same records, in batches that any reader takes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.shadow.batches import outgoing
from headgate.shadow.digest import digest_of_batch
from headgate.wire.kafka import Codec, Record, check_crc, encode_batch, read_batch_header, read_records, stamped
from tests.property.kafka_wire.test_kafka_wire_records import record_lists

CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
STAMPS = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))


def without_offsets(records: list[Record]) -> list[Record]:
    return [msgspec.structs.replace(record, offset=0) for record in records]


@given(record_lists(dense=True), CODECS, STAMPS, st.booleans())
def test_a_stamp_changes_who_sent_it_and_nothing_else(
    records: list[Record], codec: Codec, stamp: tuple[int, int, int], is_transactional: bool
) -> None:
    batch = encode_batch(
        records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=5, is_transactional=is_transactional
    )
    made = stamped(memoryview(batch), *stamp)
    header = read_batch_header(made)
    check_crc(made, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == stamp
    assert (header.base_offset, header.leader_epoch, header.is_transactional, header.codec) == (0, -1, False, codec)
    assert made[61:] == batch[61:]
    assert without_offsets(list(read_records(made))) == without_offsets(records)
    assert digest_of_batch(b"", made) == digest_of_batch(b"", batch), "either side gives the same"


@given(record_lists(), CODECS, st.none() | st.integers(0, 2**45))
def test_gaps_and_times_of_the_log_are_resolved(records: list[Record], codec: Codec, log_time: int | None) -> None:
    batch = encode_batch(records, codec=codec, log_append_time=log_time)
    out = outgoing(batch)
    assert out is not None
    header = read_batch_header(out.data)
    check_crc(out.data, header)
    assert header.count == header.last_offset_delta + 1 == out.count == len(records)
    times = [record.timestamp if log_time is None else log_time for record in records]
    expected = [msgspec.structs.replace(r, timestamp=t) for r, t in zip(records, times, strict=True)]
    assert without_offsets(list(read_records(out.data))) == without_offsets(expected)
    assert not read_batch_header(stamped(out.data, 1, 0, 0)).is_log_append_time
    assert [offset for first, stop in out.runs for offset in range(first, stop)] == [r.offset for r in records]
    assert out.mark == records[-1].offset + 1


@given(st.lists(record_lists(dense=True), min_size=2, max_size=2), st.integers(1, 99))
def test_a_key_is_mirrored_in_all_batches_or_in_none(batches: list[list[Record]], percent: int) -> None:
    kept: set[bytes] = set()
    left: set[bytes] = set()
    for records in batches:
        out = outgoing(encode_batch(records), percent)
        found = [] if out is None else list(read_records(out.data))
        assert out is None or (out.count == len(found) and found)
        sent = [] if out is None else [offset for first, stop in out.runs for offset in range(first, stop)]
        assert without_offsets([r for r in records if r.offset in sent]) == without_offsets(found)
        for record in records:
            if record.key is not None:
                (kept if record.offset in sent else left).add(record.key)
    assert not kept & left


@given(st.binary(max_size=200) | record_lists().map(lambda r: encode_batch(r)[:-1]))
def test_what_is_no_batch_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        outgoing(data)


def test_about_as_many_keys_are_mirrored_as_are_asked_for() -> None:
    records = [Record(i, 0, b"key-%d" % i, b"v") for i in range(10_000)]
    out = outgoing(encode_batch(records), 10)
    assert out is not None
    assert 800 < out.count < 1200
