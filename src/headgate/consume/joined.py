"""A table that is joined to the stream, and the transaction that is being read."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.consume.bookmark import TableMark
from headgate.consume.change import Change
from headgate.consume.rules import Rule
from headgate.consume.schema import Schema
from headgate.consume.tables import TableName
from headgate.model.position import origin_of

__all__ = ["Joined", "OpenTransaction", "Recent", "TransactionKey"]

_REMEMBERED = 100_000


class TransactionKey(NamedTuple):
    """What the events of one transaction share."""

    commit_lsn: str
    xid: int | None
    origin: str

    @classmethod
    def of(cls, change: Change) -> TransactionKey:
        return cls(change.commit_lsn, change.xid, origin_of(change.msg_id))

    def has(self, change: Change) -> bool:
        """Whether it is the key of a change."""
        commit_lsn, xid, origin = self
        return change.commit_lsn == commit_lsn and change.xid == xid and change.msg_id.startswith(f"{origin}-")


@dataclass(slots=True)
class Joined:
    """Nothing of the table up to `after` is wanted, and nothing that the rule contains.

    No message of it up to `whole` is missing: all that there were have been read, or are in the snapshot.
    """

    schema: Schema
    after: int
    snapshot_id: str
    rule: Rule | None
    whole: int = -1
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.key = self.schema.row_key
        if self.whole < 0:
            self.whole = self.after

    def reshape(self, schema: Schema) -> None:
        self.schema, self.key = schema, schema.row_key

    def whole_at(self, sequence: int) -> int:
        """What `whole` was when everything up to `sequence` had been read: what came later is read again."""
        return min(self.whole, max(sequence, self.after))

    def mark(self, sequence: int) -> TableMark:
        name, after = self.schema.name, self.after if self.after > sequence else 0
        whole = self.whole_at(sequence)
        version, relation_id = self.schema.version, self.schema.relation_id
        return TableMark(name.schema, name.table, version, self.snapshot_id, after, self.rule, whole, relation_id)


@dataclass(slots=True)
class OpenTransaction:
    """What was read of it so far. `place` is that of its last message: sequence and message id."""

    key: TransactionKey
    lsn: int
    changes: list[Change] = field(default_factory=list)
    touched: set[TableName] = field(default_factory=set)
    place: tuple[int, str | None] = (0, None)
    is_parted: bool = False  # some of it was given out
    is_counted: bool = True  # its events say how many they are

    def leave_out(self, table: TableName) -> None:
        self.changes = [each for each in self.changes if (each.schema, each.table) != table]
        self.touched.discard(table)


class Recent:
    """Message ids that were read lately."""

    def __init__(self) -> None:
        self._order: deque[str] = deque()
        self._ids: set[str] = set()

    def add(self, msg_id: str) -> None:
        self._order.append(msg_id)
        self._ids.add(msg_id)
        if len(self._order) > _REMEMBERED:
            self._ids.discard(self._order.popleft())

    def __contains__(self, msg_id: str) -> bool:
        return msg_id in self._ids
