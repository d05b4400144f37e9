"""Rows to record batches in the tables of the log, a few megabytes in one transaction.

With rows in one order, every transaction also records the last row of each partition it wrote to. A replay reads that
first, holding it, and leaves out what is there; so does a writer that was thought dead and is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from headgate.commitlog.append import Outcome, append, wake_readers
from headgate.commitlog.prepare import Batch, prepare
from headgate.commitlog.topics import LogTopic, ensure_topic
from headgate.destinations.base import Lane, SendResult
from headgate.destinations.kafka.sender import EPOCH_HEADER
from headgate.destinations.kafka.tails import ID_HEADER
from headgate.destinations.postgres import ChunkSender
from headgate.kernels.log.encode import encode_columns
from headgate.kernels.log.partitioner import partitions_of
from headgate.model import DataError, DeliveryError, HeadgateError, record
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["LogSender"]

_BATCH_BYTES = 512 << 10
_RECORD = """
update kafka.deliveries as d set last_id = new.last_id
from unnest(%s::int[], %s::text[]) as new (part_id, last_id)
where d.writer = %s and d.part_id = new.part_id
"""

Parts = npt.NDArray[np.int64]  # `part_id` of every row


class LogSender(ChunkSender):
    """Appends the rows of one lane."""

    def __init__(
        self,
        name: str,
        connection: psycopg.Connection,
        lane: Lane,
        *,
        topic_name: Callable[[str | None, str], str],
        partitions: int,
        configs: Mapping[str, str],
        is_ordered: bool,
    ) -> None:
        self._lane = lane
        super().__init__(name, connection)
        self._stream = lane.stream
        self._headers = () if lane.epoch is None else ((EPOCH_HEADER, b"%d" % lane.epoch),)
        self._topic_name = topic_name
        self._partitions = partitions
        self._configs = configs
        self._is_ordered = is_ordered
        self._topics: dict[str, LogTopic] = {}  # by the rows' own names
        self._ends: dict[int, tuple[int, int]] = {}  # part_id -> the offset behind its last message, and its first

    def send(self, batch: pa.RecordBatch) -> None:
        for topic in batch.column(record.TOPIC).unique().to_pylist():
            if topic not in self._topics:
                name = self._topic_name(self._stream, topic)
                self._topics[topic] = ensure_topic(self._connection, name, self._partitions, self._configs)
        super().send(batch)

    def finish(self) -> SendResult:
        result = super().finish()
        wake_readers(self._connection, self._ends)
        return result

    def _write(self, table: pa.Table) -> None:
        rows = table.to_batches()[0]
        parts = self._places(rows)
        writer = self._lane.writer(rows.column(record.MESSAGE_ID)[0].as_py())
        if self._is_ordered:
            rows, parts = self._beyond(writer, rows, parts)
        now = int(time.time() * 1000)
        batches: list[tuple[int, Batch]] = []
        owners: list[str] = []
        last_ids: dict[int, str] = {}
        for part in np.unique(parts).tolist():
            chosen = rows.take(pa.array(np.flatnonzero(parts == part)))
            topic = chosen.column(record.TOPIC)[0].as_py()
            made = self._encoded(topic, chosen, now)
            batches += [(part, batch) for batch in made]
            owners += [topic] * len(made)
            if made:
                last_ids[part] = chosen.column(record.MESSAGE_ID)[-1].as_py()
        if batches:
            self._take_note(append(self._connection, batches), batches, owners)
        if self._is_ordered and last_ids:
            self._connection.execute(_RECORD, [list(last_ids), list(last_ids.values()), writer])

    def _places(self, rows: pa.RecordBatch) -> Parts:
        """The partition in the log of every row."""
        encoded = rows.column(record.TOPIC).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        names = encoded.dictionary.to_pylist()
        counts = np.array([len(self._topics[name].parts) for name in names], np.int64)
        chosen = partitions_of(rows, counts[codes])
        all_parts = np.array([part for name in names for part in self._topics[name].parts], np.int64)
        found: Parts = all_parts[(np.cumsum(counts) - counts)[codes] + chosen]
        return found

    def _beyond(self, writer: str, rows: pa.RecordBatch, parts: Parts) -> tuple[pa.RecordBatch, Parts]:
        """Without the rows that are there already."""
        present, codes = np.unique(parts, return_inverse=True)
        query = "select part_id, last_id from kafka.deliveries_of(%s, %s)"
        last_ids: dict[int, str] = dict(self._connection.execute(query, [writer, present.tolist()]).fetchall())
        per_row = pa.array([last_ids[part] for part in present.tolist()], pa.string()).take(pa.array(codes))
        is_new = pc.greater(rows.column(record.MESSAGE_ID), per_row)
        kept = is_new.to_numpy(zero_copy_only=False)
        self._skipped += len(kept) - int(kept.sum())
        return rows.filter(is_new), parts[kept]

    def _encoded(self, topic: str, rows: pa.RecordBatch, now: int) -> list[Batch]:
        """Batches of rows of one partition; none if the topic does not take them."""
        rules = self._topics[topic].rules
        keys = rows.column(record.PARTITION_KEY) if record.PARTITION_KEY in rows.schema.names else None
        made = encode_columns(
            rows.column(record.PAYLOAD),
            keys,
            rows.column(record.MESSAGE_ID),
            id_header=ID_HEADER,
            constant_headers=self._headers,
            timestamp=now,
            max_bytes=min(_BATCH_BYTES, rules.max_bytes),
        )
        try:
            return [batch for data in made for batch in prepare(data, rules)]
        except Refused as refused:
            remedy = "raise max.message.bytes of the topic" if refused.code == ErrorCode.MESSAGE_TOO_LARGE else ""
            error = DataError(str(refused), where=f"topic {topic}", remedy=remedy or "correct the rows or the topic")
            self._fail(topic, rows.num_rows, error)
            return []

    def _take_note(self, outcomes: list[Outcome], batches: list[tuple[int, Batch]], owners: list[str]) -> None:
        for outcome, (part, batch), topic in zip(outcomes, batches, owners, strict=True):
            if outcome.error is ErrorCode.NONE:
                self._ends[part] = outcome.base_offset + batch.count, outcome.log_start_offset
            else:
                self._topics.pop(topic, None)
                gone = DeliveryError(
                    f"the log refused a batch: {outcome.error.name}", where=f"topic {topic}", remedy="it is tried again"
                )
                self._fail(topic, batch.count, gone)

    def _fail(self, topic: str, rows: int, error: HeadgateError) -> None:
        if self._is_ordered:
            raise error  # what comes behind must not be recorded as done
        super()._fail(topic, rows, error)
