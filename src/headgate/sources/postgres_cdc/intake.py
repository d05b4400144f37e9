"""Sorts the messages of the stream into whole transactions and appends them to the spool.

It looks at a message's kind and ids only; decoding the rows is Spark's work, later and in bulk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from headgate.kernels.frames import COUNT_AT, begin_frame, count_bytes, events_in
from headgate.model import ProtocolError
from headgate.sources.postgres_cdc.knowledge import DDL_PREFIX, Knowledge
from headgate.sources.postgres_cdc.spool import SpoolWriter, Transaction
from headgate.sources.postgres_cdc.streamed import StreamedTransactions
from headgate.wire.envelope import HEARTBEAT_PREFIX
from headgate.wire.pgoutput import Decoder, Relation

__all__ = ["Intake"]

_LENGTH = struct.Struct("<I")
_XID = struct.Struct("!I")
_TWO_XIDS = struct.Struct("!II")
_BEGIN = struct.Struct("!cQqI")  # kind, commit LSN, time, xid
_MESSAGE_HEAD = 10  # kind, flags, LSN; then the prefix
_COMMIT = struct.Struct("!cBQQq")  # kind, flags, commit LSN, end LSN, time
_STREAM_COMMIT = struct.Struct("!cIBQQq")  # kind, xid, flags, commit LSN, end LSN, time

_INSERT = ord("I")
_RELATION = ord("R")
_MESSAGE = ord("M")
_ROWS = frozenset(b"IUD")
_TRUNCATE = ord("T")
_TRUNCATE_HEAD = 6  # kind, count, options; then the relations
_HEARTBEAT = HEARTBEAT_PREFIX.encode() + b"\0"
_TELLING = frozenset({_RELATION, _MESSAGE})


class Intake:
    """Takes pgoutput messages in the order of the stream."""

    def __init__(
        self,
        spool: SpoolWriter,
        knowledge: Knowledge | None = None,
        on_transaction: Callable[[Transaction], None] = lambda _: None,
        heartbeat_slot: str = "",
    ) -> None:
        self._spool = spool
        self._heartbeat = heartbeat_slot.encode()
        self._on_transaction = on_transaction
        self._knowledge = knowledge
        if knowledge is not None:
            spool.before_flush = knowledge.sync
        self._streamed = StreamedTransactions(spool.directory)
        self._body: bytearray | None = None  # the transaction being received, if one is
        self._changes = 0
        self._seen = _Seen()
        self._stream_xid: int | None = None  # inside a block of a streamed transaction
        self.transactions_total = 0
        self.changes_total = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is half received."""
        return self._body is None and self._stream_xid is None

    def look(self) -> None:
        """Now and then: what of the catalog has the stream not told?"""
        if self._knowledge is not None:
            self._knowledge.look()

    def take(self, message: memoryview | bytes, lsn: int) -> None:
        """One pgoutput message, at its LSN."""
        kind = message[0]
        if self._stream_xid is None and self._body is not None and kind != 67:  # not a Commit
            self._add(kind, message)
            return
        try:
            self._control(kind, message, lsn)
        except struct.error:
            raise ProtocolError(
                f"a {chr(kind)!r} message of {len(message)} bytes is cut off", where="pgoutput"
            ) from None

    def _add(self, kind: int, message: memoryview | bytes) -> None:
        body = self._body
        assert body is not None
        if kind == _MESSAGE and self._is_foreign(bytes(message)):
            return
        body += _LENGTH.pack(len(message))
        body += message
        if kind == _INSERT:
            self._changes += 1
        elif kind != _RELATION:
            self._changes += events_in(message)
        if self._seen.pending or kind in _TELLING:
            self._seen.take(kind, message)

    def _is_foreign(self, message: bytes) -> bool:
        """Whether a message is a heartbeat of another slot: every reader of the database gets it."""
        content = _MESSAGE_HEAD + len(_HEARTBEAT) + _XID.size
        return message.startswith(_HEARTBEAT, _MESSAGE_HEAD) and message[content:] != (self._heartbeat or None)

    def _control(self, kind: int, message: memoryview | bytes, lsn: int) -> None:
        match chr(kind):
            case "B":
                self._begin(message)
            case "C":
                _, _, commit_lsn, end_lsn, time_us = _COMMIT.unpack_from(message)
                self._commit(commit_lsn, end_lsn, time_us)
            case "S":
                (self._stream_xid,) = _XID.unpack_from(message, 1)
            case "E":
                self._stream_xid = None
            case "c":
                self._commit_streamed(message)
            case "A":
                self._streamed.abort(*_TWO_XIDS.unpack_from(message, 1))
            case _ if self._stream_xid is not None:
                self._add_streamed(message)
            case "M":
                self._lone_message(message, lsn)
            case "R" | "Y" | "O":
                raise ProtocolError(f"a {chr(kind)!r} message outside a transaction", where="pgoutput")
            case _:
                raise ProtocolError(f"an unknown message {chr(kind)!r}", where="pgoutput")

    def _begin(self, message: memoryview | bytes) -> None:
        _, commit_lsn, time_us, self._xid = _BEGIN.unpack_from(message)
        self._open(begin_frame(commit_lsn, time_us, self._xid, 0))

    def _open(self, begin: bytes) -> None:
        self._body = bytearray(_LENGTH.pack(len(begin)) + begin)
        self._changes = 0
        self._seen = _Seen()

    def _commit(self, commit_lsn: int, end_lsn: int, time_us: int) -> None:
        if self._body is None:
            raise ProtocolError("a Commit without a Begin", where="pgoutput")
        self._finish(Transaction(end_lsn, commit_lsn, time_us, self._xid, self._changes), [self._body])

    def _finish(self, transaction: Transaction, chunks: list[bytearray]) -> None:
        """Relations are on disk before the transaction becomes visible; an empty transaction is no news."""
        head = self._head(self._seen, transaction)
        if transaction.changes:
            count = len(_LENGTH.pack(0)) + COUNT_AT
            chunks[0][count : count + 4] = count_bytes(transaction.changes)
            self._append(transaction, [head, *chunks])
        self._body = None

    def _append(self, transaction: Transaction, chunks: Iterable[bytes | bytearray]) -> None:
        self._on_transaction(transaction)
        self._spool.append(transaction, chunks)
        self.transactions_total += 1
        self.changes_total += transaction.changes

    def _head(self, seen: _Seen, transaction: Transaction) -> bytes:
        """Learn what the transaction shows of tables; returns what must be said of them before it."""
        for message in seen.relations:
            self._spool.add_relation(transaction.end_lsn, message)
        if self._knowledge is None or not transaction.changes:
            return b""
        shown = map(_decoded, seen.relations)
        return self._knowledge.head(transaction, [each for each in shown if each.relation_id in seen.used], seen.ddl)

    def _add_streamed(self, message: memoryview | bytes) -> None:
        """Inside a streamed block every message carries its subtransaction behind its kind; the spool wants it off."""
        assert self._stream_xid is not None
        (subxid,) = _XID.unpack_from(message, 1)
        self._streamed.add(self._stream_xid, subxid, bytes(message[:1]) + bytes(message[5:]))

    def _commit_streamed(self, message: memoryview | bytes) -> None:
        _, xid, _, commit_lsn, end_lsn, time_us = _STREAM_COMMIT.unpack_from(message)
        changes, seen = self._count(xid)
        transaction = Transaction(end_lsn, commit_lsn, time_us, xid, changes)
        head = self._head(seen, transaction)
        if changes:
            begin = begin_frame(commit_lsn, time_us, xid, changes)
            self._append(transaction, chain([head], self._framed(xid, begin)))
        self._streamed.discard(xid)

    def _count(self, xid: int) -> tuple[int, _Seen]:
        """Events, and what is seen of tables."""
        changes, seen = 0, _Seen()
        for message in self._streamed.messages(xid):
            changes += events_in(message)
            if seen.pending or message[0] in _TELLING:
                seen.take(message[0], message)
        return changes, seen

    def _framed(self, xid: int, begin: bytes) -> Iterator[bytes]:
        yield _LENGTH.pack(len(begin)) + begin
        block = bytearray()
        for message in self._streamed.messages(xid):
            block += _LENGTH.pack(len(message))
            block += message
            if len(block) > 1 << 18:
                yield bytes(block)
                block.clear()
        yield bytes(block)

    def _lone_message(self, message: memoryview | bytes, lsn: int) -> None:
        """`pg_logical_emit_message(false, ...)` belongs to no transaction: it becomes one of its own.

        Its LSN is where its record begins. The commit before it may end there, and the next commit may begin there,
        so it ends one further, and counts as committed one before: no record begins at either.
        """
        self._xid = 0
        self._open(begin_frame(lsn - 1, 0, 0, 0))
        self._add(_MESSAGE, message)
        assert self._body is not None
        self._finish(Transaction(lsn + 1, lsn - 1, 0, 0, self._changes), [self._body])

    def reset(self) -> None:
        """Forget what was half received when the connection broke: PostgreSQL sends it again from its begin."""
        self._body = None
        self._stream_xid = None
        self._streamed.discard_all()


