"""Committed transactions and their changes, as the reader puts them together from pgoutput messages.

A change is identified by its position, `(commit_lsn, ordinal)`: the LSN of its transaction's commit, and its number in
the transaction. The position is the same whether the server sent the transaction whole or streamed it in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headgate.wire.pgoutput.messages import Delete, Insert, LogicalMessage, Relation, Truncate, Update

__all__ = ["Body", "Change", "Transaction", "lone_message"]

Body: TypeAlias = Insert | Update | Delete | Truncate | LogicalMessage


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a transaction. A TRUNCATE of several tables is one change per table.

    `relation` is the table's shape at that moment, None for a logical message.
    """

    ordinal: int
    lsn: int
    relation: Relation | None
    body: Body


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction. `end_lsn` is what may be confirmed to the server once it is safe.

    A non-transactional logical message is a transaction of its own without xid or time. Its LSN is the end of its WAL
    record, which may be the very place where the next transaction's commit record starts; so its `commit_lsn` is the
    last byte of its own record, where no record can start (records are aligned), and positions stay unique.
    """

    commit_lsn: int
    end_lsn: int
    commit_time: int | None
    xid: int | None
    changes: tuple[Change, ...]
    origin: str | None = None
    count: int | None = None  # of all its changes, if these are not all


def lone_message(message: LogicalMessage, lsn: int) -> Transaction:
    """A non-transactional message as the transaction that it is."""
    return Transaction(message.lsn - 1, message.lsn, None, None, (Change(0, lsn, None, message),))
