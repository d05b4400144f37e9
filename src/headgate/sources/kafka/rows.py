"""Messages as rows: the columns of Spark's own Kafka source, and headgate's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.record import OP, POSITION
from headgate.sources.kafka.offsets import Partition

__all__ = ["HEADERS", "SCHEMA", "positions", "to_batch"]

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers array<struct<key: string, value: binary>>, {POSITION} string, {OP} string"
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", POSITION, OP]


def to_batch(
    partition: Partition,
    keys: pa.Array,
    values: pa.Array,
    offsets: pa.Array,
    milliseconds: pa.Array,
    timestamp_types: pa.Array,
    headers: pa.Array,
) -> pa.RecordBatch:
    """Rows of one partition. A message without a value is a deletion: that is what it means to a compacted topic."""
    rows = len(offsets)
    return pa.RecordBatch.from_arrays(
        [
            keys,
            values,
            pa.repeat(pa.scalar(partition.topic), rows),
            pa.repeat(pa.scalar(partition.number, pa.int32()), rows),
            offsets,
            pc.multiply(milliseconds, 1000).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
            timestamp_types,
            headers,
            positions(partition, offsets),
            pc.if_else(pc.is_null(values), "delete", "insert"),
        ],
        _NAMES,
    )


def positions(partition: Partition, offsets: pa.Array) -> pa.Array:
    """`orders-3-0000000000000017`: unique, and sorted as the messages of a partition are."""
    numbers = pc.utf8_lpad(offsets.cast(pa.string()), 19, "0")
    return pc.binary_join_element_wise(f"{partition.topic}-{partition.number}", numbers, "-")


def header_column(headers: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    """Headers in their order; keys may repeat and values may be null. None has none."""
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    lengths = np.fromiter((len(each or ()) for each in headers), np.int32, len(headers))
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int32)))
    flat = [pair for each in headers for pair in each or ()]
    keys, values = (pa.array([pair[i] for pair in flat], kind) for i, kind in ((0, pa.string()), (1, pa.binary())))
    pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs)
