"""Writes the rows of one lane as Parquet files, one per topic, where no reader looks yet."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.destinations.base import Lane, Sender, SendResult
from headgate.destinations.table.files import Files
from headgate.destinations.table.manifest import STAGING, Part
from headgate.destinations.table.names import partition_dir
from headgate.model import HeadgateError, record

__all__ = ["FILE_SCHEMA", "TableSender"]

# The stream and the topic are in the path. The time of delivery is not kept: a replay must write the same rows.
FILE_SCHEMA = pa.schema(
    [
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("partition_key", pa.binary()),
        pa.field("payload", pa.binary()),
    ]
)

_MAX_WAITING_BYTES = 64 << 20  # of rows that are not yet part of a row group


class _TopicFile:
    """The file of one topic."""

    def __init__(self, files: Files, name: str, compression: str) -> None:
        self._files = files
        self.name = name
        self._stream = files.create(name)
        self._writer = pq.ParquetWriter(self._stream, FILE_SCHEMA, compression=compression, store_schema=False)
        self._waiting: list[pa.RecordBatch] = []
        self._ids: list[str] = []
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self.rows += rows.num_rows
        least = pc.min_max(rows.column("message_id"))
        self._ids += [least["min"].as_py(), least["max"].as_py()]

    def write(self) -> None:
        if self._waiting:
            with self._files.errors():
                self._writer.write_table(pa.Table.from_batches(self._waiting, FILE_SCHEMA))
            self._waiting.clear()

    def close(self) -> tuple[int, str, str]:
        """The size of the file, and the least and the greatest id in it."""
        self.write()
        with self._files.errors():
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
        self._files.sync(self.name)
        return size, min(self._ids), max(self._ids)

    def abandon(self) -> None:
        """Remove the file. Whatever goes wrong now is no news: the lane has failed already."""
        with suppress(OSError, pa.ArrowException, HeadgateError):
            self._writer.close()
            self._stream.close()
        with suppress(HeadgateError):
            self._files.remove(self.name)


class TableSender(Sender):
    """Rows wait until there are enough for a row group, then go to their topic's file."""

    def __init__(self, name: str, files: Files, lane: Lane, compression: str, *, has_streams: bool = True) -> None:
        self._name = name
        self._files = files
        self._lane = lane
        self._compression = compression
        self._has_streams = has_streams
        self._token = uuid.uuid4().hex[:12]
        self._staging = f"{STAGING}/{self._token if lane.is_late else lane.batch_id}"
        self._topics: dict[str, _TopicFile] = {}
        self._rows = self._payload_bytes = self._waiting_bytes = 0

    def send(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for topic, rows in _by_topic(batch):
            if topic not in self._topics:
                partition_dir(self._lane.stream, topic)  # refuses what cannot be a directory
                staged = f"{self._staging}/{self._token}-{len(self._topics)}.parquet"
                self._topics[topic] = _TopicFile(self._files, staged, self._compression)
            self._topics[topic].add(rows)
        self._rows += batch.num_rows
        self._payload_bytes += pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            for topic_file in self._topics.values():
                topic_file.write()
            self._waiting_bytes = 0

    def finish(self) -> SendResult:
        reports: list[dict[str, Any]] = []
        for topic, file in self._topics.items():
            size, first_id, last_id = file.close()
            where = (file.name, self._lane.stream, topic, self._lane.task)
            reports.append(asdict(Part(*where, file.rows, size, first_id, last_id, self._has_streams)))
        if reports:
            self._files.sync(self._staging)
        self._topics = {}
        return SendResult(self._name, self._rows, self._payload_bytes, reports=tuple(reports))

    def abandon(self) -> None:
        """Remove what was written."""
        for file in self._topics.values():
            file.abandon()


def _by_topic(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """The file's columns of each topic, in the order given."""
    topics = batch.column(record.TOPIC).dictionary_encode()
    rows = _file_columns(batch)
    if len(topics.dictionary) == 1:
        return [(topics.dictionary[0].as_py(), rows)]
    codes = topics.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(topics.dictionary) + 1))
    sorted_rows = rows.take(pa.array(order))
    return [
        (topic.as_py(), sorted_rows.slice(edges[number], edges[number + 1] - edges[number]))
        for number, topic in enumerate(topics.dictionary)
    ]


def _file_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    has_key = record.PARTITION_KEY in batch.schema.names
    keys = batch.column(record.PARTITION_KEY) if has_key else pa.nulls(batch.num_rows, pa.binary())
    columns = [batch.column(record.MESSAGE_ID), keys, batch.column(record.PAYLOAD)]
    cast = [column.cast(field.type) for column, field in zip(columns, FILE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=FILE_SCHEMA)
