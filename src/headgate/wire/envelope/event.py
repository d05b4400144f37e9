"""One event: a change of a transaction, or a row of a snapshot, before it becomes bytes.

    data  the row the event is about: after an INSERT or UPDATE, as read by a snapshot (READ), or what the server
          still told of it when it was deleted (its key, or the whole row under REPLICA IDENTITY FULL).
          Every event about a row therefore has the row's key in `data`.
    old   only for an UPDATE, and only if the server sent it: the old key if the key changed, the whole old row under
          REPLICA IDENTITY FULL.

A column that the server did not send is absent from both: an unchanged out-of-line value in `data`, everything but
the key in an old key.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from headgate.model import Position, ProtocolError
from headgate.wire.pgoutput import (
    UNCHANGED,
    Change,
    Delete,
    Insert,
    LogicalMessage,
    OldKind,
    OldRow,
    Relation,
    Row,
    Transaction,
    Truncate,
    Update,
)

__all__ = ["Event", "Operation", "events", "iso_time", "message_id"]

_PG_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Operation(enum.StrEnum):
    """What happened, as it stands in the envelope."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"
    MESSAGE = "MESSAGE"
    READ = "READ"


@dataclass(frozen=True, slots=True)
class Event:
    """`position` is the event's identity, `(commit_lsn, ordinal)`; `lsn` the place of its own WAL record.

    Rows stand beside `relation.columns`, with UNCHANGED for what is absent. TRUNCATE and MESSAGE have no row but
    `detail`. `commit_time` counts microseconds since 2000-01-01 UTC.
    """

    operation: Operation
    position: Position
    lsn: int
    commit_time: int | None
    xid: int | None
    relation: Relation | None
    data: Row = ()
    old: Row | None = None
    detail: Mapping[str, bool | str | bytes] | None = None
    count: int | None = None  # events of the transaction


def events(transaction: Transaction) -> Iterator[Event]:
    """The events of a transaction, in order."""
    for change in transaction.changes:
        yield _event(transaction, change)


def message_id(origin: int | str, position: Position) -> str:
    """`{origin}-{timeline}{commit_lsn}-{ordinal}`: the same change has the same id however often it is replayed."""
    return f"{origin}-{position}"


@lru_cache(maxsize=64)  # all events of a transaction have the same time
def iso_time(pg_time: int) -> str:
    """A server clock as ISO 8601, always with six decimals: `2025-12-12T12:00:34.338547Z`."""
    try:
        moment = _PG_EPOCH + timedelta(microseconds=pg_time)
    except OverflowError:
        raise ProtocolError("a commit time lies outside the calendar") from None
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _event(transaction: Transaction, change: Change) -> Event:
    body, relation = change.body, change.relation
    position = Position(transaction.commit_lsn, change.ordinal)
    head = (position, change.lsn, transaction.commit_time, transaction.xid, relation)
    count = len(transaction.changes) if transaction.count is None else transaction.count
    if isinstance(body, LogicalMessage):
        return Event(Operation.MESSAGE, *head, detail=_message_detail(body), count=count)
    if isinstance(body, Truncate):
        return Event(Operation.TRUNCATE, *head, detail=_truncate_detail(body), count=count)
    if relation is None:
        raise ProtocolError("a change without its relation", where="pgoutput")
    if isinstance(body, Insert):
        return Event(Operation.INSERT, *head, data=body.new, count=count)
    if isinstance(body, Delete):
        return Event(Operation.DELETE, *head, data=_sent(relation, body.old), count=count)
    return Event(Operation.UPDATE, *head, data=body.new, old=_update_old(relation, body), count=count)


def _update_old(relation: Relation, update: Update) -> Row | None:
    return None if update.old is None else _sent(relation, update.old)


def _sent(relation: Relation, old: OldRow) -> Row:
    """An old key has NULL in place of every other column, which says nothing about their values."""
    if old.kind is OldKind.ROW:
        return old.row
    pairs = zip(relation.columns, old.row, strict=True)
    return tuple(value if column.is_key else UNCHANGED for column, value in pairs)


def _truncate_detail(body: Truncate) -> dict[str, bool | str | bytes]:
    return {"cascade": body.cascade, "restart_identity": body.restart_identity}


def _message_detail(body: LogicalMessage) -> dict[str, bool | str | bytes]:
    return {"prefix": body.prefix, "content": body.content, "transactional": body.transactional}
