"""PostgreSQL's logical replication, sans-IO: frames, messages of pgoutput, transactions.

Protocols 1 to 4, but no prepared transactions, which headgate does not ask for:

    decode_frame(copy_data)             -> XLogData | Keepalive
    Decoder(protocol).decode(payload)   -> a message (Begin, Insert, ...)
    encode_status(StandbyStatus(...))   -> what the client answers

This is the readable, exact implementation; faster ones are checked against it.

Specification: PostgreSQL manual, Frontend/Backend Protocol, "Logical Replication Message Formats".
"""

from __future__ import annotations

from headgate.wire.pgoutput.decode import PROTOCOLS, Decoder
from headgate.wire.pgoutput.encode import encode_message
from headgate.wire.pgoutput.frames import (
    PG_EPOCH_UNIX_US,
    Frame,
    Keepalive,
    StandbyStatus,
    XLogData,
    decode_frame,
    encode_status,
)
from headgate.wire.pgoutput.lsn import format_lsn, parse_lsn
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
    Unchanged,
    Update,
)
from headgate.wire.pgoutput.transactions import Body, Change, Transaction, lone_message

__all__ = [
    "PG_EPOCH_UNIX_US",
    "PROTOCOLS",
    "UNCHANGED",
    "Begin",
    "BinaryValue",
    "Body",
    "Change",
    "Column",
    "Commit",
    "Decoder",
    "Delete",
    "Frame",
    "Insert",
    "Keepalive",
    "LogicalMessage",
    "Message",
    "OldKind",
    "OldRow",
    "Origin",
    "Relation",
    "RelationColumn",
    "ReplicaIdentity",
    "Row",
    "StandbyStatus",
    "StreamAbort",
    "StreamCommit",
    "StreamStart",
    "StreamStop",
    "Transaction",
    "Truncate",
    "Type",
    "Unchanged",
    "Update",
    "XLogData",
    "decode_frame",
    "encode_message",
    "encode_status",
    "format_lsn",
    "lone_message",
    "parse_lsn",
]
