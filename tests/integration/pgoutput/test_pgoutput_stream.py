"""The server's own bytes: every message kind, every protocol, and the same transactions whichever way they come."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from headgate.wire.pgoutput import (
    UNCHANGED,
    Begin,
    BinaryValue,
    Change,
    Commit,
    Decoder,
    Delete,
    Insert,
    LogicalMessage,
    OldKind,
    OldRow,
    Origin,
    Relation,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Transaction,
    Truncate,
    Type,
    Update,
    encode_message,
)

from .server import Database

IMMEDIATE = "set debug_logical_replication_streaming = immediate"
WAYS: list[tuple[int, dict[str, str]]] = [
    (1, {}),
    (2, {}),
    (2, {"streaming": "on"}),
    (3, {"streaming": "on"}),
    (4, {"streaming": "parallel"}),
]


def without_xid(transaction: Transaction) -> Transaction:
    """Only streamed messages carry their subtransaction's xid, so comparisons leave it out."""

    def plain(change: Change) -> Change:
        relation = dataclasses.replace(change.relation, xid=None) if change.relation else None
        return dataclasses.replace(change, relation=relation, body=dataclasses.replace(change.body, xid=None))

    return dataclasses.replace(transaction, changes=tuple(map(plain, transaction.changes)))


WORK = r"""
insert into item values (1, 'one', repeat('x', 9000), 'ok'), (2, null, null, 'sad');
update item set name = 'uno' where id = 1;
update item set id = 3 where id = 2;
insert into whole select g, repeat('y', g) from generate_series(1, 2000) g;
begin;
insert into heap values (1);
savepoint a;
insert into heap values (2);
savepoint b;
insert into heap values (3);
release b;
rollback to a;
insert into heap values (4);
commit;
begin;
insert into heap values (5);
savepoint a;
insert into whole values (0, 'kept');
release a;
select pg_logical_emit_message(true, 'inside', 'text');
commit;
begin;
insert into heap values (6);
rollback;
select pg_logical_emit_message(false, 'outside', '\x00ff'::bytea);
begin;
alter table heap add b text default 'new';
insert into heap values (7);
savepoint a;
alter table heap drop b;
insert into heap values (8);
rollback to a;
insert into heap values (9);
commit;
insert into heap values (10);
delete from whole where a > 1990;
delete from item where id = 3;
truncate item cascade;
truncate heap, whole restart identity
"""


def workload(database: Database) -> None:
    database.sql(
        """
        create type mood as enum ('sad', 'ok');
        create table item (id int primary key, name text, big text, state mood);
        create table part (id int references item, n int generated always as identity);
        create table whole (a int, b text);
        create table heap (a int);
        alter table item alter big set storage external;
        alter table part replica identity full;
        alter table whole replica identity full;
        alter table heap replica identity nothing;
        """
    )
    database.publish()
    for statement in WORK.strip().split(";\n"):
        database.sql(statement)


def test_all_protocols_give_the_same_transactions(database: Database) -> None:
    workload(database)
    database.sql(IMMEDIATE)
    expected = [without_xid(t) for t in database.transactions()]
    assert len(expected) == 13
    for protocol, options in WAYS[1:]:
        assert [without_xid(t) for t in database.transactions(protocol, **options)] == expected, (protocol, options)


def test_streaming_was_really_used(database: Database) -> None:
    workload(database)
    database.sql(IMMEDIATE)
    kinds = {type(message) for message in database.messages(4, streaming="parallel")}
    assert kinds == {
        StreamStart, StreamStop, StreamCommit, StreamAbort, Relation, Type, Insert, Update, Delete, Truncate,
        LogicalMessage,
    }  # fmt: skip


def test_large_transactions_stream_by_memory_limit(database: Database) -> None:
    workload(database)
    messages = database.messages(2, streaming="on")
    blocks = [m for m in messages if isinstance(m, StreamStart)]
    assert len(blocks) > 1
    assert [b.first_segment for b in blocks].count(True) < len(blocks)
    assert Begin in map(type, messages)


def test_every_message_encodes_to_the_servers_bytes(database: Database) -> None:
    workload(database)
    database.sql(IMMEDIATE)
    for protocol, options in WAYS:
        decoder = Decoder(protocol)
        for _, payload in database.record(protocol, **options):
            assert encode_message(decoder.decode(payload)) == payload


