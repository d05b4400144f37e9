"""Transactions from messages, in every order the server may send them, and in some it may not."""

from __future__ import annotations

import pytest

from headgate.model import ProtocolError
from headgate.wire.pgoutput import (
    Begin,
    Change,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    OldRow,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Transaction,
    Truncate,
    Type,
    Update,
)
from tests.cdc.assembler import Assembler

COLUMN = RelationColumn(True, "id", 23, -1)
TABLE = Relation(1, "public", "t", ReplicaIdentity.DEFAULT, (COLUMN,))
WIDER = Relation(1, "public", "t", ReplicaIdentity.DEFAULT, (COLUMN, RelationColumn(False, "b", 25, -1)))
OTHER = Relation(2, "public", "u", ReplicaIdentity.DEFAULT, (COLUMN,))


def insert(value: bytes, xid: int | None = None) -> Insert:
    return Insert(1, (value,), xid)


def feed(assembler: Assembler, *messages: Message) -> list[Transaction]:
    """Feed messages with LSNs 100, 101, ..."""
    fed = (assembler.feed(message, 100 + number) for number, message in enumerate(messages))
    return [transaction for transaction in fed if transaction is not None]


def rows(transaction: Transaction) -> list[bytes]:
    return [bytes(c.body.new[0] or b"") for c in transaction.changes if isinstance(c.body, Insert)]  # type: ignore[arg-type]


def test_whole_transaction() -> None:
    (transaction,) = feed(
        Assembler(),
        Begin(900, 7, 55),
        Origin(1, "node"),
        TABLE,
        insert(b"1"),
        Update(1, None, (b"2",)),
        Delete(1, OldRow(OldKind.KEY, (b"2",))),
        Commit(900, 950, 7),
    )
    assert transaction == Transaction(
        900,
        950,
        7,
        55,
        (
            Change(0, 103, TABLE, insert(b"1")),
            Change(1, 104, TABLE, Update(1, None, (b"2",))),
            Change(2, 105, TABLE, Delete(1, OldRow(OldKind.KEY, (b"2",)))),
        ),
        "node",
    )


def test_empty_transaction() -> None:
    assert feed(Assembler(), Begin(9, 7, 5), Commit(9, 10, 7)) == [Transaction(9, 10, 7, 5, ())]


def test_truncate_is_a_change_for_each_table() -> None:
    body = Truncate((1, 2), True, False)
    (transaction,) = feed(Assembler(), Begin(9, 7, 5), TABLE, OTHER, body, Commit(9, 10, 7))
    assert transaction.changes == (Change(0, 103, TABLE, body), Change(1, 103, OTHER, body))


def test_shapes_outlive_their_transaction() -> None:
    assembler = Assembler()
    first, second = feed(
        assembler, Begin(9, 7, 5), TABLE, Commit(9, 10, 7), Begin(19, 7, 6), insert(b"1"), Commit(19, 20, 7)
    )
    assert (first.changes, second.changes[0].relation) == ((), TABLE)


def test_streamed_transaction_without_its_rolled_back_part() -> None:
    (transaction,) = feed(
        Assembler(),
        StreamStart(5, True),
        TABLE,
        insert(b"1", 5),
        insert(b"2", 6),
        StreamStop(),
        StreamAbort(5, 6),
        StreamStart(5, False),
        insert(b"3", 7),
        StreamStop(),
        StreamCommit(5, 90, 95, 7),
    )
    assert [(c.ordinal, c.lsn) for c in transaction.changes] == [(0, 102), (1, 107)]
    assert rows(transaction) == [b"1", b"3"]
    assert (transaction.xid, transaction.commit_lsn, transaction.end_lsn) == (5, 90, 95)


def test_shape_sent_in_a_rolled_back_part_still_counts() -> None:
    (transaction,) = feed(
        Assembler(),
        StreamStart(5, True),
        Relation(1, "public", "t", ReplicaIdentity.DEFAULT, (COLUMN,), 6),
        insert(b"1", 6),
        StreamStop(),
        StreamAbort(5, 6),
        StreamStart(5, False),
        insert(b"2", 5),
        StreamStop(),
        StreamCommit(5, 90, 95, 7),
    )
    assert rows(transaction) == [b"2"]


def test_shape_of_an_open_stream_is_its_own() -> None:
    assembler = Assembler()
    wide = Insert(1, (b"1", b"b"), 5)
    transactions = feed(
        assembler,
        Begin(9, 7, 4), TABLE, Commit(9, 10, 7),
        StreamStart(5, True), WIDER, wide, StreamStop(),
        Begin(29, 7, 6), insert(b"2"), Commit(29, 30, 7),
        StreamCommit(5, 90, 95, 7),
        Begin(99, 7, 8), Insert(1, (b"3", None)), Commit(99, 100, 7),
    )  # fmt: skip
    assert [t.changes[0].relation for t in transactions[1:]] == [TABLE, WIDER, WIDER]


def test_rolled_back_stream_is_gone() -> None:
    assembler = Assembler()
    assert feed(assembler, StreamStart(5, True), WIDER, StreamStop(), StreamAbort(5, 5)) == []
    assert assembler.open_xids == frozenset()
    assert assembler.relations == {}


def test_abort_of_an_unknown_stream_is_nothing() -> None:
    assert feed(Assembler(), StreamAbort(5, 5), StreamAbort(5, 6)) == []


def test_message_outside_of_transactions_has_a_place_of_its_own() -> None:
    outside = LogicalMessage(False, 0x108, "p", b"x")
    inside = LogicalMessage(True, 0x100, "p", b"y")
    first, second = feed(Assembler(), outside, Begin(0x108, 7, 5), inside, Commit(0x108, 0x130, 7))
    assert first == Transaction(0x107, 0x108, None, None, (Change(0, 100, None, outside),))
    assert second.commit_lsn == 0x108


def test_types_are_remembered() -> None:
    assembler = Assembler()
    feed(assembler, Begin(9, 7, 5), Type(99, "public", "mood"), Commit(9, 10, 7))
    assert assembler.types == {99: Type(99, "public", "mood")}


BEGIN, COMMIT = Begin(9, 7, 5), Commit(9, 10, 7)


@pytest.mark.parametrize(
    "messages",
    [
        (COMMIT,),
        (BEGIN, BEGIN),
        (BEGIN, Commit(8, 10, 7)),
        (TABLE,),
        (insert(b"1"),),
        (Origin(1, "n"),),
        (BEGIN, insert(b"1")),
        (BEGIN, TABLE, Insert(1, (b"1", b"2"))),
        (BEGIN, TABLE, Update(1, OldRow(OldKind.KEY, ()), (b"1",))),
        (BEGIN, TABLE, Truncate((1, 2), False, False)),
        (BEGIN, LogicalMessage(False, 8, "p", b"")),
        (LogicalMessage(False, 0, "p", b""),),
        (LogicalMessage(True, 8, "p", b""),),
        (BEGIN, StreamStart(5, True)),
        (BEGIN, StreamStop()),
        (StreamStop(),),
        (StreamStart(5, False),),
        (StreamStart(5, True), StreamStop(), StreamStart(5, True)),
        (StreamStart(5, True), StreamStart(6, True)),
        (StreamStart(5, True), StreamCommit(5, 9, 10, 7)),
        (StreamStart(5, True), COMMIT),
        (StreamCommit(5, 9, 10, 7),),
    ],
)
def test_impossible_orders(messages: tuple[Message, ...]) -> None:
    assembler = Assembler()
    feed(assembler, *messages[:-1])
    with pytest.raises(ProtocolError):
        assembler.feed(messages[-1], 1)
