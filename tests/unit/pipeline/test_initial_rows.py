"""Rows that are sent before the first batch of a query: all of them, some at a time, until somebody says stop."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headgate.destinations.memory import MemoryDestination
from headgate.model import InternalError, record
from headgate.pipeline.dispatch import send_initial


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        columns = {
            record.TOPIC: pa.array(["t", "t"]),
            record.MESSAGE_ID: pa.array([f"o-{2 * number}", f"o-{2 * number + 1}"]),
            record.PAYLOAD: pa.array([b"a", b"b"], pa.binary()),
        }
        yield pa.RecordBatch.from_pydict(columns)


def test_every_row_is_sent_once_and_in_order() -> None:
    destination = MemoryDestination("m", 1000)
    assert send_initial(batches(50), [destination], lambda: False) == 100
    assert [message.message_id for message in destination.messages] == [f"o-{number}" for number in range(100)]


def test_a_stop_ends_it_before_the_next_rows() -> None:
    destination, asked = MemoryDestination("m", 1000), iter([False, True])
    rows = batches(50)
    with pytest.raises(InternalError, match="stopping"):
        send_initial(rows, [destination], lambda: next(asked))
    assert 0 < len(destination.messages) < 100
    assert next(rows, None) is not None