def test_commit_order_and_positions(database: Database) -> None:
    workload(database)
    transactions = database.transactions()
    ends = [t.end_lsn for t in transactions]
    assert ends == sorted(ends)
    for transaction in transactions:
        assert transaction.commit_lsn <= transaction.end_lsn
        assert [c.ordinal for c in transaction.changes] == list(range(len(transaction.changes)))


def test_rolled_back_subtransactions_leave_no_trace(database: Database) -> None:
    workload(database)
    database.sql(IMMEDIATE)
    for protocol, options in WAYS:
        values = [
            change.body.new[0]
            for transaction in database.transactions(protocol, **options)
            for change in transaction.changes
            if isinstance(change.body, Insert) and change.relation and change.relation.name == "heap"
        ]
        assert values == [b"1", b"4", b"5", b"7", b"9", b"10"]


def test_shape_follows_ddl_inside_a_transaction(database: Database) -> None:
    workload(database)
    database.sql(IMMEDIATE)
    for protocol, options in WAYS:
        shapes = {
            change.body.new[0]: [column.name for column in change.relation.columns]
            for transaction in database.transactions(protocol, **options)
            for change in transaction.changes
            if isinstance(change.body, Insert) and change.relation and change.relation.name == "heap"
        }
        assert shapes[b"5"] == ["a"]
        assert shapes[b"7"] == shapes[b"9"] == shapes[b"10"] == ["a", "b"]


def test_abort_carries_lsn_and_time_only_when_parallel(database: Database) -> None:
    workload(database)
    database.sql(IMMEDIATE)
    plain = [m for m in database.messages(4, streaming="on") if isinstance(m, StreamAbort)]
    parallel = [m for m in database.messages(4, streaming="parallel") if isinstance(m, StreamAbort)]
    assert [(m.xid, m.subxid) for m in plain] == [(m.xid, m.subxid) for m in parallel]
    assert {m.abort_lsn is None for m in plain} == {True}
    assert all(m.abort_lsn and m.abort_time is not None for m in parallel)
    assert {m.xid == m.subxid for m in plain} == {True, False}


@pytest.fixture
def row_change(database: Database) -> Callable[..., Any]:
    """What one statement on a table with a replica identity sends."""

    def run(identity: str, statement: str) -> Any:
        database.sql(
            f"""
            create table t (id int primary key, u int not null unique, big text);
            alter table t alter big set storage external;
            alter table t replica identity {identity};
            insert into t values (1, 10, repeat('x', 9000));
            """
        )
        database.publish("t")
        database.sql(statement)
        (transaction,) = database.transactions()
        (change,) = transaction.changes
        assert change.relation is not None
        return change.relation, change.body

    return run


BIG = b"x" * 9000


def test_update_keeps_unchanged_toast_apart_from_null(row_change: Callable[..., Any]) -> None:
    relation, body = row_change("default", "update t set u = 11")
    assert relation.identity is ReplicaIdentity.DEFAULT
    assert [c.is_key for c in relation.columns] == [True, False, False]
    assert body == Update(relation.relation_id, None, (b"1", b"11", UNCHANGED))


def test_update_to_null_is_null(row_change: Callable[..., Any]) -> None:
    _, body = row_change("default", "update t set big = null")
    assert body.new == (b"1", b"10", None)


def test_key_change_sends_the_old_key(row_change: Callable[..., Any]) -> None:
    _, body = row_change("default", "update t set id = 2")
    assert body.old == OldRow(OldKind.KEY, (b"1", None, None))
    assert body.new == (b"2", b"10", UNCHANGED)


def test_full_identity_sends_the_old_row_whole(row_change: Callable[..., Any]) -> None:
    relation, body = row_change("full", "update t set u = 11")
    assert relation.identity is ReplicaIdentity.FULL
    assert all(c.is_key for c in relation.columns)
    assert body.old == OldRow(OldKind.ROW, (b"1", b"10", BIG))
    assert body.new == (b"1", b"11", UNCHANGED)


def test_index_identity_sends_the_index_columns(row_change: Callable[..., Any]) -> None:
    relation, body = row_change("using index t_u_key", "delete from t")
    assert relation.identity is ReplicaIdentity.INDEX
    assert [c.is_key for c in relation.columns] == [False, True, False]
    assert body == Delete(relation.relation_id, OldRow(OldKind.KEY, (None, b"10", None)))


