"""Append whole batches of another cluster to the same partitions of the log, and the map in the same transaction."""

from __future__ import annotations

import psycopg
import pyarrow as pa

from headgate.commitlog.append import wake_readers
from headgate.destinations.base import Sender, SendResult
from headgate.model import DataError, HeadgateError, record
from headgate.shadow.back import PartitionReturn
from headgate.sources.kafka.whole import Facts, place_of, read_facts

__all__ = ["ReturningSender"]

_CHUNK_BYTES = 4 << 20  # in one transaction; so long the log is locked for others


class ReturningSender(Sender):
    """Appends the rows of one lane."""

    def __init__(self, name: str, connection: psycopg.Connection) -> None:
        self._name, self._connection = name, connection
        self._returns: dict[tuple[str, int], PartitionReturn] = {}
        self._of: PartitionReturn | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._mark = 0

    def send(self, batch: pa.RecordBatch) -> None:
        names = (record.TOPIC, record.MESSAGE_ID, record.PAYLOAD)
        for topic, message_id, data in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            place = place_of(message_id)
            facts = read_facts(data)
            if facts is not None:
                self._begin(topic, place.partition, facts, place.last_offset)
            else:
                self._take(data, place.last_offset)

    def _begin(self, topic: str, partition: int, facts: Facts, at: int) -> None:
        self._flush()
        self._of = self._returns.setdefault(
            (topic, partition), PartitionReturn(self._connection, self._name, topic, partition)
        )
        self._mark = at
        self._of.open(facts.cluster_id, facts.servers, facts.topic_uuid, facts.partitions, at)

    def _take(self, data: bytes, last_offset: int) -> None:
        if self._of is None:
            raise DataError(
                "a batch of nobody knows which cluster", remedy="feed it from a kafka source, untransformed"
            )
        self._mark = last_offset + 1 if data else last_offset
        if data:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._of is None:
            return
        batches, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            self._of.append(batches, self._mark)
        except HeadgateError as error:
            self._of.trouble(str(error))
            raise

    def finish(self) -> SendResult:
        self._flush()
        done = self._returns.values()
        wake_readers(self._connection, {part: ends for each in done for part, ends in each.ends.items()})
        rows, size = sum(each.rows for each in done), sum(each.size for each in done)
        return SendResult(self._name, rows, size, sum(each.skipped for each in done))
