"""Frames over a real replication connection: data, keepalives, and a status update that moves the slot."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import pq
from psycopg.pq.abc import PGconn

from headgate.wire.pgoutput import (
    Decoder,
    Frame,
    Keepalive,
    StandbyStatus,
    Transaction,
    XLogData,
    decode_frame,
    encode_status,
    format_lsn,
)
from tests.cdc.assembler import Assembler

from .server import Database


@contextmanager
def replicating(database: Database, protocol: int) -> Iterator[PGconn]:
    connection = pq.PGconn.connect(database.server.conninfo(replication="database").encode())
    assert connection.status == pq.ConnStatus.OK, connection.error_message
    command = (
        f"START_REPLICATION SLOT {database.slot} LOGICAL 0/0 "
        f"(proto_version '{protocol}', publication_names '{database.name}', streaming 'on')"
    )
    assert connection.exec_(command.encode()).status == pq.ExecStatus.COPY_BOTH
    try:
        yield connection
    finally:
        connection.finish()


def next_frame(connection: PGconn) -> Frame:
    while True:
        size, data = connection.get_copy_data(1)
        if size > 0:
            return decode_frame(data)
        assert size == 0, connection.error_message
        ready, _, _ = select.select([connection.socket], [], [], 20)
        assert ready, "the server went silent"
        connection.consume_input()


def next_transaction(connection: PGconn, decoder: Decoder, assembler: Assembler) -> Transaction:
    while True:
        frame = next_frame(connection)
        if isinstance(frame, XLogData):
            transaction = assembler.feed(decoder.decode(frame.payload), frame.start)
            if transaction is not None:
                return transaction


def test_status_update_moves_the_slot(database: Database) -> None:
    database.sql("create table a (id int primary key)")
    database.publish()
    database.sql("insert into a values (1)")
    recorded = database.transactions(2)
    with replicating(database, 2) as connection:
        transaction = next_transaction(connection, Decoder(2), Assembler())
        assert transaction == recorded[0]
        lsn = transaction.end_lsn
        connection.put_copy_data(encode_status(StandbyStatus(lsn, lsn, lsn, 0, reply_requested=True)))
        connection.flush()
        while not isinstance(frame := next_frame(connection), Keepalive):
            pass
        assert frame.wal_end >= lsn
        assert frame.sent_at > 0
        # The server answers after it has taken the update in; but it may say the same of itself, unasked, before that.
        query = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s"
        deadline = time.monotonic() + 30
        while database.sql(query, database.slot) != [(format_lsn(lsn),)]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    release(database)


def release(database: Database) -> None:
    """Wait until the server has ended the connection, so that the slot can be dropped."""
    query = """
        select pg_terminate_backend(active_pid, 10000) from pg_replication_slots
        where slot_name = %s and active_pid is not null"""
    with database.server.connect() as other:
        other.execute(query, (database.slot,))


def test_streamed_rows_arrive_before_the_commit(database: Database) -> None:
    database.sql("create table a (id int)")
    database.publish()
    with replicating(database, 2) as connection:
        database.sql("begin")
        database.sql("insert into a select generate_series(1, 5000)")
        decoder, assembler = Decoder(2), Assembler()
        # Another commit flushes the WAL as far as the open transaction's rows.
        with database.server.connect() as other:
            other.execute("select pg_logical_emit_message(true, 'flush', '')")
        while not assembler.open_xids:
            frame = next_frame(connection)
            if isinstance(frame, XLogData):
                assert assembler.feed(decoder.decode(frame.payload), frame.start) is None
        database.sql("commit")
        transaction = next_transaction(connection, decoder, assembler)
        assert len(transaction.changes) == 5000
        assert not assembler.open_xids
    release(database)
