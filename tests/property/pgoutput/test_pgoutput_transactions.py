"""A random history, sent whole and sent in streamed blocks, gives the same transactions."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headgate.wire.pgoutput import (
    Begin,
    Commit,
    Insert,
    Message,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Transaction,
)
from tests.cdc.assembler import Assembler


@dataclass(frozen=True)
class Work:
    """One transaction: its rows by (sub)transaction, which subtransactions and whether it itself rolls back."""

    xid: int
    rows: list[int]  # 0 is the top level, n the n-th subtransaction
    rolled_back: set[int]
    aborts: bool

    def subxid(self, row: int) -> int:
        return self.xid + self.rows[row]


@st.composite
def works(draw: st.DrawFn) -> list[Work]:
    count = draw(st.integers(1, 4))
    return [
        Work(
            100 * (number + 1),
            draw(st.lists(st.integers(0, 3), max_size=8)),
            draw(st.sets(st.integers(1, 3))),
            draw(st.booleans()),
        )
        for number in range(count)
    ]


def table(xid: int | None = None) -> Relation:
    return Relation(1, "s", "t", ReplicaIdentity.FULL, (RelationColumn(True, "v", 25, -1),), xid)


def insert(work: Work, row: int, *, streamed: bool) -> tuple[Message, int]:
    value = f"{work.xid}:{row}".encode()
    return Insert(1, (value,), work.subxid(row) if streamed else None), work.xid * 1000 + row


def whole(history: list[Work]) -> list[tuple[Message, int]]:
    """Protocol 1: committed transactions only, without what rolled back."""
    sent: list[tuple[Message, int]] = []
    for work in history:
        if work.aborts:
            continue
        commit = work.xid * 10_000
        kept = [row for row, sub in enumerate(work.rows) if sub not in work.rolled_back]
        sent += [(Begin(commit, 7, work.xid), 0), (table(), 0)]
        sent += [insert(work, row, streamed=False) for row in kept]
        sent.append((Commit(commit, commit + 8, 7), 0))
    return sent


@st.composite
def streamed(draw: st.DrawFn, history: list[Work]) -> list[tuple[Message, int]]:
    """Protocol 2: blocks of all transactions in a random interleaving, then the ends in order."""
    turns = draw(st.permutations([work for work in history for _ in range(len(work.rows) + 1)]))
    sent: list[tuple[Message, int]] = []
    done: dict[int, int] = {}
    for work in turns:
        first = work.xid not in done
        start = done.setdefault(work.xid, 0)
        stop = min(len(work.rows), start + draw(st.integers(0, 3)))
        sent.append((StreamStart(work.xid, first), 0))
        if first:
            sent.append((table(work.xid), 0))
        sent += [insert(work, row, streamed=True) for row in range(start, stop)]
        sent.append((StreamStop(), 0))
        done[work.xid] = stop
    for work in history:
        sent += _ending(work, done[work.xid])
    return sent


def _ending(work: Work, done: int) -> list[tuple[Message, int]]:
    rest = [insert(work, row, streamed=True) for row in range(done, len(work.rows))]
    last: list[tuple[Message, int]] = [(StreamStart(work.xid, False), 0), *rest, (StreamStop(), 0)]
    if work.aborts:
        return [*last, (StreamAbort(work.xid, work.xid), 0)]
    aborted: list[tuple[Message, int]] = [
        (StreamAbort(work.xid, work.xid + sub), 0) for sub in sorted(work.rolled_back)
    ]
    commit = work.xid * 10_000
    return [*last, *aborted, (StreamCommit(work.xid, commit, commit + 8, 7), 0)]


def assemble(sent: list[tuple[Message, int]]) -> list[Transaction]:
    assembler = Assembler()
    transactions = [done for message, lsn in sent if (done := assembler.feed(message, lsn)) is not None]
    assert not assembler.open_xids
    return [
        dataclasses.replace(
            transaction,
            changes=tuple(
                dataclasses.replace(change, relation=table(), body=dataclasses.replace(change.body, xid=None))
                for change in transaction.changes
            ),
        )
        for transaction in transactions
    ]


@given(works(), st.data())
def test_streamed_is_whole(history: list[Work], data: st.DataObject) -> None:
    assert assemble(data.draw(streamed(history))) == assemble(whole(history))
