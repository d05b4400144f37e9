"""A gap is refused or told, never passed over: slots that were dropped, servers restored, standbys promoted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from headgate.embedded.postgres import PostgresServer
from headgate.model import StateError
from headgate.postgres.continuity import WalPosition, position_of
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.datasource import CdcStreamReader
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.reader import ReaderOptions
from headgate.wire.pgoutput import LogicalMessage
from tests.cdc.standby import copy_of, cut_off, promote, standby_of, two_hosts, wait_for_replay
from tests.integration.cdc.conftest import Admin, every_version, new_server, prepare, readers
from tests.integration.cdc.watching import Start, confirm_all, ids, messages, slot_lsn, status, wait_until
from tests.stock import STOCK_VERSION, needs_stock

pytestmark = pytest.mark.timeout(180)


def markers(spool: Path) -> list[dict[str, object]]:
    """What consumers are told of gaps."""
    found = [m for m in messages(spool) if isinstance(m, LogicalMessage) and m.prefix == "headgate.gap"]
    return [json.loads(message.content) for message in found]


def deliver(admin: Admin, reader: Start, spool: Path, number: int = 1) -> None:
    """Read one row and confirm it, so that there is something to remember; then stop."""
    process = reader()
    process.ensure()
    admin.execute("insert into t values (%s, 'delivered')", [number])
    wait_until(lambda: number in ids(spool))
    confirm_all(admin, spool)
    process.stop()


@every_version
def test_a_slot_that_was_dropped_is_not_made_anew_in_silence(admin: Admin, reader: Start, spool: Path) -> None:
    deliver(admin, reader, spool)
    admin.execute("select pg_drop_replication_slot('s')")
    admin.execute("insert into t values (2, 'nobody kept this')")
    with pytest.raises(StateError, match="the slot is gone") as caught:
        reader().ensure()
    assert "headgate reset" in caught.value.remedy
    assert admin.execute("select 1 from pg_replication_slots").fetchone() is None


@every_version
def test_a_slot_that_somebody_made_anew_is_refused(admin: Admin, reader: Start, spool: Path) -> None:
    deliver(admin, reader, spool)
    admin.execute("select pg_drop_replication_slot('s')")
    admin.execute("insert into t values (2, 'nobody kept this')")
    admin.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
    with pytest.raises(StateError, match="moved it or made it anew"):
        reader().ensure()


@every_version
def test_a_slot_that_somebody_else_has_read_is_refused(admin: Admin, reader: Start, spool: Path) -> None:
    deliver(admin, reader, spool)
    admin.execute("insert into t values (2, 'read by another')")
    admin.execute("select pg_replication_slot_advance('s', pg_current_wal_lsn())")
    with pytest.raises(StateError, match="moved it or made it anew"):
        reader().ensure()


def test_a_slot_that_is_remade_while_the_reader_reconnects(admin: Admin, reader: Start, spool: Path) -> None:
    process = reader()
    process.ensure()
    admin.execute("insert into t values (1, 'delivered')")
    wait_until(lambda: ids(spool) == [1])
    confirm_all(admin, spool)
    admin.execute(
        """do $$ begin
          perform pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 's';
          loop
            begin
              perform pg_drop_replication_slot('s'); exit;
            exception when object_in_use then
              perform pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 's';
            end;
          end loop;
        end $$"""
    )
    admin.execute("insert into t values (2, 'nobody kept this')")
    wait_until(lambda: status(SpoolControl(spool)) == "error")
    with pytest.raises(StateError, match="the slot is gone"):
        process.state()


@every_version
def test_after_a_reset_consumers_are_told_of_the_gap(admin: Admin, reader: Start, spool: Path) -> None:
    deliver(admin, reader, spool)
    admin.execute("select pg_drop_replication_slot('s')")
    admin.execute("insert into t values (2, 'nobody kept this')")
    SpoolControl(spool).forget()
    reader().ensure()
    admin.execute("insert into t values (3, 'after the gap')")
    wait_until(lambda: ids(spool) == [3])
    (marker,) = markers(spool)
    assert (marker["reason"], marker["tables"]) == ("slot", None)


@every_version
def test_a_reset_that_loses_nothing_tells_nothing(admin: Admin, reader: Start, spool: Path) -> None:
    deliver(admin, reader, spool)
    admin.execute("insert into t values (2, 'kept by the slot')")
    SpoolControl(spool).forget()
    reader().ensure()
    wait_until(lambda: 2 in ids(spool))
    assert markers(spool) == []


def test_a_pause_of_an_idle_reader_is_no_gap(admin: Admin, reader: Start, spool: Path) -> None:
    """An idle reader moves the slot far beyond its last transaction; it must know its own doing again."""
    deliver(admin, reader, spool)
    process = reader()
    process.ensure()
    admin.execute("create table other as select g from generate_series(1, 20000) g")
    row = admin.execute("select pg_current_wal_lsn()").fetchone()
    assert row is not None
    moved = "select 1 from pg_replication_slots where confirmed_flush_lsn >= %s"
    wait_until(lambda: admin.execute(moved, [row[0]]).fetchone() is not None)
    process.stop()
    admin.execute("insert into t values (2, 'b')")
    reader().ensure()
    wait_until(lambda: 2 in ids(spool))


@pytest.fixture
def source_of(spool: Path) -> Iterator[Callable[[str], CdcStreamReader]]:
    made: list[CdcStreamReader] = []

    def make(url: str) -> CdcStreamReader:
        options = {"url": url, "slot": "s", "publication": "p", "spool": str(spool), "confirm": "pipeline"}
        made.append(CdcStreamReader(CdcOptions.from_spark(options)))
        return made[-1]

    yield make
    for source in made:
        if source._reader is not None:
            source._reader.stop()


def test_a_spark_checkpoint_without_its_spool_is_refused(
    admin: Admin, reader: Start, spool: Path, url: str, source_of: Callable[[str], CdcStreamReader]
) -> None:
    """In somebody's own Spark the checkpoint lives elsewhere, and may outlive the memory beside the spool."""
    process = reader()
    start = process.ensure()
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: ids(spool) == [1])
    confirm_all(admin, spool)
    process.stop()
    checkpoint = {"lsn": start.start_lsn, "timeline": 1}
    shutil.rmtree(spool)
    source = source_of(url)
    with pytest.raises(StateError, match="the changes between are gone"):
        source.latestOffset(checkpoint, source.getDefaultReadLimit())
    far = {"lsn": start.start_lsn + (1 << 40), "timeline": 1}
    with pytest.raises(StateError, match="restored from a backup"):
        source.latestOffset(far, source.getDefaultReadLimit())
    with pytest.raises(StateError, match="does not descend"):
        source.latestOffset({"lsn": start.start_lsn, "timeline": 7}, source.getDefaultReadLimit())


