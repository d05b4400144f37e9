"""Messages -> whole transactions, in commit order.

The server sends a transaction in one of three ways: whole, after its commit (Begin ... Commit); in blocks while it
is still open (Stream Start ... Stream Stop, then Stream Commit or Stream Abort); or prepared first and decided
later. Only when a transaction's fate is known does it come out of here, with its changes numbered from 0: position
`(commit_lsn, ordinal)` is the identity of a change and is the same whichever way it was sent.

The assembler keeps open transactions in memory. It is the reference for readers that keep them on disk.

Specification: PostgreSQL manual, Frontend/Backend Protocol, "Logical Streaming Replication Protocol".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headgate.model import ProtocolError
from headgate.wire.pgoutput.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Prepare,
    Relation,
    RollbackPrepared,
    Row,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)

__all__ = ["Assembler", "Body", "Change", "Transaction"]

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


@dataclass(slots=True)
class _Open:
    """A transaction whose end has not been seen, and the table shapes that only it knows so far."""

    xid: int
    changes: list[tuple[int | None, int, Relation | None, Body]] = field(default_factory=list)
    relations: dict[int, Relation] = field(default_factory=dict)
    origin: str | None = None


class Assembler:
    """Feed it every message of one connection with its LSN; it returns a transaction whenever one is complete."""

    def __init__(self) -> None:
        self.relations: dict[int, Relation] = {}
        self.types: dict[int, Type] = {}
        self._begun: Begin | BeginPrepare | None = None
        self._current: _Open | None = None
        self._streamed: dict[int, _Open] = {}
        self._prepared: dict[tuple[int, str], _Open] = {}
        self._handlers: dict[type[Message], Callable[[Any, int], Transaction | None]] = {
            Begin: self._begin,
            BeginPrepare: self._begin,
            Commit: self._commit,
            Prepare: self._prepare,
            CommitPrepared: self._commit_prepared,
            RollbackPrepared: self._rollback_prepared,
            StreamStart: self._stream_start,
            StreamStop: self._stream_stop,
            StreamCommit: self._stream_commit,
            StreamAbort: self._stream_abort,
            StreamPrepare: self._stream_prepare,
            Origin: self._origin,
            Relation: self._relation,
            Type: self._type,
            Insert: self._row_change,
            Update: self._row_change,
            Delete: self._row_change,
            Truncate: self._truncate,
            LogicalMessage: self._message,
        }

    def feed(self, message: Message, lsn: int) -> Transaction | None:
        """Take the next message; `lsn` is the start LSN of the frame it came in."""
        return self._handlers[type(message)](message, lsn)

    @property
    def open_xids(self) -> frozenset[int]:
        """Transactions that are held back: streamed or prepared, and not decided yet."""
        return frozenset(self._streamed) | {xid for xid, _ in self._prepared}

    # Whole transactions, and prepared ones

    def _begin(self, message: Begin | BeginPrepare, _lsn: int) -> None:
        if self._current is not None:
            raise _broken("a transaction begins inside another one")
        self._begun = message
        # A whole transaction tells table shapes to everybody: the server will not repeat them for the next one.
        self._current = _Open(message.xid, relations=self.relations)

    def _end(self, begun_as: type[Begin | BeginPrepare], lsn: int) -> _Open:
        begun, current = self._begun, self._current
        if not isinstance(begun, begun_as) or current is None:
            raise _broken("a transaction ends that did not begin")
        if lsn != (begun.final_lsn if isinstance(begun, Begin) else begun.prepare_lsn):
            raise _broken("a transaction ends at another LSN than it announced")
        self._begun = self._current = None
        return current

    def _commit(self, message: Commit, _lsn: int) -> Transaction:
        return _complete(self._end(Begin, message.commit_lsn), message)

    def _prepare(self, message: Prepare, _lsn: int) -> None:
        self._prepared[message.xid, message.gid] = self._end(BeginPrepare, message.prepare_lsn)

    def _commit_prepared(self, message: CommitPrepared, _lsn: int) -> Transaction:
        transaction = self._prepared.pop((message.xid, message.gid), None)
        if transaction is None:
            # It was prepared before this connection's start: the caller confirmed the Prepare too early.
            raise _broken("a prepared transaction commits whose rows were never seen")
        self.relations.update(transaction.relations)
        return _complete(transaction, message)

    def _rollback_prepared(self, message: RollbackPrepared, _lsn: int) -> None:
        # Unknown is fine: a PREPARE from before the slot existed is not sent, its rollback is.
        self._prepared.pop((message.xid, message.gid), None)

    # Streamed transactions

    def _stream_start(self, message: StreamStart, _lsn: int) -> None:
        if self._current is not None or message.first_segment == (message.xid in self._streamed):
            raise _broken("a streamed block starts out of turn")
        self._current = self._streamed.setdefault(message.xid, _Open(message.xid))

    def _stream_stop(self, _message: StreamStop, _lsn: int) -> None:
        if self._current is None or self._begun is not None:
            raise _broken("a streamed block stops that did not start")
        self._current = None

    def _take_streamed(self, xid: int) -> _Open:
        if self._current is not None or xid not in self._streamed:
            raise _broken("a streamed transaction ends that is not open")
        return self._streamed.pop(xid)

    def _stream_commit(self, message: StreamCommit, _lsn: int) -> Transaction:
        transaction = self._take_streamed(message.xid)
        self.relations.update(transaction.relations)
        return _complete(transaction, message)

    def _stream_prepare(self, message: StreamPrepare, _lsn: int) -> None:
        self._prepared[message.xid, message.gid] = self._take_streamed(message.xid)

    def _stream_abort(self, message: StreamAbort, _lsn: int) -> None:
        if message.xid == message.subxid:
            self._streamed.pop(message.xid, None)
        elif transaction := self._streamed.get(message.xid):
            # Rows go, table shapes stay: the server counts a shape as sent even if its subtransaction rolls back.
            transaction.changes = [change for change in transaction.changes if change[0] != message.subxid]

    # Contents

    def _open(self) -> _Open:
        if self._current is None:
            raise _broken("a change outside any transaction")
        return self._current

    def _origin(self, message: Origin, _lsn: int) -> None:
        self._open().origin = message.name

    def _relation(self, message: Relation, _lsn: int) -> None:
        self._open().relations[message.relation_id] = message

    def _type(self, message: Type, _lsn: int) -> None:
        self.types[message.type_id] = message

    def _shape(self, relation_id: int) -> Relation:
        relation = self._open().relations.get(relation_id) or self.relations.get(relation_id)
        if relation is None:
            raise _broken(f"a change to relation {relation_id}, which was never described")
        return relation

    def _row_change(self, message: Insert | Update | Delete, lsn: int) -> None:
        relation = self._shape(message.relation_id)
        if any(len(row) != len(relation.columns) for row in _rows(message)):
            raise _broken(f"a row with another number of columns than relation {message.relation_id} has")
        self._open().changes.append((message.xid, lsn, relation, message))

    def _truncate(self, message: Truncate, lsn: int) -> None:
        shapes = map(self._shape, message.relation_ids)
        self._open().changes.extend((message.xid, lsn, relation, message) for relation in shapes)

    def _message(self, message: LogicalMessage, lsn: int) -> Transaction | None:
        if message.transactional:
            self._open().changes.append((message.xid, lsn, None, message))
            return None
        if self._current is not None or message.lsn == 0:
            raise _broken("a non-transactional message inside a transaction, or without an LSN")
        return Transaction(message.lsn - 1, message.lsn, None, None, (Change(0, lsn, None, message),))


def _rows(message: Insert | Update | Delete) -> Iterable[Row]:
    if not isinstance(message, Delete):
        yield message.new
    if not isinstance(message, Insert) and message.old:
        yield message.old.row


def _complete(transaction: _Open, end: Commit | StreamCommit | CommitPrepared) -> Transaction:
    changes = tuple(
        Change(ordinal, lsn, relation, body) for ordinal, (_, lsn, relation, body) in enumerate(transaction.changes)
    )
    return Transaction(end.commit_lsn, end.end_lsn, end.commit_time, transaction.xid, changes, transaction.origin)


def _broken(what: str) -> ProtocolError:
    return ProtocolError(
        what, where="pgoutput", remedy="Restart the replication connection; report it if it comes back."
    )
