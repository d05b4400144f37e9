"""PostgreSQL's logical replication, sans-IO: frames, pgoutput messages of protocols 1 to 4, whole transactions.

    decode_frame(copy_data)             -> XLogData | Keepalive
    Decoder(protocol).decode(payload)   -> a message (Begin, Insert, ...)
    Assembler().feed(message, lsn)      -> a Transaction whenever one is complete, in commit order
    encode_status(StandbyStatus(...))   -> what the client answers

This is the readable, exact implementation; faster ones are checked against it.

Specification: PostgreSQL manual, Frontend/Backend Protocol, "Logical Replication Message Formats".
"""

from __future__ import annotations

from headgate.wire.pgoutput.assembler import Assembler, Body, Change, Transaction
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
    BeginPrepare,
    BinaryValue,
    Column,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    OldRow,
    Origin,
    Prepare,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    RollbackPrepared,
    Row,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Unchanged,
    Update,
)

__all__ = [
    "PG_EPOCH_UNIX_US",
    "PROTOCOLS",
    "UNCHANGED",
    "Assembler",
    "Begin",
    "BeginPrepare",
    "BinaryValue",
    "Body",
    "Change",
    "Column",
    "Commit",
    "CommitPrepared",
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
    "Prepare",
    "Relation",
    "RelationColumn",
    "ReplicaIdentity",
    "RollbackPrepared",
    "Row",
    "StandbyStatus",
    "StreamAbort",
    "StreamCommit",
    "StreamPrepare",
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
    "parse_lsn",
]
