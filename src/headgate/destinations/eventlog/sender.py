"""Rows to records, a few megabytes at a time."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import Failure, Lane, Sender, SendResult
from headgate.destinations.eventlog.reached import Reached
from headgate.eventlog import Entry, LogWriter
from headgate.eventlog.records import MAX_PAYLOAD_BYTES
from headgate.eventlog.topics import EVENT, ORDERED_EVENT, TopicEvent, encode_event, topic_uid
from headgate.model import CapacityError, DataError, HeadgateError, record
from headgate.model.position import origin_of

if TYPE_CHECKING:
    from headgate.destinations.eventlog.destination import EventLogDestination

__all__ = ["EventLogSender"]

_CHUNK_BYTES = 8 << 20
_MOST_BYTES = MAX_PAYLOAD_BYTES - (64 << 10)  # leaves room for topic, id and key


class EventLogSender(Sender):
    """Appends the rows of one lane."""

    def __init__(self, destination: EventLogDestination, lane: Lane, *, is_ordered: bool) -> None:
        self._destination = destination
        self._stream = lane.stream
        self._is_ordered = is_ordered
        self._waiting: list[TopicEvent] = []
        self._waiting_bytes = 0
        self._names: dict[str, str] = {}
        self._rows = self._payload_bytes = self._skipped = 0
        self._failures: dict[str, tuple[int, HeadgateError]] = {}

    def send(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        refused = self._refuse_large(batch)
        names = batch.schema.names
        keys = batch.column(record.PARTITION_KEY) if record.PARTITION_KEY in names else pa.nulls(batch.num_rows)
        now = time.time_ns() // 1000
        topics, ids, payloads = (batch.column(name).to_pylist() for name in record.DELIVERY_COLUMNS)
        for topic, message_id, key, payload in zip(topics, ids, keys.to_pylist(), payloads, strict=True):
            if topic in refused:
                continue
            self._waiting.append(TopicEvent(self._name(topic), message_id, key, now, payload))
            self._waiting_bytes += len(payload)
            self._payload_bytes += len(payload)
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._flush()

    def finish(self) -> SendResult:
        self._flush()
        failures = tuple(Failure(topic, *found).as_dict() for topic, found in self._failures.items())
        return SendResult(self._destination.name, self._rows, self._payload_bytes, self._skipped, failures=failures)

    def _name(self, topic: str) -> str:
        name = self._names.get(topic)
        if name is None:
            name = self._names[topic] = self._destination.topic_name(self._stream, topic)
        return name

    def _refuse_large(self, batch: pa.RecordBatch) -> Sequence[str]:
        """Topics with a row that no record can hold; their other rows wait for it."""
        is_large = pc.greater(pc.binary_length(batch.column(record.PAYLOAD)), _MOST_BYTES)
        if not pc.any(is_large).as_py():
            return ()
        topics: list[str] = pc.unique(batch.column(record.TOPIC).filter(is_large)).to_pylist()
        for topic in topics:
            error = DataError(
                f"a payload has more than {_MOST_BYTES >> 20} MiB", where=f"topic {topic}", remedy="send less in a row"
            )
            if self._is_ordered:
                raise error
            rows = pc.sum(pc.equal(batch.column(record.TOPIC), topic)).as_py()
            known, first = self._failures.get(topic, (0, error))
            self._failures[topic] = (known + rows, first)
        return topics

    def _flush(self) -> None:
        if not self._waiting:
            return
        events, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            with self._destination.writer() as writer:
                if self._is_ordered:
                    self._append_new(writer, events)
                else:
                    writer.append_all(_entries(events, EVENT))
                writer.retain()
        except OSError as error:
            raise _as_ours(error, self._destination.path) from None

    def _append_new(self, writer: LogWriter, events: list[TopicEvent]) -> None:
        reached = Reached(writer.path)
        origin = origin_of(events[0].message_id)
        last_ids = {topic: reached.last_id(origin, topic) for topic in {event.topic for event in events}}
        new = [event for event in events if event.message_id > last_ids[event.topic]]
        self._skipped += len(events) - len(new)
        if new:
            numbers = writer.append_all(_entries(new, ORDERED_EVENT))
            reached.add(((event.topic, event.message_id) for event in new), numbers[-1], writer.oldest_seq)


def _entries(events: list[TopicEvent], kind: int) -> list[Entry]:
    uids = {topic: topic_uid(topic) for topic in {event.topic for event in events}}
    return [Entry(kind, uids[event.topic], encode_event(event)) for event in events]


def _as_ours(error: OSError, path: str) -> HeadgateError:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "make room on the disk" if is_full else "check the directory's disk and its owner"
    return CapacityError(f"the event log cannot be written: {error.strerror}", where=path, remedy=remedy)
