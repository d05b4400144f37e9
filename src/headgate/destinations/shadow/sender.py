"""Rows of whole batches to the mirrors of their partitions, a few megabytes at a time."""

from __future__ import annotations

import psycopg
import pyarrow as pa

from headgate.destinations.base import Sender, SendResult
from headgate.model import HeadgateError, record
from headgate.shadow.client import Client
from headgate.shadow.links import Link, note_link
from headgate.shadow.mirror import PartitionMirror
from headgate.sources.kafka.whole import place_of
from headgate.wire.kafka.batch import read_batch_header

__all__ = ["ShadowSender"]

_CHUNK_BYTES = 8 << 20  # so much is planned, sent and then noted together


class ShadowSender(Sender):
    """Sends the rows of one lane: mostly of one partition."""

    def __init__(self, name: str, connection: psycopg.Connection, client: Client, link: Link, replicas: int) -> None:
        self._name = name
        self._connection, self._client, self._link, self._replicas = connection, client, link, replicas
        self._mirrors: dict[tuple[str, int], PartitionMirror] = {}
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._mark = 0
        self._of: tuple[str, int] | None = None  # whose batches are waiting

    def send(self, batch: pa.RecordBatch) -> None:
        names = (record.TOPIC, record.MESSAGE_ID, record.PAYLOAD)
        for topic, message_id, data in zip(*(batch.column(name) for name in names), strict=True):
            place = place_of(message_id.as_py())
            self._take(topic.as_py(), place.partition, place.last_offset, data.as_py())

    def _take(self, topic: str, partition: int, last_offset: int, data: bytes) -> None:
        if (topic, partition) != self._of:
            self._flush()
            self._of, self._mark = (topic, partition), 0
        if not data:  # nothing but how far the source has looked
            self._open(topic, partition, last_offset)
            self._mark = last_offset
            return
        self._open(topic, partition, read_batch_header(data).base_offset)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._mark = last_offset + 1
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._flush()

    def _open(self, topic: str, partition: int, at: int) -> None:
        if (topic, partition) in self._mirrors:
            return
        mirror = PartitionMirror(self._connection, self._client, self._link, topic, partition, self._replicas)
        self._mirrors[topic, partition] = mirror
        try:
            mirror.open(at)
        except HeadgateError as error:
            mirror.trouble(str(error))
            raise

    def _flush(self) -> None:
        if self._of is None:
            return
        mirror = self._mirrors[self._of]
        batches, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            mirror.send(batches, self._mark)
        except HeadgateError as error:
            mirror.trouble(str(error))
            raise

    def finish(self) -> SendResult:
        self._flush()
        for mirror in self._mirrors.values():
            mirror.finish()
        note_link(self._connection, self._link.name, None)
        mirrors = self._mirrors.values()
        rows, size = sum(each.rows for each in mirrors), sum(each.sent_bytes for each in mirrors)
        return SendResult(self._name, rows, size, sum(each.skipped for each in mirrors))