# Servers that were restored, or took over ---------------------------------------------------------------------


@pytest.fixture(params=[pytest.param(STOCK_VERSION, marks=needs_stock), 18], ids="pg{}".format)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that a test may break."""
    (tmp_path / "own").mkdir()
    server = new_server(tmp_path / "own", request.param)
    server.start()
    prepare(server.url)
    yield server
    server.stop()


@pytest.fixture
def own_reader(own: PostgresServer, spool: Path) -> Iterator[Start]:
    yield from readers(own.url.replace("user=headgate", "user=bridge"), spool)


def insert(server: PostgresServer, *numbers: int) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for number in numbers:
            connection.execute("insert into t values (%s, 'x')", [number])


def read_and_confirm(server: PostgresServer, process: ReaderProcess, spool: Path, *numbers: int) -> None:
    process.ensure()
    insert(server, *numbers)
    wait_until(lambda: set(numbers) <= set(ids(spool)))
    with psycopg.connect(server.url, autocommit=True) as connection:
        confirm_all(connection, spool)


def deliver_and_restore(server: PostgresServer, reader: Start, spool: Path) -> None:
    """Deliver more than a copy of the data has, then put that copy in its place."""
    process = reader()
    read_and_confirm(server, process, spool, 1)
    process.stop()
    server.stop()
    copy = copy_of(server, server.data.with_name("copy"))
    server.start()
    process = reader()
    read_and_confirm(server, process, spool, 2, 3)
    process.stop()
    server.kill()
    shutil.rmtree(server.data)
    copy.rename(server.data)
    server.start()


def test_a_server_restored_from_a_copy_is_refused(own: PostgresServer, own_reader: Start, spool: Path) -> None:
    """Its slot is there, its system id is right, and it has not come as far as what was delivered."""
    deliver_and_restore(own, own_reader, spool)
    with pytest.raises(StateError, match="restored from a backup"):
        own_reader().ensure()


def test_a_restored_server_that_has_gone_on_is_refused(own: PostgresServer, own_reader: Start, spool: Path) -> None:
    """By now it has written more than was delivered, but other transactions: the one that was last is not in it."""
    deliver_and_restore(own, own_reader, spool)
    with psycopg.connect(own.url, autocommit=True) as connection:
        connection.execute("insert into t select g, repeat('x', 100) from generate_series(100, 20000) g")
    process = own_reader()
    process.ensure()
    wait_until(lambda: status(SpoolControl(spool)) == "error")
    with pytest.raises(StateError, match="restored from a backup"):
        process.state()


def test_a_standby_without_the_slot_is_refused(own: PostgresServer, spool: Path, tmp_path: Path) -> None:
    standby = standby_of(own, tmp_path / "standby")
    try:
        address = two_hosts(own, standby, "bridge")
        (process, *_), stop = opened(address, spool)
        read_and_confirm(own, process, spool, 1)
        with psycopg.connect(own.url, autocommit=True) as connection:
            wait_for_replay(connection)
        own.kill()
        promote(standby)
        insert(standby, 2)
        wait_until(lambda: status(SpoolControl(spool)) == "error", 120)
        with pytest.raises(StateError, match="the slot is gone"):
            process.state()
        stop()
        with psycopg.connect(standby.url, autocommit=True) as connection:
            assert connection.execute("select 1 from pg_replication_slots").fetchone() is None
    finally:
        standby.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and a standby of PostgreSQL 18 that keeps its failover slots."""
    (tmp_path / "primary").mkdir()
    primary = new_server(tmp_path / "primary", 18)
    primary.start()
    prepare(primary.url)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("select pg_create_physical_replication_slot('standby_slot')")
    standby = standby_of(primary, tmp_path / "standby", slot="standby_slot")
    yield primary, standby
    standby.stop()
    primary.stop()


