"""The reader process against a real PostgreSQL: nothing is missed, whatever happens to the connection."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psycopg
import pytest

from headgate.embedded.postgres import PostgresServer
from headgate.model import AuthError, ConfigError, OccupiedError, StateError
from headgate.postgres.continuity import WalPosition
from headgate.sources.postgres_cdc import process
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.spool import SpoolIndex, relations_before
from headgate.wire.pgoutput import Decoder, LogicalMessage, Relation, parse_lsn
from tests.integration.cdc.conftest import Admin, every_version
from tests.integration.cdc.watching import (
    Start,
    confirm_all,
    ids,
    messages,
    rows,
    slot_lsn,
    status,
    wait_until,
)

pytestmark = pytest.mark.timeout(120)


@every_version
def test_changes_arrive_whole_and_in_commit_order(admin: Admin, reader: Start, spool: Path) -> None:
    reader().ensure()
    with admin.transaction():
        admin.execute("insert into t select g, 'a' from generate_series(1, 100) g")
    admin.execute("insert into t values (101, 'b')")
    wait_until(lambda: rows(spool) == 101)
    assert ids(spool) == list(range(1, 102))


@every_version
def test_what_was_written_while_nobody_read_is_not_missed(admin: Admin, reader: Start, spool: Path) -> None:
    first = reader()
    first.ensure()
    first.stop()
    admin.execute("insert into t values (1, 'while away')")
    reader().ensure()
    wait_until(lambda: rows(spool) == 1)


def test_a_reader_that_hangs_is_ended_and_replaced(
    admin: Admin, reader: Start, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_ENDING_S", 0.2)
    hanging = reader()
    os.kill(hanging.ensure().pid, signal.SIGSTOP)
    hanging.stop()
    admin.execute("insert into t values (1, 'a')")
    reader().ensure()
    wait_until(lambda: rows(spool) == 1)


@every_version
def test_only_what_is_confirmed_moves_the_slot(admin: Admin, reader: Start, spool: Path) -> None:
    reader().ensure()
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: rows(spool) == 1)
    index = SpoolIndex(spool)
    index.refresh()
    end = index.end_lsn
    admin.execute("select pg_sleep(1.5)")
    assert slot_lsn(admin) < end
    SpoolControl(spool).confirm(WalPosition(1, end))
    wait_until(lambda: slot_lsn(admin) >= end)


@every_version
def test_an_idle_publication_pins_no_wal(admin: Admin, reader: Start) -> None:
    reader().ensure()
    admin.execute("create table other (id int, filler text)")
    admin.execute("insert into other select g, repeat('x', 200) from generate_series(1, 20000) g")
    row = admin.execute("select pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    written = parse_lsn(row[0])
    wait_until(lambda: slot_lsn(admin) >= written)


def test_kill_9_of_the_reader_loses_and_repeats_nothing(admin: Admin, reader: Start, spool: Path) -> None:
    first = reader()
    state = first.ensure()
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: rows(spool) == 1)
    os.kill(state.pid, signal.SIGKILL)
    admin.execute("insert into t values (2, 'b')")
    first.stop()
    reader().ensure()
    wait_until(lambda: rows(spool) == 2)
    assert ids(spool) == [1, 2]


@every_version
@pytest.mark.parametrize("fault", ["terminate", "restart", "crash"])
def test_a_lost_connection_is_made_again(
    admin: Admin, reader: Start, spool: Path, server: PostgresServer, url: str, fault: str
) -> None:
    process = reader()
    process.ensure()
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: rows(spool) == 1)
    if fault == "terminate":
        admin.execute("select pg_terminate_backend(active_pid) from pg_replication_slots")
    elif fault == "restart":
        # A server that is told to stop waits for a reader that has not confirmed what it got.
        confirm_all(admin, spool)
        server.restart()
    else:
        server.kill()
        server.start()
    with psycopg.connect(server.url, autocommit=True) as again:
        again.execute("insert into t values (2, 'b')")
    wait_until(lambda: 2 in ids(spool), 60)
    # What was confirmed need not be kept; a server before 17 forgets at a restart that it was, and sends it again.
    assert ids(spool) in ([[1, 2], [2]] if fault == "restart" else [[1, 2]])
    state = SpoolControl(spool).read_state()
    assert state is not None
    assert state.reconnects_total >= 1


def test_a_full_spool_holds_back_and_goes_on(admin: Admin, reader: Start, spool: Path) -> None:
    """Much more than the sockets between server and reader take, which a busy reader finds there all at once."""
    reader(max_spool_bytes=2_000_000).ensure()
    for block in range(20):
        admin.execute(
            "insert into t select g, repeat('x', 1000) from generate_series(%s::int, %s::int) g",
            [block * 1000, block * 1000 + 999],
        )
    control = SpoolControl(spool)
    wait_until(lambda: status(control) == "waiting")
    held = rows(spool)
    assert held < 20_000
    seen = 0
    index = SpoolIndex(spool)
    while seen < 20_000:
        index.refresh()
        end = index.end_lsn
        fresh = index.rows_after(control.confirmed.lsn)
        if fresh:
            seen += fresh
            control.confirm(WalPosition(1, end))
        time.sleep(0.02)
    assert seen == 20_000


@every_version
def test_streamed_transactions_and_rolled_back_savepoints(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute("alter system set logical_decoding_work_mem = '64kB'")
    admin.execute("select pg_reload_conf()")
    reader().ensure()
    with admin.transaction():
        admin.execute("insert into t select g, repeat('x', 100) from generate_series(1, 5000) g")
        try:
            with admin.transaction():
                admin.execute("insert into t select g, repeat('y', 100) from generate_series(5001, 9000) g")
                raise RuntimeError
        except RuntimeError:
            pass
        admin.execute("insert into t select g, repeat('z', 100) from generate_series(9001, 9100) g")
    wait_until(lambda: rows(spool) == 5100)
    assert ids(spool) == [*range(1, 5001), *range(9001, 9101)]
    streamed = "select 1 from pg_stat_replication_slots where slot_name = 's' and stream_txns > 0"
    wait_until(lambda: admin.execute(streamed).fetchone() is not None)  # the server counts a moment later


def test_logical_messages_inside_and_outside_transactions(admin: Admin, reader: Start, spool: Path) -> None:
    reader().ensure()
    admin.execute("select pg_logical_emit_message(true, 'in', 'one')")
    admin.execute("select pg_logical_emit_message(false, 'out', 'two')")
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: rows(spool) == 3)
    found = [m.content for m in messages(spool) if isinstance(m, LogicalMessage)]
    assert found == [b"one", b"two"]


def test_relations_are_known_to_later_ranges(admin: Admin, reader: Start, spool: Path) -> None:
    reader().ensure()
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: rows(spool) == 1)
    index = SpoolIndex(spool)
    index.refresh()
    first = index.end_lsn
    admin.execute("insert into t values (2, 'b')")
    wait_until(lambda: rows(spool) == 2)
    (known,) = (Decoder().decode(message) for message in relations_before(spool, first))
    assert isinstance(known, Relation)
    assert known.name == "t"
    assert not [m for m in messages(spool, first) if isinstance(m, Relation)]


def test_a_missing_publication_is_refused_with_its_sql(admin: Admin, reader: Start) -> None:
    with pytest.raises(StateError, match="no publication nope") as caught:
        reader(publications=("nope",)).ensure()
    assert 'CREATE PUBLICATION "nope"' in caught.value.remedy


@every_version
def test_a_publication_that_may_not_be_created(admin: Admin, reader: Start) -> None:
    with pytest.raises(AuthError, match="may not create the publication") as caught:
        reader(publications=("mine",), create_publication_for=("public.t",)).ensure()
    assert 'FOR TABLE "public"."t"' in caught.value.remedy


@every_version
def test_a_publication_is_created_when_allowed(admin: Admin, reader: Start, server: PostgresServer) -> None:
    owner = server.url
    reader(url=owner, publications=("mine",), create_publication_for=("public.t",)).ensure()
    found = admin.execute("select tablename from pg_publication_tables where pubname = 'mine'").fetchall()
    assert found == [("t",)]


def test_a_role_without_replication_hears_what_it_lacks(admin: Admin, reader: Start, url: str) -> None:
    admin.execute("drop role if exists weak; create role weak login")
    with pytest.raises(AuthError) as caught:
        reader(url=url.replace("user=bridge", "user=weak")).ensure()
    assert 'ALTER ROLE "weak" REPLICATION' in caught.value.remedy


def test_a_slot_of_another_kind_or_database(admin: Admin, reader: Start, url: str) -> None:
    admin.execute("select pg_create_physical_replication_slot('s')")
    with pytest.raises(StateError, match="not pgoutput"):
        reader().ensure()
    admin.execute("select pg_drop_replication_slot('s')")
    admin.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
    admin.execute("drop database if exists other_db")
    admin.execute("create database other_db")
    with psycopg.connect(
        url.replace("/headgate?", "/other_db?").replace("user=bridge", "user=headgate"), autocommit=True
    ) as other:
        other.execute("create publication p for all tables")
    with pytest.raises(StateError, match="belongs to the database headgate, not other_db"):
        reader(url=url.replace("/headgate?", "/other_db?")).ensure()


@every_version
def test_a_lost_slot_is_refused_with_a_remedy(admin: Admin, reader: Start) -> None:
    first = reader()
    first.ensure()
    first.stop()
    admin.execute("alter system set max_slot_wal_keep_size = '1MB'")
    admin.execute("select pg_reload_conf()")
    try:
        for _ in range(4):
            admin.execute("delete from t")
            admin.execute("insert into t select g, repeat('x', 500) from generate_series(1, 40000) g")
            admin.execute("select pg_switch_wal()")
            admin.execute("checkpoint")
        with pytest.raises(StateError, match=r"lost|can no longer") as caught:
            reader().ensure()
        assert "drop" in caught.value.remedy
    finally:
        admin.execute("alter system reset max_slot_wal_keep_size")
        admin.execute("select pg_reload_conf()")


def test_a_second_reader_on_the_same_spool_is_the_first(admin: Admin, reader: Start) -> None:
    assert reader().ensure().pid == reader().ensure().pid


def test_two_readers_of_one_slot_wait_for_each_other(admin: Admin, reader: Start, tmp_path: Path) -> None:
    first = reader()
    first.ensure()
    second = SpoolControl(tmp_path / "second")
    other = reader(spool=str(tmp_path / "second"))
    waiting = threading.Thread(target=other.ensure)
    waiting.start()
    wait_until(lambda: status(second) == "reconnecting")
    state = second.read_state()
    assert state is not None
    assert state.error is not None
    assert "is active for PID" in state.error["message"]
    first.stop()
    waiting.join(60)
    assert status(second) == "streaming"


@every_version
def test_failover_slots(admin: Admin, reader: Start) -> None:
    if admin.info.server_version < 170000:
        with pytest.raises(ConfigError, match="need PostgreSQL 17"):
            reader(failover=True).ensure()
        return
    reader(failover=True).ensure()
    row = admin.execute("select failover from pg_replication_slots").fetchone()
    assert row == (True,)


def test_the_lock_says_who_lives(tmp_path: Path, admin: Admin, reader: Start, url: str) -> None:
    from headgate.sources.postgres_cdc.reader import Reader, ReaderOptions

    reader().ensure()
    with pytest.raises(OccupiedError, match="another reader"):
        Reader(ReaderOptions(url=url, slot="s", publications=("p",), spool=str(tmp_path / "spool")))


def test_what_the_server_refuses_is_told_in_its_own_words(admin: Admin, reader: Start) -> None:
    """Not as the end of a process, nor as a fault of headgate."""
    admin.execute("revoke select on pg_replication_slots from public")
    try:
        with pytest.raises(AuthError, match="permission denied"):
            reader().ensure()
    finally:
        admin.execute("grant select on pg_replication_slots to public")