def test_full_identity_delete_sends_the_row(row_change: Callable[..., Any]) -> None:
    _, body = row_change("full", "delete from t")
    assert body.old == OldRow(OldKind.ROW, (b"1", b"10", BIG))


def test_nothing_identity_still_inserts(row_change: Callable[..., Any]) -> None:
    relation, body = row_change("nothing", "insert into t values (2, 20, 'b')")
    assert relation.identity is ReplicaIdentity.NOTHING
    assert body.new == (b"2", b"20", b"b")


def test_truncate_is_one_change_per_table(database: Database) -> None:
    database.sql("create table a (id int primary key); create table b (id int references a)")
    database.publish()
    database.sql("truncate a restart identity cascade")
    (transaction,) = database.transactions()
    assert [(c.ordinal, c.relation and c.relation.name) for c in transaction.changes] == [(0, "a"), (1, "b")]
    body = transaction.changes[0].body
    assert isinstance(body, Truncate)
    assert (body.cascade, body.restart_identity, len(body.relation_ids)) == (True, True, 2)


def test_messages_stand_inside_and_outside(database: Database) -> None:
    database.sql("create table a (id int)")
    database.publish()
    database.sql("select pg_logical_emit_message(true, 'p', 'in'), pg_logical_emit_message(false, '', '\\x00'::bytea)")
    outside, inside = database.transactions()
    assert (outside.xid, outside.commit_time) == (None, None)
    assert outside.commit_lsn < inside.commit_lsn
    bodies = [outside.changes[0].body, inside.changes[0].body]
    assert [isinstance(b, LogicalMessage) and (b.transactional, b.prefix, b.content) for b in bodies] == [
        (False, "", b"\x00"),
        (True, "p", b"in"),
    ]


def test_binary_columns_are_told_apart(database: Database) -> None:
    database.sql("create table a (id int, t text, n text)")
    database.publish()
    database.sql("insert into a values (7, 'seven', null)")
    (transaction,) = database.transactions(binary="true")
    body = transaction.changes[0].body
    assert isinstance(body, Insert)
    assert body.new == (BinaryValue(b"\0\0\0\7"), BinaryValue(b"seven"), None)
    assert [type(column) for column in body.new] == [BinaryValue, BinaryValue, type(None)]


@pytest.mark.parametrize("streamed", [False, True])
def test_origin_is_kept(database: Database, streamed: bool) -> None:
    database.sql("create table a (id int)")
    database.publish()
    origin = f"from-elsewhere-{database.name}"
    database.sql("select pg_replication_origin_create(%s)", origin)
    database.sql("select pg_replication_origin_session_setup(%s)", origin)
    database.sql("begin")
    database.sql("select pg_replication_origin_xact_setup('0/ABC', now())")
    database.sql("insert into a values (1)")
    database.sql("commit")
    database.sql("select pg_replication_origin_session_reset()")
    if streamed:
        database.sql(IMMEDIATE)
    options = {"streaming": "on"} if streamed else {}
    assert Origin in map(type, database.messages(2, **options))
    (transaction,) = database.transactions(2, **options)
    assert transaction.origin == origin
    database.sql("select pg_replication_origin_drop(%s)", origin)


def test_concurrent_streams_interleave(database: Database) -> None:
    database.sql("create table a (who text, n int)")
    database.publish()
    with database.server.connect() as other:
        other.execute(f"set search_path = {database.name}")
        database.sql("begin")
        other.execute("begin")
        for number in range(3):
            database.sql("insert into a select 'first', %s from generate_series(1, 500)", number)
            other.execute("insert into a select 'second', %s from generate_series(1, 500)", (number,))
        other.execute("commit")
        database.sql("commit")
    expected = [without_xid(t) for t in database.transactions()]
    assert [len(t.changes) for t in expected] == [1500, 1500]
    streamed = [m for m in database.messages(2, streaming="on") if isinstance(m, StreamStart | StreamCommit | Commit)]
    assert len({m.xid for m in streamed if isinstance(m, StreamStart)}) == 2
    assert [without_xid(t) for t in database.transactions(2, streaming="on")] == expected
