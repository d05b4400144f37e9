"""From topics to subjects: the stream before them, the partition behind."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import record

__all__ = ["PLAIN", "Subjects"]


@dataclass(slots=True)
class Subjects:
    """`orders` -> `shop.orders.3`, where the stream is `shop` and the topic has several partitions."""

    prefix: str = ""
    partitions: Mapping[str, int] = field(default_factory=dict)
    _topics: dict[str, str] = field(default_factory=dict)  # subject -> topic
    _turn: int = 0  # of rows that may go anywhere

    def put(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with subjects for topics."""
        if not self.prefix and not any(count > 1 for count in self.partitions.values()):
            return batch
        topics = batch.column(record.TOPIC).dictionary_encode()
        subjects = pc.binary_join_element_wise(self.prefix, topics.dictionary, "")
        self._topics |= dict(zip(subjects.to_pylist(), topics.dictionary.to_pylist(), strict=True))
        column = subjects.take(topics.indices)
        counts = np.array([self.partitions.get(topic, 1) for topic in topics.dictionary.to_pylist()], dtype=np.int64)
        if (counts > 1).any():
            column = self._with_partitions(batch, topics, counts[topics.indices.to_numpy()], column)
        at = batch.schema.get_field_index(record.TOPIC)
        return batch.set_column(at, record.TOPIC, column)

    def topic_of(self, subject: str) -> str:
        return self._topics.get(subject, subject)

    def _with_partitions(
        self, batch: pa.RecordBatch, topics: pa.DictionaryArray, counts: npt.NDArray[np.int64], column: pa.Array
    ) -> pa.Array:
        numbers = self._numbers(batch, counts)
        split = pc.binary_join_element_wise(column, pa.array(numbers).cast(pa.string()), ".")
        column = pc.if_else(pa.array(counts > 1), split, column)
        examples = pa.table({"subject": column, "topic": topics.dictionary_decode()}).group_by(["subject", "topic"])
        pairs = examples.aggregate([]).to_pylist()
        self._topics |= {pair["subject"]: pair["topic"] for pair in pairs}
        return column

    def _numbers(self, batch: pa.RecordBatch, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The partition of each row: the one it asks for, else its key's, else the next one."""
        turns = (np.arange(batch.num_rows, dtype=np.int64) + self._turn) % counts
        self._turn += batch.num_rows
        if record.PARTITION in batch.schema.names:
            given = batch.column(record.PARTITION)
            chosen: npt.NDArray[np.int64] = pc.coalesce(given, pa.array(turns)).to_numpy(zero_copy_only=False)
            return chosen % counts
        if record.PARTITION_KEY in batch.schema.names:
            keys = batch.column(record.PARTITION_KEY).dictionary_encode()
            hashes = np.array([zlib.crc32(key) for key in keys.dictionary.to_pylist()] or [0], dtype=np.int64)
            hashed = hashes[pc.fill_null(keys.indices, 0).to_numpy(zero_copy_only=False)] % counts
            return np.where(pc.is_valid(keys).to_numpy(zero_copy_only=False), hashed, turns)
        return turns


PLAIN = Subjects()