class _Seen:
    """What a transaction shows of tables: their Relation messages, and notes of the trigger that reports DDL.

    With `publish_via_partition_root` PostgreSQL also describes the leaf that a row is in, and then sends the row as one
    of the root. So a relation counts once a change right behind its description names it.
    """

    def __init__(self) -> None:
        self.relations: list[bytes] = []
        self.used: set[int] = set()
        self.pending: set[int] = set()  # described, and no change came yet
        self.ddl: list[bytes] = []

    def take(self, kind: int, message: memoryview | bytes) -> None:
        if kind == _RELATION:
            (relation_id,) = _XID.unpack_from(message, 1)
            self.relations.append(bytes(message))
            self.pending.add(relation_id)
        elif kind == _MESSAGE:
            self._take_note(bytes(message))
        elif kind in _ROWS:
            self.used |= self.pending.intersection(_XID.unpack_from(message, 1))
            self.pending.clear()
        elif kind == _TRUNCATE:
            (count,) = _XID.unpack_from(message, 1)
            self.used |= self.pending.intersection(struct.unpack_from(f"!{count}I", message, _TRUNCATE_HEAD))
            self.pending.clear()

    def _take_note(self, message: bytes) -> None:
        prefix = DDL_PREFIX.encode() + b"\0"
        if message.startswith(prefix, _MESSAGE_HEAD):
            self.ddl.append(message[_MESSAGE_HEAD + len(prefix) + _XID.size :])


def _decoded(message: bytes) -> Relation:
    relation = Decoder().decode(message)
    assert isinstance(relation, Relation)
    return relation
