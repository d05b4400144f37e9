"""Payloads larger than the server takes: sent as several messages, joined by whoever reads them.

Each part carries the header `Headgate-Chunk: 2/5` and the row's message id with the part's number behind it. Parts
follow each other in the stream, and ids keep their order, so a replay goes on in the middle of a row, too.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import record
from headgate.wire.nats.fragments import FRAGMENT_HEADER

__all__ = ["split_large"]

# Room for the subject's share of the limit: ids, the chunk header and whatever the publisher adds.
_HEADROOM_BYTES = 4096


def split_large(batch: pa.RecordBatch, max_payload: int) -> tuple[pa.RecordBatch, pa.Array | None]:
    """The batch with oversized rows cut into parts, and a header column; (batch, None) if every row fits."""
    limit = max_payload - _HEADROOM_BYTES
    largest = pc.max(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0
    if largest <= limit:
        return batch, None
    rows: list[tuple[str, str, bytes, bytes]] = []
    for row in batch.select(list(record.DELIVERY_COLUMNS)).to_pylist():
        rows.extend(_parts(row[record.TOPIC], row[record.MESSAGE_ID], row[record.PAYLOAD], limit))
    topics, ids, payloads, headers = zip(*rows, strict=True)
    columns = [pa.array(topics), pa.array(ids), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=list(record.DELIVERY_COLUMNS)), pa.array(headers, pa.binary())


def _parts(topic: str, message_id: str, payload: bytes, limit: int) -> list[tuple[str, str, bytes, bytes]]:
    if len(payload) <= limit:
        return [(topic, message_id, payload, b"")]
    count = -(-len(payload) // limit)
    return [
        (
            topic,
            f"{message_id}.{number:06d}",
            payload[(number - 1) * limit : number * limit],
            f"{FRAGMENT_HEADER}: {number}/{count}\r\n".encode(),
        )
        for number in range(1, count + 1)
    ]