def wait_for_slot(primary: PostgresServer, standby: PostgresServer) -> None:
    """Until the standby has the slot and may use it after a promotion; what the primary logs lets the slot move."""
    query = "select 1 from pg_replication_slots where slot_name = 's' and synced and not temporary"
    with (
        psycopg.connect(primary.url, autocommit=True) as writer,
        psycopg.connect(standby.url, autocommit=True) as connection,
    ):

        def is_there() -> bool:
            writer.execute("select pg_log_standby_snapshot()")
            return connection.execute(query).fetchone() is not None

        wait_until(is_there, 90)


def test_a_standby_with_the_slot_goes_on_exactly(pair: tuple[PostgresServer, PostgresServer], spool: Path) -> None:
    primary, standby = pair
    (process, *_), stop = opened(two_hosts(primary, standby, "bridge"), spool, failover=True)
    read_and_confirm(primary, process, spool, 1)
    wait_for_slot(primary, standby)
    insert(primary, 2)
    wait_until(lambda: 2 in ids(spool))
    with psycopg.connect(primary.url, autocommit=True) as connection:
        wait_for_replay(connection)
    primary.kill()
    promote(standby)
    insert(standby, 3)
    wait_until(lambda: 3 in ids(spool), 90)
    assert [number for number in ids(spool) if number > 1] == [2, 3]
    assert markers(spool) == []
    state = SpoolControl(spool).read_state()
    assert state is not None
    assert state.timeline == 2
    stop()


