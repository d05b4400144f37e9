"""What the spool holds besides PostgreSQL's own messages: a Begin that counts, and descriptions of tables.

B   as PostgreSQL sends it, then the number of the transaction's events (u32): an event can say which of how many
    it is, so that a consumer knows a whole transaction from half of one
H   a table's new description, before the transaction whose rows need it; it takes no ordinal. With the number 0xFFFF
    it is no event but tells the decoder of types that are different from here on
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec

from headgate.model import ProtocolError
from headgate.wire.pgtypes import TypeInfo

__all__ = ["COUNT_AT", "SchemaFrame", "TypesFrame", "begin_frame", "count_bytes", "events_in"]

_BEGIN = struct.Struct("!cQqII")
_COUNT = struct.Struct("!I")
_SCHEMA = struct.Struct("!cQqIH")
COUNT_AT = _BEGIN.size - _COUNT.size  # in a Begin
_TRUNCATE = ord("T")
_CHANGES = frozenset(b"IUDTM")
_TYPES = 0xFFFF


def begin_frame(commit_lsn: int, time_us: int, xid: int, count: int) -> bytes:
    """The Begin of a transaction of so many events."""
    return _BEGIN.pack(b"B", commit_lsn, time_us, xid, count)


def count_bytes(count: int) -> bytes:
    """What stands at COUNT_AT."""
    return _COUNT.pack(count)


def events_in(message: bytes | bytearray | memoryview) -> int:
    """How many events a message of a transaction becomes: one for each table of a Truncate."""
    kind = message[0]
    if kind == _TRUNCATE:
        return int(_COUNT.unpack_from(message, 1)[0])
    return int(kind in _CHANGES)


class SchemaFrame(NamedTuple):
    """A description, and the transaction it belongs to. `number` counts those of the same transaction."""

    commit_lsn: int
    time_us: int
    xid: int
    number: int
    description: dict[str, Any]

    @property
    def position(self) -> str:
        """Behind everything of earlier transactions and before the rows of its own: `/` sorts before the digits."""
        return f"{self.commit_lsn:016X}-/{self.number:07X}"

    def encode(self) -> bytes:
        """The message as it lies in the spool."""
        head = _SCHEMA.pack(b"H", self.commit_lsn, self.time_us, self.xid, self.number)
        return head + msgspec.json.encode(self.description)

    @classmethod
    def decode(cls, message: bytes) -> SchemaFrame:
        try:
            _, commit_lsn, time_us, xid, number = _SCHEMA.unpack_from(message)
            description = msgspec.json.decode(message[_SCHEMA.size :], type=dict[str, Any])
        except (struct.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProtocolError(f"a malformed description of a table: {error}", where="spool") from None
        if not (isinstance(description.get("schema"), str) and isinstance(description.get("table"), str)):
            raise ProtocolError("a description of a table without its name", where="spool")
        return cls(commit_lsn, time_us, xid, number, description)


class TypesFrame(NamedTuple):
    """Types that rows behind this place are read by."""

    types: list[TypeInfo]

    def encode(self) -> bytes:
        """The message as it lies in the spool."""
        return _SCHEMA.pack(b"H", 0, 0, 0, _TYPES) + msgspec.json.encode(self.types)

    @classmethod
    def decode(cls, message: bytes) -> TypesFrame | None:
        """None if the message is a description."""
        try:
            if _SCHEMA.unpack_from(message)[-1] != _TYPES:
                return None
            return cls(msgspec.json.decode(message[_SCHEMA.size :], type=list[TypeInfo]))
        except (struct.error, msgspec.MsgspecError) as error:
            raise ProtocolError(f"a malformed list of types: {error}", where="spool") from None
