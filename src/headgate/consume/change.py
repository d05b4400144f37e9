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
    """One event. The bytes of a message become this in one go; the last two fields are the consumer's own."""

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
        """Its message id: unique, and the same in every replay."""
        return self.msg_id

    @property
    def key(self) -> dict[str, Any]:
        """The row's key after the change; of a DELETE, the key it had. Empty for a table without one."""
        return {name: self.data[name] for name in self.key_columns if name in self.data}

    @property
    def is_last(self) -> bool:
        """Whether its transaction ends with it."""
        return self.event_count is not None and self.ordinal == self.event_count - 1


class SnapshotInfo(msgspec.Struct, frozen=True):
    """The message that ends a snapshot."""

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
    """Rows of a whole table follow. Whatever you have of the table, forget it when they are all there."""

    schema: Schema
    info: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Some of them, as maps of values, or in the form of the consumer's decoder."""

    schema: Schema
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """All rows were there. The position has the table from here on."""

    schema: Schema
    info: SnapshotInfo


@dataclass(slots=True)
class Changes:
    """Changes of one transaction: all of them, or a part of a large one. The position counts it once it `ends`."""

    changes: list[Change]
    ends: bool


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Nothing more is in the stream right now."""


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
