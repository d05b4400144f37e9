"""Markers, as another implementation reads them; and control records that are none."""

from __future__ import annotations

from aiokafka.record import MemoryRecords
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from hypothesis import given
from hypothesis import strategies as st

from headgate.wire.kafka import Record, read_batch_header, read_records
from headgate.wire.kafka.batch import check_crc
from headgate.wire.kafka.markers import end_marker, is_commit


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.booleans(), st.integers(0, 2**53))
def test_a_marker_is_one_for_others_too(producer_id: int, epoch: int, committed: bool, timestamp: int) -> None:
    data = end_marker(producer_id, epoch, committed=committed, timestamp=timestamp)
    header = read_batch_header(data)
    check_crc(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, -1)
    assert (header.is_control, header.is_transactional, header.count) == (True, True, 1)
    (record,) = read_records(data)
    assert (record.timestamp, is_commit(record)) == (timestamp, committed)
    batch = MemoryRecords(data).next_batch()
    assert (batch.is_control_batch, batch.is_transactional, batch.producer_id) == (True, True, producer_id)
    (theirs,) = batch
    assert ControlRecord.parse(theirs.key) == (COMMIT_MARKER if committed else ABORT_MARKER)


@given(st.none() | st.binary(max_size=8))
def test_other_control_records_are_neither(key: bytes | None) -> None:
    """Leader changes and snapshots, for example; or bytes that are nothing."""
    found = is_commit(Record(0, 0, key))
    assert found is None or (key is not None and key[2:4] == (b"\0\1" if found else b"\0\0"))
