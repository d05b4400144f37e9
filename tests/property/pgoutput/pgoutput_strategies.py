"""Strategies for messages, rows and values."""

from __future__ import annotations

from hypothesis import strategies as st

from headgate.wire.pgoutput import (
    UNCHANGED,
    Begin,
    BinaryValue,
    Column,
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
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from headgate.wire.pgtypes import Value

u32 = st.integers(0, 2**32 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
# PostgreSQL's text has no NUL, and names are not empty.
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
names = text.filter(bool)
columns: st.SearchStrategy[Column] = st.one_of(
    st.none(), st.just(UNCHANGED), st.binary(max_size=40), st.builds(BinaryValue, st.binary(max_size=8))
)
rows: st.SearchStrategy[Row] = st.lists(columns, max_size=6).map(tuple)
old_rows = st.builds(OldRow, st.sampled_from(OldKind), rows)
relation_columns = st.builds(RelationColumn, st.booleans(), names, u32, i32)


def in_block(xid: st.SearchStrategy[int | None]) -> st.SearchStrategy[Message]:
    """Messages that may stand inside a streamed block, where they have an xid, and outside, where they have none."""
    shapes = st.lists(relation_columns, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Origin, u64, text),
        st.builds(Relation, u32, names, names, st.sampled_from(ReplicaIdentity), shapes, xid),
        st.builds(Type, u32, names, names, xid),
        st.builds(Insert, u32, rows, xid),
        st.builds(Update, u32, st.none() | old_rows, rows, xid),
        st.builds(Delete, u32, old_rows, xid),
        st.builds(Truncate, st.lists(u32, max_size=4).map(tuple), st.booleans(), st.booleans(), xid),
        st.builds(LogicalMessage, st.booleans(), u64, text, st.binary(max_size=40), xid),
    )


outside_block: st.SearchStrategy[Message] = st.one_of(
    in_block(st.none()),
    st.builds(Begin, u64, i64, u32),
    st.builds(Commit, u64, u64, i64),
    st.builds(StreamCommit, u32, u64, u64, i64),
    st.builds(StreamAbort, u32, u32),
    st.builds(StreamAbort, u32, u32, u64, i64),
)


def _block(start: Message, inside: list[Message]) -> list[Message]:
    return [start, *inside, StreamStop()]


blocks = st.builds(_block, st.builds(StreamStart, u32, st.booleans()), st.lists(in_block(u32), max_size=5))
streams: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(blocks, outside_block.map(lambda message: [message])), max_size=8
).map(lambda parts: [message for part in parts for message in part])

scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), text, st.binary(max_size=40)
)
values: st.SearchStrategy[Value] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)
