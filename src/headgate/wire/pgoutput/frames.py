"""The replication stream's own framing, around and beside the pgoutput messages.

After START_REPLICATION every CopyData message is one
frame: XLogData (`w`) carries one pgoutput message, a primary keepalive (`k`) carries the server's position. The
client answers with standby status updates (`r`). All integers are big-endian; clocks count microseconds since
2000-01-01 UTC.

Specification: PostgreSQL manual, Frontend/Backend Protocol, "Streaming Replication Protocol".
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from headgate.model import ProtocolError

__all__ = ["PG_EPOCH_UNIX_US", "Frame", "Keepalive", "StandbyStatus", "XLogData", "decode_frame", "encode_status"]

PG_EPOCH_UNIX_US = 946_684_800_000_000  # 2000-01-01T00:00:00Z, counted from 1970

_XLOG_DATA = Struct("!cQQq")
_KEEPALIVE = Struct("!cQqB")
_STATUS = Struct("!cQQQqB")


@dataclass(frozen=True, slots=True)
class XLogData:
    """One message of the output plugin, with its place in the WAL.

    `start` is the row's own LSN: many rows may share it, so it is no identity. `end` is the server's current end
    of WAL, not the end of this message.
    """

    start: int
    end: int
    sent_at: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """The server is alive and its WAL ends here; it may ask for a status update at once."""

    wal_end: int
    sent_at: int
    reply_requested: bool


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """What the client has written, flushed and applied. `flushed` is what moves the slot."""

    written: int
    flushed: int
    applied: int
    sent_at: int
    reply_requested: bool = False


Frame: TypeAlias = XLogData | Keepalive


def decode_frame(data: bytes | memoryview) -> Frame:
    """Read one CopyData message that the server sent; the payload is copied out of a memoryview."""
    tag = bytes(data[:1])
    if tag == b"w" and len(data) >= _XLOG_DATA.size:
        _, start, end, sent_at = _XLOG_DATA.unpack_from(data)
        return XLogData(start, end, sent_at, bytes(data[_XLOG_DATA.size :]))
    if tag == b"k" and len(data) == _KEEPALIVE.size:
        _, wal_end, sent_at, reply = _KEEPALIVE.unpack(data)
        return Keepalive(wal_end, sent_at, bool(reply))
    raise ProtocolError(
        f"not a replication frame: tag {tag!r}, {len(data)} bytes",
        remedy="Check that the peer is a PostgreSQL server that has been told START_REPLICATION.",
    )


def encode_status(status: StandbyStatus) -> bytes:
    """The `r` frame for a status update."""
    return _STATUS.pack(
        b"r", status.written, status.flushed, status.applied, status.sent_at, int(status.reply_requested)
    )
