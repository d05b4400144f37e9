"""Every message of the pgoutput plugin, protocol versions 1 to 4, as plain data.

Integers are kept as the server sent them: an LSN
is an int (`lsn.format_lsn` prints it), a time is microseconds since 2000-01-01 UTC. Messages that may appear inside
a streamed block have `xid`, the (sub)transaction they belong to there, and None elsewhere.

A column of a row has three values, not two: its bytes, NULL (`None`), or `UNCHANGED`. The last one means that the
server did not send the value because it is out of line and was not modified; it is absent, never NULL.

Specification: PostgreSQL manual, Frontend/Backend Protocol, "Logical Replication Message Formats".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = [
    "UNCHANGED",
    "Begin",
    "BinaryValue",
    "Column",
    "Commit",
    "Delete",
    "Insert",
    "LogicalMessage",
    "Message",
    "OldKind",
    "OldRow",
    "Origin",
    "Relation",
    "RelationColumn",
    "ReplicaIdentity",
    "Row",
    "StreamAbort",
    "StreamCommit",
    "StreamStart",
    "StreamStop",
    "Truncate",
    "Type",
    "Unchanged",
    "Update",
]


class Unchanged(enum.Enum):
    """The type of `UNCHANGED`, an enum so that `is UNCHANGED` narrows for the type checker."""

    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged.UNCHANGED


class BinaryValue(bytes):
    """A column in binary format: what the type's send function made, not text."""


Column: TypeAlias = bytes | Literal[Unchanged.UNCHANGED] | None
Row: TypeAlias = tuple[Column, ...]


class ReplicaIdentity(enum.StrEnum):
    """What the server logs of the old row, `pg_class.relreplident` (manual, System Catalogs, "pg_class")."""

    DEFAULT = "d"  # the primary key
    NOTHING = "n"
    FULL = "f"  # the whole row
    INDEX = "i"  # the columns of a chosen unique index


class OldKind(enum.StrEnum):
    """How much of the old row the server sent."""

    KEY = "K"  # identity columns; every other column is a NULL that means nothing
    ROW = "O"  # the whole row


@dataclass(frozen=True, slots=True)
class OldRow:
    """The row before an UPDATE or DELETE, as far as it was sent."""

    kind: OldKind
    row: Row


@dataclass(frozen=True, slots=True)
class Begin:
    """`B`: a whole transaction follows."""

    final_lsn: int
    commit_time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`C`: the transaction opened by Begin is complete. `end_lsn` is what may be confirmed."""

    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class Origin:
    """`O`: the transaction was replicated from another server."""

    origin_lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One published column. `is_key` says that it belongs to the replica identity."""

    is_key: bool
    name: str
    type_id: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """`R`: a table's shape, sent before its first change and after every change of shape."""

    relation_id: int
    schema: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """`Y`: the name behind a type that is not built in. For a domain the server names its base type."""

    type_id: int
    schema: str
    name: str
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """`I`: a new row."""

    relation_id: int
    new: Row
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """`U`: a changed row. `old` is there when the identity changed or is the full row."""

    relation_id: int
    old: OldRow | None
    new: Row
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """`D`: a row that is gone."""

    relation_id: int
    old: OldRow
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """`T`: emptied tables, all in one statement."""

    relation_ids: tuple[int, ...]
    cascade: bool
    restart_identity: bool
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """`M`: what `pg_logical_emit_message` wrote. A non-transactional one stands outside any transaction."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """`S`: a block of an open transaction follows (protocol 2)."""

    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """`E`: the block ends; the transaction may go on in a later one."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """`c`: a streamed transaction has committed."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """`A`: a streamed transaction, or only its subtransaction `subxid`, has rolled back.

    The LSN and time come with protocol 4 and `streaming 'parallel'`.
    """

    xid: int
    subxid: int
    abort_lsn: int | None = None
    abort_time: int | None = None


Message: TypeAlias = (
    Begin
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)
