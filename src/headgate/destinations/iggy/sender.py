"""Rows to requests: one per topic and partition key, in the order given, each acknowledged before the next."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import Failure, Lane, Sender, SendResult
from headgate.destinations.iggy.client import Client
from headgate.destinations.iggy.options import check_name, sdk
from headgate.model import ConnectError, DataError, HeadgateError, record

__all__ = ["EPOCH_HEADER", "ID_HEADER", "IggySender", "Request", "requests_of"]

ID_HEADER = "headgate-id"
EPOCH_HEADER = "headgate-epoch"

_MAX_KEY_BYTES = 255


class Request(NamedTuple):
    """Rows of one topic that go to the same partition. Neither key nor partition: the server takes turns."""

    topic: str
    key: bytes | None
    partition: int | None
    rows: pa.RecordBatch


class IggySender(Sender):
    """Every request waits for its acknowledgement, so nothing is ever in flight between two calls."""

    def __init__(self, name: str, client: Client, lane: Lane) -> None:
        self._name = name
        self._client = client
        self._stream = check_name(lane.stream or client.options.stream, "stream")
        self._fixed = {} if lane.epoch is None else {EPOCH_HEADER: lane.epoch}
        self._failed: dict[str, tuple[int, HeadgateError]] = {}
        self._rows = 0
        self._payload_bytes = 0

    def send(self, batch: pa.RecordBatch) -> None:
        for request in requests_of(batch, self._client.options.max_rows_per_request):
            self._send(request)
        self._rows += batch.num_rows
        self._payload_bytes += pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0

    def _send(self, request: Request) -> None:
        rows, error = self._failed.get(request.topic, (0, None))
        if error is None:  # behind a failure nothing is sent, so that the order stays
            try:
                self._client.send(self._stream, request.topic, _partitioning(request), self._messages(request.rows))
                return
            except (ConnectError, DataError):
                raise
            except HeadgateError as found:
                error = found
        self._failed[request.topic] = (rows + request.rows.num_rows, error)

    def _messages(self, rows: pa.RecordBatch) -> list[Any]:
        make, fixed = sdk().SendMessage, self._fixed
        ids, payloads = (rows.column(name).to_pylist() for name in (record.MESSAGE_ID, record.PAYLOAD))
        return [
            make(payload, {ID_HEADER: message_id, **fixed}, message_number(message_id))
            for message_id, payload in zip(ids, payloads, strict=True)
        ]

    def finish(self) -> SendResult:
        failures = tuple(Failure(topic, *failed).as_dict() for topic, failed in self._failed.items())
        return SendResult(self._name, self._rows, self._payload_bytes, failures=failures)


def message_number(message_id: str) -> int:
    """A message's id as Iggy has them: 128 bits, the same in every replay."""
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=16).digest(), "little")


def requests_of(batch: pa.RecordBatch, max_rows: int) -> Iterator[Request]:
    """The batch cut into requests. Refuses what Iggy would, before anything is sent."""
    if not batch.num_rows:
        return
    _refuse_bad_rows(batch)
    for topic, of_topic in _groups(batch, record.TOPIC):
        for partition, of_partition in _groups(of_topic, record.PARTITION):
            by_key = [(None, of_partition)] if partition is not None else _groups(of_partition, record.PARTITION_KEY)
            for key, rows in by_key:
                for first in range(0, rows.num_rows, max_rows):
                    yield Request(topic, key, partition, rows.slice(first, max_rows))


def _groups(rows: pa.RecordBatch, name: str) -> list[tuple[Any, pa.RecordBatch]]:
    """The rows by the values of a column, in the order in which these first come."""
    if name not in rows.schema.names:
        return [(None, rows)]
    values = rows.column(name).dictionary_encode(null_encoding="encode")
    if len(values.dictionary) == 1:
        return [(values.dictionary[0].as_py(), rows)]
    codes = values.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(values.dictionary) + 1))
    ordered = rows.take(pa.array(order))
    return [
        (value.as_py(), ordered.slice(edges[number], edges[number + 1] - edges[number]))
        for number, value in enumerate(values.dictionary)
    ]


def _refuse_bad_rows(batch: pa.RecordBatch) -> None:
    for topic in batch.column(record.TOPIC).unique().to_pylist():
        check_name(topic, "topic")
    _refuse(batch, pc.equal(pc.binary_length(batch.column(record.PAYLOAD)), 0), "an empty payload")
    if record.PARTITION_KEY in batch.schema.names:
        lengths = pc.binary_length(batch.column(record.PARTITION_KEY))
        _refuse(
            batch,
            pc.or_(pc.equal(lengths, 0), pc.greater(lengths, _MAX_KEY_BYTES)),
            f"a partition key of 0 or more than {_MAX_KEY_BYTES} bytes",
        )
    if record.PARTITION in batch.schema.names:
        _refuse(batch, pc.less(batch.column(record.PARTITION), 0), "a negative partition")


def _refuse(batch: pa.RecordBatch, is_bad: pa.Array, what: str) -> None:
    row = pc.index(is_bad, True).as_py()
    if row >= 0:
        raise DataError(
            f"Iggy does not take {what}",
            where=f"message {batch.column(record.MESSAGE_ID)[row]}",
            remedy="filter such rows out, or give the column another value",
        )


def _partitioning(request: Request) -> Any:
    kinds = sdk().Partitioning
    if request.partition is not None:
        return kinds.partition_id(request.partition)
    return kinds.balanced() if request.key is None else kinds.messages_key(request.key)