def test_transactions_that_a_new_primary_never_had_are_told(
    pair: tuple[PostgresServer, PostgresServer], spool: Path, source_of: Callable[[str], CdcStreamReader]
) -> None:
    """The standby stood still while the old primary went on, and all of that was delivered."""
    primary, standby = pair
    address = two_hosts(primary, standby, "bridge")
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("create type two as (a int, b int); create table typed (id int primary key, v two)")
        connection.execute("alter publication p add table typed")
    (process, *_), stop = opened(address, spool, failover=True)
    read_and_confirm(primary, process, spool, 1)
    wait_for_slot(primary, standby)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        wait_for_replay(connection)
    cut_off(standby)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        gone = "select 1 from pg_stat_replication where application_name = 'standby'"
        wait_until(lambda: connection.execute(gone).fetchone() is None)
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("insert into typed values (100, (1, 2)); alter type two rename attribute a to lost")
        connection.execute("insert into typed values (101, (1, 2)); alter table typed add lost int")
        connection.execute("insert into typed values (102, (1, 2), 3)")
    insert(primary, 2, 3, 4)
    wait_until(lambda: {2, 3, 4} <= set(ids(spool)))
    source = source_of(address)
    before = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    with psycopg.connect(primary.url, autocommit=True) as connection:
        confirm_all(connection, spool)
    primary.kill()
    promote(standby)
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("insert into typed select g, (1, 2)::two from generate_series(201, 300) g")
    insert(standby, 5)
    wait_until(lambda: 5 in ids(spool), 90)
    (marker,) = markers(spool)
    assert marker["reason"] == "timeline"
    after = source.latestOffset(before, source.getDefaultReadLimit())
    assert (before["timeline"], after["timeline"]) == (1, 2)
    (partition,) = source.partitions(before, after)
    decoded = [row for batch in source.read(partition) for row in batch.to_pylist()]
    assert [row["_op"] for row in decoded if row["_table"] == "t" and row["_op"] != "schema"] == ["insert"]
    typed = [row for row in decoded if row["_table"] == "typed" and row["_op"] == "insert"]
    data = [msgspec.msgpack.decode(row["_payload"])["data"] for row in typed]
    assert data == [{"id": number, "v": {"a": 1, "b": 2}} for number in range(201, 301)]
    assert all(row["_position"].startswith("00000002") for row in decoded)
    stop()


def opened(address: str, spool: Path, **more: Any) -> tuple[list[ReaderProcess], Callable[[], None]]:
    options = {"url": address, "slot": "s", "publications": ("p",), "spool": str(spool), **more}
    process = ReaderProcess(ReaderOptions(**options))
    return [process], process.stop


# Publications ---------------------------------------------------------------------------------------------------


@every_version
def test_a_publication_dropped_in_flight_is_told_or_refused(admin: Admin, reader: Start, spool: Path) -> None:
    """While it is away nothing is confirmed. PostgreSQL 18 can go on afterwards, and consumers are told of the gap."""
    process = reader()
    process.ensure()
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: ids(spool) == [1])
    confirm_all(admin, spool)
    admin.execute("drop publication p")
    admin.execute("insert into t values (2, 'published by nobody')")
    wait_until(lambda: status(SpoolControl(spool)) == "reconnecting")
    state = process.state()
    assert state.error is not None
    assert "publication" in state.error["message"]
    before = slot_lsn(admin)
    admin.execute("insert into t values (3, 'published by nobody')")
    admin.execute("create publication p for table t")
    if admin.info.server_version < 180000:
        wait_until(lambda: status(SpoolControl(spool)) == "error", 120)
        with pytest.raises(StateError, match="publication") as caught:
            process.state()
        assert "headgate reset" in caught.value.remedy
        assert slot_lsn(admin) == before
        return
    admin.execute("insert into t values (4, 'b')")
    wait_until(lambda: 4 in ids(spool) and bool(markers(spool)), 60)
    assert {2, 3}.isdisjoint(ids(spool))
    assert {marker["reason"] for marker in markers(spool)} == {"publication"}


