"""Payloads larger than the server takes: sent as several messages, joined by whoever reads them.

Each part carries the header `Headgate-Chunk: 2/5` and the row's message id with the part's number behind it. Parts
follow each other in the stream, and ids keep their order, so a replay goes on in the middle of a row, too.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import ProtocolError, record

__all__ = ["FRAGMENT_HEADER", "FragmentJoiner", "split_large"]

FRAGMENT_HEADER = "Headgate-Chunk"

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


class FragmentJoiner:
    """Puts parts together again; feed it the messages of a stream in order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, payload: bytes, chunk: str | None) -> bytes | None:
        """A whole payload, or None while parts are missing. `chunk` is the message's chunk header, if it has one."""
        if chunk is None:
            return payload
        number, slash, count = chunk.partition("/")
        if not (slash and number.isdigit() and count.isdigit()) or int(number) != len(self._parts) + 1:
            raise ProtocolError(
                f"chunk {chunk[:40]!r} does not follow part {len(self._parts)}",
                remedy="read the stream from the beginning of the row, in order",
            )
        self._parts.append(payload)
        if int(number) < int(count):
            return None
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole
