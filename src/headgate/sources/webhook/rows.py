"""From requests to the columns of the source, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from headgate.model import record
from headgate.sources.random.generator import position_column
from headgate.spool.frames import Request
from headgate.spool.segments import read_requests

__all__ = ["read_rows", "spark_schema"]

_BATCH_ROWS = 8192
_BATCH_BYTES = 16 << 20
_HEADERS = pa.map_(pa.string(), pa.string())


def spark_schema(body: str) -> str:
    return (
        f"body {'string' if body == 'text' else 'binary'}, path string, content_type string, client string, "
        f"headers map<string,string>, received_at timestamp, {record.POSITION} string, {record.OP} string"
    )


def read_rows(directory: Path, start: int, end: int, body: str) -> Iterator[pa.RecordBatch]:
    """Rows `start` (inclusive) to `end` (exclusive), the same however often they are read."""
    parts: list[_Part] = []
    rows = size = 0
    for first, request in read_requests(directory, start, end):
        part = _Part(request, first, max(start - first, 0), min(end - first, len(request.bodies)))
        parts.append(part)
        rows += part.stop - part.start
        size += sum(map(len, request.bodies))
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(parts, body)
            parts, rows, size = [], 0, 0
    if parts:
        yield _batch(parts, body)


class _Part:
    """The events of a request that belong to the range."""

    __slots__ = ("first", "request", "start", "stop")

    def __init__(self, request: Request, first: int, start: int, stop: int) -> None:
        self.request, self.first, self.start, self.stop = request, first, start, stop


def _batch(parts: list[_Part], body: str) -> pa.RecordBatch:
    requests = [part.request for part in parts]
    counts = [part.stop - part.start for part in parts]
    # What all events of a request have in common is made once and then repeated.
    repeat = pa.array(np.repeat(np.arange(len(parts)), counts))
    numbers = np.concatenate([np.arange(p.first + p.start, p.first + p.stop, dtype=np.uint64) for p in parts])
    bodies = pa.array([each for p in parts for each in p.request.bodies[p.start : p.stop]], pa.binary())
    columns = {
        "body": bodies.cast(pa.string()) if body == "text" else bodies,
        "path": pa.array([r.path for r in requests], pa.string()).take(repeat),
        "content_type": pa.array([r.content_type for r in requests], pa.string()).take(repeat),
        "client": pa.array([r.client for r in requests], pa.string()).take(repeat),
        "headers": pa.array([list(r.headers.items()) for r in requests], _HEADERS).take(repeat),
        "received_at": pa.array([r.received_us for r in requests], pa.timestamp("us", tz="UTC")).take(repeat),
        record.POSITION: position_column(numbers),
        record.OP: pa.array(["insert"], pa.string()).take(pa.array(np.zeros(len(numbers), dtype=np.int64))),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
