"""Rows to messages: the sender of the `kafka` destination, and the one that begins behind what is there."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import Failure, Lane, Sender, SendResult
from headgate.destinations.kafka.client import Client
from headgate.destinations.kafka.tails import ID_HEADER, PARTITIONS_HEADER, Tail, last_records
from headgate.destinations.kafka.topics import ensure_topic, open_reader
from headgate.kernels.log.partitioner import partitions_of
from headgate.model import OccupiedError, record
from headgate.model.position import origin_of

__all__ = ["EPOCH_HEADER", "ExclusiveSender", "LateSender", "SharedSender"]

EPOCH_HEADER = "headgate-epoch"

_ANY_PARTITION = -1

Header = tuple[str, bytes]


class SharedSender(Sender):
    """Sends every row; consumers recognise a replay by its id."""

    def __init__(self, name: str, client: Client, lane: Lane) -> None:
        self._name = name
        self._client = client
        self._stream = lane.stream
        self._fixed: list[Header] = [] if lane.epoch is None else [(EPOCH_HEADER, b"%d" % lane.epoch)]
        self._names: dict[str, str] = {}  # row's topic -> topic in Kafka
        self._rows = 0
        self._payload_bytes = 0
        self._skipped = 0

    def send(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for topic in batch.column(record.TOPIC).unique().to_pylist():
            if topic not in self._names:
                self._names[topic] = self._client.options.topic_name(self._stream, topic)
        self._publish(batch)
        self._rows += batch.num_rows
        self._payload_bytes += pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0
        self._client.poll()

    def _publish(self, batch: pa.RecordBatch) -> None:
        asked = _column(batch, record.PARTITION)
        partitions = repeat(_ANY_PARTITION) if asked is None else pc.fill_null(asked, _ANY_PARTITION).to_pylist()
        self._produce(batch, partitions, repeat(self._fixed))

    def _produce(self, batch: pa.RecordBatch, partitions: Iterable[int], further: Iterable[list[Header]]) -> None:
        # A producer takes one message per call; nothing else in this loop is made for a single row but its header.
        names, produce = self._names, self._client.produce
        keys = _column(batch, record.PARTITION_KEY)
        columns = (batch.column(name).to_pylist() for name in record.DELIVERY_COLUMNS)
        rows = zip(*columns, repeat(None) if keys is None else keys.to_pylist(), partitions, further, strict=False)
        for topic, message_id, payload, key, partition, headers in rows:
            produce(names[topic], payload, key, partition, [(ID_HEADER, message_id), *headers])

    def finish(self) -> SendResult:
        self._client.flush()
        failures = tuple(failure.as_dict() for failure in self._failures())
        return SendResult(self._name, self._rows, self._payload_bytes, self._skipped, failures=failures)

    def _failures(self) -> list[Failure]:
        topics = {name: topic for topic, name in self._names.items()}
        return [
            Failure(topics.get(name, name), rows, self._client.error_of(error))
            for name, (rows, error) in self._client.refused.items()
        ]


class ExclusiveSender(SharedSender):
    """Begins behind the last record of each partition.

    Its client is gapless, so what lies last in a partition tells that everything before lies there, too. The first
    refusal ends the lane.
    """

    def __init__(self, name: str, client: Client, lane: Lane) -> None:
        super().__init__(name, client, lane)
        self._counts: dict[str, int] = {}  # row's topic -> partitions
        self._last_ids: dict[str, list[str]] = {}  # row's topic -> the last id of each partition

    def _publish(self, batch: pa.RecordBatch) -> None:
        unseen = sorted(set(batch.column(record.TOPIC).unique().to_pylist()) - self._counts.keys())
        if unseen:
            self._look(unseen, batch.column(record.MESSAGE_ID)[0].as_py())
        topics = batch.column(record.TOPIC).dictionary_encode()
        codes = topics.indices.to_numpy(zero_copy_only=False)
        names = topics.dictionary.to_pylist()
        counts = np.array([self._counts[topic] for topic in names], np.int64)
        partitions = partitions_of(batch, counts[codes])
        # The last ids of all partitions of all topics in one list, and where each topic's begin.
        last_ids = pa.array([last for topic in names for last in self._last_ids[topic]], pa.string())
        first = np.cumsum(counts) - counts
        batch, kept = self._beyond(batch, last_ids.take(pa.array(first[codes] + partitions)))
        further = [[*self._fixed, (PARTITIONS_HEADER, b"%d" % count)] for count in counts]
        self._produce(batch, partitions[kept].tolist(), map(further.__getitem__, codes[kept].tolist()))

    def _beyond(self, batch: pa.RecordBatch, last_ids: pa.Array) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The rows that are not yet there, and which of the batch they are."""
        is_new = pc.greater(batch.column(record.MESSAGE_ID), last_ids)
        kept: npt.NDArray[np.bool_] = is_new.to_numpy(zero_copy_only=False)
        self._skipped += len(kept) - int(kept.sum())
        return batch.filter(is_new), kept

    def finish(self) -> SendResult:
        self._client.flush()
        for failure in self._failures():
            raise failure.error
        return super().finish()

    def _look(self, topics: list[str], first_id: str) -> None:
        options = self._client.options
        with open_reader(options) as reader:
            counts = {name: ensure_topic(reader, options, name) for name in (self._names[topic] for topic in topics)}
            tails = last_records(reader, options, counts)
        for topic in topics:
            name = self._names[topic]
            self._counts[topic] = counts[name]
            self._last_ids[topic] = [
                _last_id(tails.get((name, each)), first_id, name, counts[name]) for each in range(counts[name])
            ]


class LateSender(ExclusiveSender):
    """Puts dead letters behind what lies last, with ids that sort there, too."""

    def _beyond(self, batch: pa.RecordBatch, last_ids: pa.Array) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        numbers = pa.array([f"~r{self._rows + number:08d}" for number in range(batch.num_rows)])
        behind = pc.binary_join_element_wise(last_ids, numbers, "")
        ids = pc.if_else(pc.equal(last_ids, ""), batch.column(record.MESSAGE_ID), behind)
        at = batch.schema.get_field_index(record.MESSAGE_ID)
        return batch.set_column(at, record.MESSAGE_ID, ids), np.ones(batch.num_rows, np.bool_)


def _last_id(tail: Tail | None, first_id: str, name: str, partitions: int) -> str:
    """How far the pipeline came in a partition; empty if that cannot be told."""
    if tail is None:
        return ""
    if origin_of(tail.message_id) != origin_of(first_id):
        raise OccupiedError(
            f"somebody else writes to the topic {name}: its last message id is {tail.message_id!r}",
            remedy="give this pipeline topics of its own, or set exclusive = false on the destination",
        )
    # With another number of partitions a key lay elsewhere: rows come twice rather than not at all.
    return tail.message_id if tail.partitions == partitions else ""


def _column(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name) if name in batch.schema.names else None
