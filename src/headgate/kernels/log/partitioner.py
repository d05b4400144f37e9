"""Which partition a key belongs to: Kafka's own rule (murmur2), for whole columns.

Every Kafka client that keeps the default sends a key to the same partition, so consumers may join topics by key. The
rule is computed here only where the partition must be known before a row is sent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import DataError, record

__all__ = ["murmur2", "partitions_of"]

_SEED = np.uint32(0x9747B28C)
_MIX = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)

Hashes = npt.NDArray[np.uint32]
Partitions = npt.NDArray[np.int64]


def partitions_of(rows: pa.RecordBatch, counts: Partitions) -> Partitions:
    """The partition of every row, of so many each: the one it asks for, else that of its key, else of its id.

    A row without a key goes by its message id, so that a replay finds it where it is.
    """
    ids = rows.column(record.MESSAGE_ID).cast(pa.binary())
    keys = rows.column(record.PARTITION_KEY).cast(pa.binary()) if record.PARTITION_KEY in rows.schema.names else None
    hashed = murmur2(ids if keys is None else pc.coalesce(keys, ids))
    found: Partitions = (hashed & _POSITIVE).astype(np.int64) % counts
    if record.PARTITION in rows.schema.names:
        asked = pc.fill_null(rows.column(record.PARTITION).cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        if (asked >= counts).any():
            row = int(np.flatnonzero(asked >= counts)[0])
            raise DataError(
                f"there is no partition {asked[row]}: the topic {rows.column(record.TOPIC)[row]} has {counts[row]}",
                where=f"message {rows.column(record.MESSAGE_ID)[row]}",
                remedy="correct the rows, or give the topic more partitions",
            )
        found = np.where(asked >= 0, asked, found)
    return found


def murmur2(values: pa.Array) -> Hashes:
    """The hash of every value of a binary column without nulls."""
    if not len(values):
        return np.zeros(0, np.uint32)
    data, starts, lengths = _layout(values)
    hashes: Hashes = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    alive, word = np.flatnonzero(words), 0
    while len(alive):  # all values advance together by four bytes
        at = starts[alive] + 4 * word
        mixed = (data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24) * _MIX
        hashes[alive] = hashes[alive] * _MIX ^ (mixed ^ mixed >> 24) * _MIX
        word += 1
        alive = alive[words[alive] > word]
    rest, tail = lengths & 3, starts + 4 * words
    for byte in (2, 1, 0):
        has = np.flatnonzero(rest > byte)
        hashes[has] ^= data[tail[has] + byte] << np.uint32(8 * byte)
    has = np.flatnonzero(rest)
    hashes[has] *= _MIX
    hashes ^= hashes >> 13
    hashes *= _MIX
    hashes ^= hashes >> 15
    return hashes


def _layout(values: pa.Array) -> tuple[Hashes, Partitions, Partitions]:
    """The bytes of a column, each widened to a word, and where its values begin and how long they are."""
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    return data[offsets[0] : offsets[-1]].astype(np.uint32), offsets[:-1] - offsets[0], np.diff(offsets)
