"""The spool's form of messages, and what the reference makes of it: the oracle of every test of the fast decoder."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from headgate.kernels.changes import RangeDecoder, record_schema
from headgate.kernels.frames import COUNT_AT, count_bytes, events_in
from headgate.model import ProtocolError
from headgate.wire.envelope import (
    DEFAULT_SUBJECT,
    DebeziumEncoder,
    DebeziumOptions,
    Event,
    JsonEncoder,
    MessagePackEncoder,
    Operation,
    events,
    iso_time,
    subject_of,
)
from headgate.wire.envelope.debezium.encoder import TOMBSTONE
from headgate.wire.envelope.layout import Rows
from headgate.wire.pgoutput import (
    PG_EPOCH_UNIX_US,
    UNCHANGED,
    Begin,
    Commit,
    Decoder,
    LogicalMessage,
    Message,
    Relation,
    Transaction,
    encode_message,
)
from headgate.wire.pgtypes import TypeCatalog
from tests.cdc.assembler import Assembler

SYSTEM = "7412345678901234567"
TIMELINE = 0x2A
NOW_US = 1_765_540_834_338_547
IMAGES = ("_key", "_before", "_after")


def framed(payloads: Iterable[bytes]) -> bytes:
    """Messages as they lie in the spool: PostgreSQL's, with the number of its events behind a Begin."""
    frames = [bytearray(payload) for payload in payloads]
    begin: bytearray | None = None
    count = 0
    for frame in frames:
        if frame[:1] == b"B" and len(frame) == COUNT_AT:
            begin, count = frame, 0
        elif begin is not None and frame:
            count += events_in(frame) if len(frame) > 5 or frame[:1] != b"T" else 0
        if begin is not None:
            begin[COUNT_AT:] = count_bytes(count & 0xFFFFFFFF)
    return b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)


def spooled(messages: Iterable[Message]) -> bytes:
    return framed(map(encode_message, messages))


def unframed(buffer: bytes) -> list[bytes]:
    payloads, at = [], 0
    while at < len(buffer):
        if at + 4 > len(buffer):
            raise ProtocolError("cut off")
        (size,) = struct.unpack_from("<I", buffer, at)
        at += 4 + size
        if at > len(buffer) or not size:
            raise ProtocolError("cut off")
        payloads.append(buffer[at - size : at])
    return payloads


def transactions(buffer: bytes, assembler: Assembler) -> Iterator[Transaction]:
    """The reference's transactions. The spool has no Commit, and no LSN of a row but that of a logical message."""
    begun: Begin | None = None
    count = 0
    decoder = Decoder(1)
    for payload in unframed(buffer):
        if payload[:1] not in b"BRYOIUDTM":
            raise ProtocolError("misplaced")
        if payload[:1] == b"B":
            if len(payload) != COUNT_AT + 4:
                raise ProtocolError("malformed")
            (next_count,) = struct.unpack_from("!I", payload, COUNT_AT)
            payload = payload[:COUNT_AT]
        message = decoder.decode(payload)
        if isinstance(message, Begin):
            yield from _committed(begun, assembler, count)
            iso_time(message.commit_time)
            begun, count = message, next_count
            assembler.feed(message, 0)
        elif begun is None:
            raise ProtocolError("outside")
        elif isinstance(message, LogicalMessage) and not message.transactional and begun.xid == 0:
            # It comes in a Begin of its own, which the reference does not know.
            if next(_committed(begun, assembler, count)).changes:
                raise ProtocolError("not alone")
            begun = None
            alone = assembler.feed(message, message.lsn)
            assert alone is not None
            yield replace(alone, count=count)
        else:
            lsn = message.lsn if isinstance(message, LogicalMessage) else begun.final_lsn
            assembler.feed(message, lsn)
    yield from _committed(begun, assembler, count)


def _committed(begun: Begin | None, assembler: Assembler, count: int) -> Iterator[Transaction]:
    if begun is not None:
        end = assembler.feed(Commit(begun.final_lsn, begun.final_lsn, begun.commit_time), 0)
        assert end is not None
        yield replace(end, commit_time=end.commit_time or None, xid=end.xid or None, count=count)


