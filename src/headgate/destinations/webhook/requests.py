"""From rows to requests: by topic, in order, one row or several in each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.webhook.options import WebhookOptions
from headgate.model import DataError, record

__all__ = ["Post", "TopicRows", "by_topic", "posts"]

_json = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class Post:
    """One request, as far as it does not depend on the time."""

    message_id: str
    body: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of one topic in a batch, in their order."""

    topic: str
    rows: pa.RecordBatch
    keyed: bool  # a partition key asks for order


def by_topic(batch: pa.RecordBatch) -> list[TopicRows]:
    """Topics in the order of their first row."""
    encoded = batch.column(record.TOPIC).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    found = []
    for number, topic in enumerate(encoded.dictionary.to_pylist()):
        rows = batch.take(pa.array(order[edges[number] : edges[number + 1]]))
        keyed = record.PARTITION_KEY in rows.schema.names and rows.column(record.PARTITION_KEY).null_count < len(rows)
        found.append(TopicRows(topic, rows, keyed))
    return found


def posts(rows: pa.RecordBatch, options: WebhookOptions) -> Iterator[Post]:
    """The requests for the rows of one topic, made one at a time."""
    ids, payloads = rows.column(record.MESSAGE_ID), rows.column(record.PAYLOAD)
    if options.batch_rows == 1:
        for message_id, payload in zip(ids, payloads, strict=True):
            yield Post(_header_text(message_id.as_py() or ""), payload.as_py() or b"", 1)
        return
    for start, stop in _cuts(payloads, options):
        some = ids[start:stop].to_pylist()
        yield Post(_batch_id(some), _joined(some, payloads[start:stop], options), stop - start)


def _cuts(payloads: pa.Array, options: WebhookOptions) -> Iterator[tuple[int, int]]:
    """Where requests begin and end: at most so many rows and bytes, at least one row."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(payloads), 0).to_numpy(zero_copy_only=False).astype(np.int64))
    start, count = 0, len(payloads)
    while start < count:
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + options.max_batch_bytes, side="right"))
        stop = min(max(fitting, start + 1), start + options.batch_rows, count)
        yield start, stop
        start = stop


def _joined(ids: list[str], payloads: pa.Array, options: WebhookOptions) -> bytes:
    texts = [_checked(message_id, payload) for message_id, payload in zip(ids, payloads.to_pylist(), strict=True)]
    if options.batch_format == "json":
        return b"[" + b",".join(texts) + b"]"
    # In valid JSON a line break stands between values only, never inside of text.
    return b"".join(text.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for text in texts)


def _checked(message_id: str, payload: bytes | None) -> bytes:
    try:
        _json.decode(payload or b"")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DataError(
            f"the payload is no JSON: {error}",
            where=f"message {message_id}",
            remedy="set batch_rows = 1, which sends any bytes, or make the payload JSON",
        ) from None
    assert payload is not None
    return payload


def _batch_id(ids: list[str]) -> str:
    """Return the id of a request: equal for equal rows."""
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
    return _header_text(f"{ids[0]}+{len(ids)}.{digest}")


def _header_text(text: str) -> str:
    return quote(text, safe="!#$&'()*+,/:;=?@[]~")
