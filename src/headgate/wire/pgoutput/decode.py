"""Bytes of one pgoutput message -> the message.

The format depends on one bit of history: inside a streamed block (between Stream Start and Stream Stop) most
messages carry the xid of their subtransaction. `Decoder` keeps that bit and nothing else, so one decoder belongs to
one replication connection.

Hostile bytes raise ProtocolError. Work is bounded by the length of the payload: every count and length is checked
against the bytes that are really there before anything is built from it.

Specification: PostgreSQL manual, Frontend/Backend Protocol, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from headgate.model import ProtocolError
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
    OldKind,
    OldRow,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)

__all__ = ["PROTOCOLS", "Decoder"]

PROTOCOLS = (1, 2, 3, 4)

_U8 = Struct("!B")
_U16 = Struct("!H")
_U32 = Struct("!I")
_U64 = Struct("!Q")
_BEGIN = Struct("!QqI")
_COMMIT = Struct("!BQQq")
_RELATION_COLUMN = Struct("!Ii")
_TRUNCATE = Struct("!IB")
_MESSAGE = Struct("!BQ")
_STREAM_START = Struct("!IB")
_STREAM_COMMIT = Struct("!IBQQq")
_STREAM_ABORT = Struct("!II")
_ABORT_INFO = Struct("!Qq")

_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"  # TupleData


class _Cursor:
    """A place in the payload. Running past the end raises struct.error, IndexError or ValueError."""

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int) -> None:
        self.data = data
        self.pos = pos

    def take(self, layout: Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.data, self.pos)
        self.pos += layout.size
        return values

    def text(self) -> str:
        end = self.data.index(0, self.pos)
        value = self.data[self.pos : end].decode()
        self.pos = end + 1
        return value

    def char(self) -> str:
        value = self.data[self.pos]
        self.pos += 1
        return chr(value)

    def raw(self) -> bytes:
        """Bytes behind a 32-bit length."""
        (length,) = self.take(_U32)
        value = self.data[self.pos : self.pos + length]
        if len(value) != length:
            raise ValueError("a length reaches past the end")
        self.pos += length
        return value

    def row(self) -> Row:
        """TupleData. The hot loop of a text decode, so it works on local names."""
        (count,) = self.take(_U16)
        data, pos, length_at = self.data, self.pos, _U32.unpack_from
        columns: list[Column] = []
        for _ in range(count):
            kind = data[pos]
            pos += 1
            if kind == _NULL:
                columns.append(None)
            elif kind == _UNCHANGED:
                columns.append(UNCHANGED)
            elif kind in (_TEXT, _BINARY):
                start = pos + 4
                (length,) = length_at(data, pos)
                pos = start + length
                value = data[start:pos]
                if len(value) != length:
                    raise ValueError("a column reaches past the end")
                columns.append(value if kind == _TEXT else BinaryValue(value))
            else:
                raise ValueError("unknown kind of column")
        self.pos = pos
        return tuple(columns)

    def expect_end(self) -> None:
        if self.pos != len(self.data):
            raise ValueError("bytes left over")


def _flags(value: int, known: int) -> int:
    """The server itself refuses flags it does not know, since they would change the meaning of what follows."""
    if value & ~known:
        raise ValueError("unknown flags")
    return value


def _begin(c: _Cursor, _xid: int | None) -> Begin:
    return Begin(*c.take(_BEGIN))


def _commit(c: _Cursor, _xid: int | None) -> Commit:
    flags, *fields = c.take(_COMMIT)
    _flags(flags, 0)
    return Commit(*fields)


def _origin(c: _Cursor, _xid: int | None) -> Origin:
    (origin_lsn,) = c.take(_U64)
    return Origin(origin_lsn, c.text())


def _relation(c: _Cursor, xid: int | None) -> Relation:
    (relation_id,) = c.take(_U32)
    schema, name = c.text() or "pg_catalog", c.text()  # the server sends pg_catalog as an empty name
    identity = ReplicaIdentity(c.char())
    (count,) = c.take(_U16)
    columns = tuple(_relation_column(c) for _ in range(count))
    return Relation(relation_id, schema, name, identity, columns, xid)


def _relation_column(c: _Cursor) -> RelationColumn:
    (flags,) = c.take(_U8)
    return RelationColumn(bool(_flags(flags, 1)), c.text(), *c.take(_RELATION_COLUMN))


def _type(c: _Cursor, xid: int | None) -> Type:
    (type_id,) = c.take(_U32)
    return Type(type_id, c.text() or "pg_catalog", c.text(), xid)


def _insert(c: _Cursor, xid: int | None) -> Insert:
    (relation_id,) = c.take(_U32)
    if c.char() != "N":
        raise ValueError("no new row")
    return Insert(relation_id, c.row(), xid)


def _update(c: _Cursor, xid: int | None) -> Update:
    (relation_id,) = c.take(_U32)
    old = None
    kind = c.char()
    if kind != "N":
        old = OldRow(OldKind(kind), c.row())
        kind = c.char()
    if kind != "N":
        raise ValueError("no new row")
    return Update(relation_id, old, c.row(), xid)


def _delete(c: _Cursor, xid: int | None) -> Delete:
    (relation_id,) = c.take(_U32)
    return Delete(relation_id, OldRow(OldKind(c.char()), c.row()), xid)


def _truncate(c: _Cursor, xid: int | None) -> Truncate:
    count, flags = c.take(_TRUNCATE)
    _flags(flags, 3)
    if count * 4 != len(c.data) - c.pos:
        raise ValueError("the number of tables does not fit the length")
    relation_ids = c.take(Struct(f"!{count}I"))
    return Truncate(relation_ids, bool(flags & 1), bool(flags & 2), xid)


def _message(c: _Cursor, xid: int | None) -> LogicalMessage:
    flags, lsn = c.take(_MESSAGE)
    return LogicalMessage(bool(_flags(flags, 1)), lsn, c.text(), c.raw(), xid)


def _stream_start(c: _Cursor, _xid: int | None) -> StreamStart:
    xid, first = c.take(_STREAM_START)
    return StreamStart(xid, bool(_flags(first, 1)))


def _stream_stop(_c: _Cursor, _xid: int | None) -> StreamStop:
    return StreamStop()


def _stream_commit(c: _Cursor, _xid: int | None) -> StreamCommit:
    xid, flags, *fields = c.take(_STREAM_COMMIT)
    _flags(flags, 0)
    return StreamCommit(xid, *fields)


def _stream_abort(c: _Cursor, _xid: int | None) -> StreamAbort:
    xids = c.take(_STREAM_ABORT)
    if c.pos == len(c.data):
        return StreamAbort(*xids)
    return StreamAbort(*xids, *c.take(_ABORT_INFO))  # version 4, and only with streaming 'parallel'


class _Kind(NamedTuple):
    """One kind of message: who reads it, since which protocol, and where it may stand."""

    name: str
    read: Callable[[_Cursor, int | None], Message]
    protocol: int = 1
    in_block: bool = False  # may stand inside a streamed block
    has_xid: bool = False  # carries a xid when it does


_KINDS: dict[int, _Kind] = {
    ord(tag): kind
    for tag, kind in {
        "B": _Kind("Begin", _begin),
        "C": _Kind("Commit", _commit),
        "O": _Kind("Origin", _origin, in_block=True),
        "R": _Kind("Relation", _relation, in_block=True, has_xid=True),
        "Y": _Kind("Type", _type, in_block=True, has_xid=True),
        "I": _Kind("Insert", _insert, in_block=True, has_xid=True),
        "U": _Kind("Update", _update, in_block=True, has_xid=True),
        "D": _Kind("Delete", _delete, in_block=True, has_xid=True),
        "T": _Kind("Truncate", _truncate, in_block=True, has_xid=True),
        "M": _Kind("Message", _message, in_block=True, has_xid=True),
        "S": _Kind("Stream Start", _stream_start, protocol=2),
        "E": _Kind("Stream Stop", _stream_stop, protocol=2, in_block=True),
        "c": _Kind("Stream Commit", _stream_commit, protocol=2),
        "A": _Kind("Stream Abort", _stream_abort, protocol=2),
    }.items()
}


class Decoder:
    """Decodes the messages of one replication connection, in the order in which they arrive."""

    __slots__ = ("_in_block", "_protocol")

    def __init__(self, protocol: int = 1) -> None:
        if protocol not in PROTOCOLS:
            raise ProtocolError(f"pgoutput has no protocol version {protocol}", remedy="Use a version from 1 to 4.")
        self._protocol = protocol
        self._in_block = False

    @property
    def in_block(self) -> bool:
        """Whether a streamed block is open, that is, whether row messages carry an xid now."""
        return self._in_block

    def decode(self, payload: bytes) -> Message:
        """Read one message, whole: bytes too few or too many are an error."""
        kind = self._kind(payload)
        try:
            cursor = _Cursor(payload, 1)
            xid = cursor.take(_U32)[0] if kind.has_xid and self._in_block else None
            message = kind.read(cursor, xid)
            cursor.expect_end()
        except (struct.error, ValueError, IndexError) as error:
            raise ProtocolError(f"malformed {kind.name} message of {len(payload)} bytes", where="pgoutput") from error
        if isinstance(message, StreamStart | StreamStop):
            self._in_block = isinstance(message, StreamStart)
        return message

    def _kind(self, payload: bytes) -> _Kind:
        kind = _KINDS.get(payload[0]) if payload else None
        if kind is None or kind.protocol > self._protocol:
            raise ProtocolError(
                f"no message of protocol {self._protocol} starts with {payload[:1]!r}",
                where="pgoutput",
                remedy="Decode with the proto_version that START_REPLICATION asked for.",
            )
        if self._in_block and not kind.in_block:
            raise ProtocolError(f"{kind.name} inside a streamed block", where="pgoutput")
        if kind.name == "Stream Stop" and not self._in_block:
            raise ProtocolError("Stream Stop without Stream Start", where="pgoutput")
        return kind