@every_version
def test_a_server_out_of_connections_is_waited_for(admin: Admin, reader: Start, spool: Path) -> None:
    """As is a role at its CONNECTION LIMIT. Neither is a matter of passwords."""
    admin.execute("alter role bridge connection limit 0")
    try:
        process = reader()
        thread = threading.Thread(target=process.ensure)
        thread.start()
        wait_until(lambda: status(SpoolControl(spool)) == "reconnecting")
        state = SpoolControl(spool).read_state()
        assert state is not None
        assert state.error is not None
        assert (state.error["kind"], "CONNECTION LIMIT" in state.error["remedy"]) == ("connect", True)
    finally:
        admin.execute("alter role bridge connection limit -1")
    thread.join(60)
    assert status(SpoolControl(spool)) == "streaming"


def test_failover_is_turned_on_for_a_slot_that_was_made_without_it(admin: Admin, reader: Start) -> None:
    first = reader()
    first.ensure()
    first.stop()
    reader(failover=True).ensure()
    assert admin.execute("select failover from pg_replication_slots").fetchone() == (True,)


# What is known and remembered ----------------------------------------------------------------------------------


def test_a_batch_that_the_readers_state_does_not_show_yet(
    admin: Admin, spool: Path, url: str, source_of: Callable[[str], CdcStreamReader]
) -> None:
    """The state is written once a second; a query that is faster must not take its own progress for another server."""
    source = source_of(url)
    offset = source.initialOffset()
    for number in range(1, 31):
        admin.execute("insert into t values (%s, 'x')", [number])
        before = offset
        wait_until(lambda: before != source.latestOffset(before, source.getDefaultReadLimit()))  # noqa: B023
        offset = source.latestOffset(before, source.getDefaultReadLimit())
        source.latestOffset(offset, source.getDefaultReadLimit())
        SpoolControl(spool).confirm(position_of(offset))


@every_version
def test_a_lost_slot_is_told_also_if_the_memory_is_lost_with_it(admin: Admin, reader: Start, spool: Path) -> None:
    """A container without a volume of its own: only the destination knows that there was something before."""
    deliver(admin, reader, spool)
    admin.execute("select pg_drop_replication_slot('s')")
    admin.execute("insert into t values (2, 'nobody kept this')")
    shutil.rmtree(spool)
    SpoolControl(spool).note_delivered(True)
    reader().ensure()
    admin.execute("insert into t values (3, 'after the gap')")
    wait_until(lambda: ids(spool) == [3])
    assert [marker["reason"] for marker in markers(spool)] == ["slot"]


def test_a_server_told_to_stop_waits_for_what_is_not_delivered(
    own: PostgresServer, own_reader: Start, spool: Path
) -> None:
    process = own_reader()
    process.ensure()
    insert(own, 1)
    wait_until(lambda: ids(spool) == [1])
    pid = own.pid
    assert pid is not None
    os.kill(pid, signal.SIGINT)  # a fast shutdown
    with pytest.raises(AssertionError, match="timed out"):
        wait_until(lambda: not own.alive(), 2)
    state = SpoolControl(spool).read_state()
    assert state is not None
    SpoolControl(spool).confirm(WalPosition(state.timeline, state.spool_end_lsn))
    wait_until(lambda: not own.alive(), 60)
