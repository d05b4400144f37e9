"""A message -> its pgoutput bytes, the exact inverse of `decode`.

The server does this in production. Here it makes streams for tests, benchmarks and for whoever wants to check
another decoder against this one.

Specification: PostgreSQL manual, Frontend/Backend Protocol, "Logical Replication Message Formats".
"""

from __future__ import annotations

from functools import singledispatch
from struct import pack

from headgate.wire.pgoutput.messages import (
    UNCHANGED,
    Begin,
    BinaryValue,
    Column,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldRow,
    Origin,
    Relation,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)

__all__ = ["encode_message"]


def encode_message(message: Message) -> bytes:
    """The payload that decodes to `message`; a message with an xid is one inside a streamed block."""
    return _encode(message)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _schema(name: str) -> bytes:
    return _text("" if name == "pg_catalog" else name)


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else pack("!I", xid)


def _column(column: Column) -> bytes:
    if column is None:
        return b"n"
    if column is UNCHANGED:
        return b"u"
    return (b"b" if isinstance(column, BinaryValue) else b"t") + pack("!I", len(column)) + column


def _row(row: Row) -> bytes:
    return pack("!H", len(row)) + b"".join(map(_column, row))


def _old(old: OldRow) -> bytes:
    return old.kind.encode() + _row(old.row)


@singledispatch
def _encode(message: object) -> bytes:
    raise TypeError(f"not a pgoutput message: {type(message).__name__}")


@_encode.register(Begin)
def _(m: Begin) -> bytes:
    return b"B" + pack("!QqI", m.final_lsn, m.commit_time, m.xid)


@_encode.register(Commit)
def _(m: Commit) -> bytes:
    return b"C" + pack("!BQQq", 0, m.commit_lsn, m.end_lsn, m.commit_time)


@_encode.register(Origin)
def _(m: Origin) -> bytes:
    return b"O" + pack("!Q", m.origin_lsn) + _text(m.name)


@_encode.register(Relation)
def _(m: Relation) -> bytes:
    head = b"R" + _xid(m.xid) + pack("!I", m.relation_id) + _schema(m.schema) + _text(m.name) + m.identity.encode()
    columns = (bytes([c.is_key]) + _text(c.name) + pack("!Ii", c.type_id, c.type_modifier) for c in m.columns)
    return head + pack("!H", len(m.columns)) + b"".join(columns)


@_encode.register(Type)
def _(m: Type) -> bytes:
    return b"Y" + _xid(m.xid) + pack("!I", m.type_id) + _schema(m.schema) + _text(m.name)


@_encode.register(Insert)
def _(m: Insert) -> bytes:
    return b"I" + _xid(m.xid) + pack("!I", m.relation_id) + b"N" + _row(m.new)


@_encode.register(Update)
def _(m: Update) -> bytes:
    old = _old(m.old) if m.old else b""
    return b"U" + _xid(m.xid) + pack("!I", m.relation_id) + old + b"N" + _row(m.new)


@_encode.register(Delete)
def _(m: Delete) -> bytes:
    return b"D" + _xid(m.xid) + pack("!I", m.relation_id) + _old(m.old)


@_encode.register(Truncate)
def _(m: Truncate) -> bytes:
    count = len(m.relation_ids)
    flags = m.cascade | m.restart_identity << 1
    return b"T" + _xid(m.xid) + pack(f"!IB{count}I", count, flags, *m.relation_ids)


@_encode.register(LogicalMessage)
def _(m: LogicalMessage) -> bytes:
    head = b"M" + _xid(m.xid) + pack("!BQ", m.transactional, m.lsn) + _text(m.prefix)
    return head + pack("!I", len(m.content)) + m.content


@_encode.register(StreamStart)
def _(m: StreamStart) -> bytes:
    return b"S" + pack("!IB", m.xid, m.first_segment)


@_encode.register(StreamStop)
def _(_m: StreamStop) -> bytes:
    return b"E"


@_encode.register(StreamCommit)
def _(m: StreamCommit) -> bytes:
    return b"c" + pack("!IBQQq", m.xid, 0, m.commit_lsn, m.end_lsn, m.commit_time)


@_encode.register(StreamAbort)
def _(m: StreamAbort) -> bytes:
    head = b"A" + pack("!II", m.xid, m.subxid)
    return head if m.abort_lsn is None else head + pack("!Qq", m.abort_lsn, m.abort_time)
