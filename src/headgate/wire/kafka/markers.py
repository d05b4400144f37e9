"""Control records: how the end of a transaction lies in a partition.

A marker is a batch of one record whose key is a version and a type, and whose value is a version and the epoch of the
coordinator. Consumers of every isolation level get the batch and keep its record to themselves.

Specification: Apache Kafka documentation, Implementation, "Control Batches"; KIP-98.
"""

from __future__ import annotations

from struct import Struct

from headgate.wire.kafka.records import Record, encode_batch

__all__ = ["end_marker", "is_commit"]

_KEY, _VALUE = Struct(">hh"), Struct(">hi")
_VERSION, _ABORT, _COMMIT = 0, 0, 1
_NO_SEQUENCE = -1


def end_marker(producer_id: int, epoch: int, *, committed: bool, timestamp: int) -> bytes:
    """Return the batch that ends a producer's transaction; the same bytes do for every partition."""
    key = _KEY.pack(_VERSION, _COMMIT if committed else _ABORT)
    return encode_batch(
        [Record(0, timestamp, key, _VALUE.pack(_VERSION, 0))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=_NO_SEQUENCE,
        is_transactional=True,
        is_control=True,
    )


def is_commit(record: Record) -> bool | None:
    """Return whether the record of a control batch says commit or abort; None if it says something else."""
    if record.key is None or len(record.key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    return {_ABORT: False, _COMMIT: True}.get(kind)
