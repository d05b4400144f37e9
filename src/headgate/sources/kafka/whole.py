"""Record batches as rows: each is a stored batch, whole, in its place; nothing of it is read but its header.

Behind the last batch of a range may come a row without bytes: it says that there is nothing more up to an offset, which
markers of transactions, aborted messages and compaction leave unsaid otherwise. In front of batches of another cluster
is a row that says which one that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa

from headgate.model import DataError
from headgate.model.record import OP, PAYLOAD, POSITION, TOPIC
from headgate.sources.kafka.offsets import Partition
from headgate.sources.kafka.rows import positions

__all__ = ["BATCH_SCHEMA", "Facts", "Place", "Whole", "place_of", "read_facts", "to_rows"]

BATCH_SCHEMA = (
    f"topic string, partition int, base_offset bigint, last_offset bigint, {TOPIC} string, {PAYLOAD} binary, "
    f"{POSITION} string, {OP} string"
)
_NAMES = ["topic", "partition", "base_offset", "last_offset", TOPIC, PAYLOAD, POSITION, OP]


class Whole(NamedTuple):
    """A batch with its first and last offset; without bytes, all up to the last offset is done."""

    base_offset: int
    last_offset: int
    data: bytes


class Facts(msgspec.Struct, frozen=True):
    """What a row in front of batches of another cluster says: whose they are."""

    cluster_id: str
    servers: str
    topic_uuid: UUID | None
    partitions: int

    def at(self, offset: int) -> Whole:
        """Return the row; it begins with a brace, as no batch does."""
        return Whole(offset, offset, msgspec.json.encode(self))


def read_facts(data: bytes) -> Facts | None:
    """Return what such a row says; None if it is a batch."""
    return msgspec.json.decode(data, type=Facts) if data.startswith(b"{") else None


class Place(NamedTuple):
    """What the id of such a row says: its partition, and its last offset."""

    partition: int
    last_offset: int


def to_rows(partition: Partition, batches: Sequence[Whole]) -> pa.RecordBatch:
    """Return rows of one partition."""
    rows = len(batches)
    last = pa.array([each.last_offset for each in batches], pa.int64())
    topics = pa.repeat(pa.scalar(partition.topic), rows)
    return pa.RecordBatch.from_arrays(
        [
            topics,
            pa.repeat(pa.scalar(partition.number, pa.int32()), rows),
            pa.array([each.base_offset for each in batches], pa.int64()),
            last,
            topics,
            pa.array([each.data for each in batches], pa.binary()),
            positions(partition, last),
            pa.repeat(pa.scalar("insert"), rows),
        ],
        _NAMES,
    )


def place_of(message_id: str) -> Place:
    """Return the place of a row by its message id; raises `DataError` for rows of another kind."""
    parts = message_id.rsplit("-", 2)
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        raise DataError(
            f"{message_id[:100]!r} is no row of a whole batch",
            remedy='feed the destination from a source of type log or kafka with unit = "batches", without transforms',
        )
    return Place(int(parts[1]), int(parts[2]))
