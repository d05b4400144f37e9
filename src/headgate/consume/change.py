"""What a consumer gives out: changes of rows, and the steps that they come in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from headgate.consume.schema import Schema
from headgate.consume.tables import TableName

__all__ = [
    "DELETE",
    "INSERT",
    "MESSAGE",
    "READ",
    "SCHEMA",
    "SNAPSHOT_BEGIN",
    "SNAPSHOT_END",
    "TRUNCATE",
    "UPDATE",
    "CaughtUp",
    "Change",
    "Changes",
    "SnapshotBegin",
    "SnapshotEnd",
    "SnapshotInfo",
    "SnapshotRows",
    "Step",
    "Transaction",
]

INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE, SCHEMA = "INSERT", "UPDATE", "DELETE", "TRUNCATE", "MESSAGE", "SCHEMA"
READ, SNAPSHOT_BEGIN, SNAPSHOT_END = "READ", "SNAPSHOT_BEGIN", "SNAPSHOT_END"


class Change(msgspec.Struct, kw_only=True):
    """One change event, decoded from its message. The consumer adds `sequence`, of the stream, and `key_columns`."""

    schema: str | None
    table: str | None
    operation: str
    commit_lsn: str
    msg_id: str
    data: dict[str, Any]
    old: dict[str, Any] | None = None
    schema_version: str | None = None
    commit_time: str | None = None
    xid: int | None = None
    event_count: int | None = None
    ordinal: int | None = None
    relation_id: int | None = None
    sequence: int = 0
    key_columns: tuple[str, ...] = ()

    @property
    def position(self) -> str:
        """Return the message id: unique, and the same in every replay."""
        return self.msg_id

    @property
    def key(self) -> dict[str, Any]:
        """Return the row's key after the change (of a DELETE: before it); empty for a table without a key."""
        return {name: self.data[name] for name in self.key_columns if name in self.data}

    @property
    def is_last(self) -> bool:
        """Return whether this is the last change of its transaction."""
        return self.event_count is not None and self.ordinal == self.event_count - 1


class SnapshotInfo(msgspec.Struct, frozen=True):
    """The message that ends a snapshot, with all that is needed to check it and to join the stream behind it."""

    snapshot_id: str
    operation: str
    schema: str = ""
    table: str = ""
    method: str = "export"
    lsn: str = "0/0"
    cdc_stream: str = ""
    cdc_sequence: int = 0
    stream_created: str = ""
    xmin: int | None = None
    xmax: int | None = None
    xip: list[int] | None = None
    row_count: int = 0
    batch_count: int = 0
    checksum: str = ""
    schema_version: str = ""
    relation_id: int = 0
    timestamp: float = 0.0
    replaces: list[str] | None = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class SnapshotBegin:
    """Snapshot of a whole table begins. Replace what you have of the table when `SnapshotEnd` comes."""

    schema: Schema
    info: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Some rows of the snapshot, as maps of values, or in the form of the consumer's decoder."""

    schema: Schema
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """Snapshot complete; `Consumer.position()` includes this table from here on."""

    schema: Schema
    info: SnapshotInfo


@dataclass(slots=True)
class Changes:
    """Changes of one transaction: all of them, or a part of a large one. `position()` includes it once it `ends`."""

    changes: list[Change]
    ends: bool


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All that was in the stream has been yielded; more may come."""


@dataclass(frozen=True, slots=True)
class TableGone:
    """A table that was read is published no more: dropped, renamed, or taken out of the publication."""

    table: TableName


Step: TypeAlias = SnapshotBegin | SnapshotRows | SnapshotEnd | Changes | CaughtUp | TableGone


@dataclass(slots=True)
class Transaction:
    """All changes of a transaction; or some rows of a snapshot, which have no transaction and no `xid`."""

    commit_lsn: str
    xid: int | None
    commit_time: str | None
    changes: list[Change] = field(default_factory=list)
