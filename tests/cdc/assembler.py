"""Messages -> whole transactions, in commit order.

The server sends a transaction in one of two ways: whole, after its commit (Begin ... Commit); or in blocks while it is
still open (Stream Start ... Stream Stop, then Stream Commit or Stream Abort). Only when a transaction's fate is known
does it come out of here, with its changes numbered from 0.

The assembler keeps open transactions in memory. It is the reference for the reader, which keeps them on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headgate.model import ProtocolError
from headgate.wire.pgoutput import (
    Begin,
    Body,
    Change,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Transaction,
    Truncate,
    Type,
    Update,
    lone_message,
)

__all__ = ["Assembler"]


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
        self._begun: Begin | None = None
        self._current: _Open | None = None
        self._streamed: dict[int, _Open] = {}
        self._handlers: dict[type[Message], Callable[[Any, int], Transaction | None]] = {
            Begin: self._begin,
            Commit: self._commit,
            StreamStart: self._stream_start,
            StreamStop: self._stream_stop,
            StreamCommit: self._stream_commit,
            StreamAbort: self._stream_abort,
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
        """Transactions that are held back: streamed, and not decided yet."""
        return frozenset(self._streamed)

    # Whole transactions

    def _begin(self, message: Begin, _lsn: int) -> None:
        if self._current is not None:
            raise _broken("a transaction begins inside another one")
        self._begun = message
        # A whole transaction tells table shapes to everybody: the server will not repeat them for the next one.
        self._current = _Open(message.xid, relations=self.relations)

    def _commit(self, message: Commit, _lsn: int) -> Transaction:
        begun, current = self._begun, self._current
        if begun is None or current is None:
            raise _broken("a transaction ends that did not begin")
        if message.commit_lsn != begun.final_lsn:
            raise _broken("a transaction ends at another LSN than it announced")
        self._begun = self._current = None
        return _complete(current, message)

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
        return lone_message(message, lsn)


def _rows(message: Insert | Update | Delete) -> Iterable[Row]:
    if not isinstance(message, Delete):
        yield message.new
    if not isinstance(message, Insert) and message.old:
        yield message.old.row


def _complete(transaction: _Open, end: Commit | StreamCommit) -> Transaction:
    changes = tuple(
        Change(ordinal, lsn, relation, body) for ordinal, (_, lsn, relation, body) in enumerate(transaction.changes)
    )
    return Transaction(end.commit_lsn, end.end_lsn, end.commit_time, transaction.xid, changes, transaction.origin)


def _broken(what: str) -> ProtocolError:
    return ProtocolError(
        what, where="pgoutput", remedy="Restart the replication connection; report it if it comes back."
    )
