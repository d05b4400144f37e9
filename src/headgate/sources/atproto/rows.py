"""From frames to rows: one per op of a commit, one for every other event.

A row that is no op has its kind as its collection. No collection has so short a name, so a topic made of the
collection keeps the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from headgate.model import Position, record
from headgate.wire.atproto import (
    Account,
    Action,
    AtprotoError,
    Commit,
    Event,
    Identity,
    Kind,
    Sync,
    cid_text,
    read_car,
    read_event,
    read_frame,
)
from headgate.wire.atproto.jetstream import record_json

__all__ = ["SCHEMA", "read_batches"]

SCHEMA = (
    "did string, collection string, rkey string, action string, rev string, cid string, record string, seq bigint, "
    f"time timestamp, kind string, {record.POSITION} string, {record.OP} string"
)

_BATCH_ROWS = 8192
_BATCH_BYTES = 16 << 20
_TYPES = (*[pa.string()] * 7, pa.int64(), pa.timestamp("us", tz="UTC"), *[pa.string()] * 3)
_NAMES = [column.split()[0] for column in SCHEMA.split(",")]
_OPS = {Action.CREATE: "insert", Action.UPDATE: "update", Action.DELETE: "delete"}

Row = tuple[Any, ...]
_encode = msgspec.json.Encoder().encode


def read_batches(messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The rows of frames, the same however often they are read."""
    rows: list[Row] = []
    size = 0
    for message in messages:
        rows += _rows(message)
        size += len(message)
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def _rows(message: bytes) -> list[Row]:
    frame = read_frame(message)
    if frame.kind in (Kind.INFO, Kind.ERROR, Kind.UNKNOWN):
        return []
    try:
        event = read_event(frame)
        return _commit_rows(event) if isinstance(event, Commit) else [_control_row(event)]
    except AtprotoError as error:
        # What cannot be read is said, never passed over in silence.
        said = {"event": frame.kind.value, "reason": error.reason.value, "message": error.message}
        return [_row(frame.did, frame.seq, None, "invalid", said)]


def _commit_rows(commit: Commit) -> list[Row]:
    blocks = read_car(commit.blocks).blocks
    time = _time(commit.time)
    return [
        (
            commit.did,
            op.collection,
            op.rkey,
            op.action.value,
            commit.rev,
            None if op.cid is None else cid_text(op.cid),
            None if op.cid is None else record_json(blocks.get(op.cid)),
            commit.seq,
            time,
            "commit",
            str(Position(commit.seq, index)),
            _OPS[op.action],
        )
        for index, op in enumerate(commit.ops)
    ]


def _control_row(event: Event) -> Row:
    if isinstance(event, Account):
        said: dict[str, Any] = {"active": event.active} | ({"status": event.status} if event.status else {})
        return _row(event.did, event.seq, event.time, "account", said)
    if isinstance(event, Identity):
        return _row(event.did, event.seq, event.time, "identity", {"handle": event.handle} if event.handle else {})
    assert isinstance(event, Sync)
    return _row(event.did, event.seq, event.time, "sync", {}, rev=event.rev)


def _row(did: str, seq: int, time: str | None, kind: str, said: dict[str, Any], rev: str | None = None) -> Row:
    when = _time(time)
    body = _encode(said).decode()
    return (did, kind, None, None, rev, None, body, seq, when, kind, str(Position(seq)), "insert")


def _time(text: str | None) -> datetime | None:
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return None  # hosts write what they like
    return when if when.tzinfo else when.replace(tzinfo=UTC)