def reference_rows(
    buffers: Iterable[bytes],
    relations: Iterable[bytes] = (),
    *,
    types: TypeCatalog,
    form: str = "msgpack",
    subject: str = DEFAULT_SUBJECT,
    debezium: Callable[[TypeCatalog], DebeziumEncoder] | None = None,
    images: bool = True,
    keys: bool = False,
) -> list[dict[str, Any]]:
    """Every column of every row, made the slow and readable way."""
    assembler = Assembler()
    for raw in relations:
        relation = Decoder(1).decode(raw)
        assert isinstance(relation, Relation)
        assembler.relations[relation.relation_id] = relation
    template = partial(subject_of, template=subject)
    found = (
        replace(event, position=event.position._replace(timeline=TIMELINE))
        for buffer in buffers
        for done in transactions(buffer, assembler)
        for event in events(done)
    )
    rows = Rows(types) if images else None
    if form == "debezium":
        encoder = (debezium or make_debezium)(types)
        parts = [part for event in found for part in encoder.split(event)]
        payloads = [b"" if part.number == TOMBSTONE else encoder.encode(part.event, NOW_US) for part in parts]
        found_rows = [
            _row(part.event, payload, template(part.event), rows, part.number)
            for part, payload in zip(parts, payloads, strict=True)
        ]
        if keys:
            for row, part in zip(found_rows, parts, strict=True):
                row |= {"_partition_key": encoder.key(part.event), "_payload": row["_payload"] or None}
        return found_rows
    native = (MessagePackEncoder if form == "msgpack" else JsonEncoder)(SYSTEM, types, template)
    return [_row(event, native.encode(event), template(event), rows) for event in found]


def make_debezium(types: TypeCatalog) -> DebeziumEncoder:
    return DebeziumEncoder(types, DebeziumOptions(topic_prefix="srv"), database="db")


def _row(event: Event, payload: bytes, subject: str, rows: Rows | None, part: int = 0) -> dict[str, Any]:
    time = event.commit_time
    return {
        "_topic": subject,
        "_position": str(event.position) + (f".{part}" if part else ""),
        "_op": event.operation.lower(),
        "_schema": event.relation.schema if event.relation else None,
        "_table": event.relation.name if event.relation else None,
        "_xid": event.xid,
        "_commit_time": None if time is None else time + PG_EPOCH_UNIX_US,
        "_payload": payload,
        **(dict(zip(IMAGES, _images(event, rows), strict=True)) if rows else {}),
    }


def _images(event: Event, rows: Rows) -> tuple[str | None, str | None, str | None]:
    relation = event.relation
    if relation is None or event.detail is not None:
        return None, None, None
    data = rows.json(relation, event.data)
    keys = [column.is_key for column in relation.columns]
    key_row = tuple(value if key else UNCHANGED for value, key in zip(event.data, keys, strict=True))
    key = rows.json(relation, key_row) if any(keys) else None
    if event.operation is Operation.DELETE:
        return key, data, None
    old = event.old if event.operation is Operation.UPDATE else None
    return key, None if old is None else rows.json(relation, old), data


def fast_batches(
    buffers: Sequence[bytes],
    relations: Sequence[bytes] = (),
    *,
    types: TypeCatalog,
    form: Any = "msgpack",
    subject: str = DEFAULT_SUBJECT,
    images: bool = False,
    keys: bool = False,
    debezium: Callable[[TypeCatalog], DebeziumEncoder] | None = None,
    **sizes: int,
) -> list[pa.RecordBatch]:
    decoder = RangeDecoder(
        origin=SYSTEM, relations=relations, types=types, format=form, subject=subject,
        debezium=debezium or make_debezium, images=images, keys=keys, timeline=TIMELINE,
        clock_us=lambda: NOW_US, **sizes,  # type: ignore[arg-type]
    )  # fmt: skip
    return list(decoder.decode(buffers))


def fast_rows(batches: Iterable[pa.RecordBatch], *, images: bool = False, keys: bool = False) -> list[dict[str, Any]]:
    """The rows of decoded batches, whose form is checked on the way."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == record_schema(images=images, keys=keys)
        assert batch.num_rows
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["_commit_time"] = columns["_commit_time"].view(pa.int64())
        rows += pa.RecordBatch.from_pydict(columns).to_pylist()
    return rows
