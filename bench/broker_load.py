"""Loads of the broker's measurement: publishers, dispatchers and readers, beside a plain table and a queue table."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from headgate.broker import install

__all__ = [
    "BY_TOPIC",
    "PEERS",
    "Ledger",
    "Session",
    "consume_group",
    "consume_queue",
    "dispatch_all",
    "dispatch_original",
    "fresh",
    "install_original",
    "install_peer",
    "keep",
    "open_session",
    "publish",
    "read_chunk",
    "read_group",
    "read_original",
    "read_pgmq",
    "read_queue",
    "rows",
    "scans_of_events",
]

ORIGINAL = Path(__file__).parents[1] / "tests" / "integration" / "broker" / "original.sql"
BY_TOPIC = "s.params @> jsonb_build_object('topic', e.topic)"
_PLAIN = """
create schema peers;
create table peers.plain (
  seq bigint generated always as identity primary key, topic text not null, payload jsonb not null);
create table peers.queue (like peers.plain including all);
"""
# The same rows, the same arrays, the same answer.
STATEMENTS = {
    "broker": b"select publish_v1($1, $2::jsonb[])",
    "insert": b"insert into events (topic, payload) select * from unnest($1::text[], $2::jsonb[]) returning id",
    "original": b"insert into original.events (topic, payload)"
    b" select * from unnest($1::text[], $2::jsonb[]) returning id",
    "plain": b"insert into peers.plain (topic, payload) select * from unnest($1::text[], $2::jsonb[]) returning seq",
    "queue": b"insert into peers.queue (topic, payload) select * from unnest($1::text[], $2::jsonb[]) returning seq",
    "pgmb": b"insert into pgmb.events (topic, payload) select * from unnest($1::text[], $2::jsonb[]) returning id",
    "pgmq": b"select pgmq.send_batch('bench', $2::jsonb[]) where $1::text[] is not null",
}
# Others' own SQL, from files that these variables name: what is not given is not measured.
PEERS = {"pgmb": "HEADGATE_BENCH_PGMB", "pgmq": "HEADGATE_BENCH_PGMQ"}
_TAKE = """
delete from peers.queue where seq = any (array(
  select seq from peers.queue order by seq for update skip locked limit %s)) returning seq, topic, payload
"""
Session = psycopg.Connection[Any]


def open_session(url: str, *, durable: bool = False) -> Session:
    options = f"-c search_path=headgate,pg_temp -c synchronous_commit={'on' if durable else 'off'}"
    return psycopg.connect(url, autocommit=True, options=options)


@contextmanager
def fresh(server: str) -> Iterator[str]:
    """A database of its own, with the broker and its peers in it."""
    name = f"bench_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        url = make_conninfo(server, dbname=name)
        with psycopg.connect(url, autocommit=True) as made:
            install(made)
            made.execute(_PLAIN)
        yield url
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def rows(count: int, topics: int) -> tuple[list[str], list[str]]:
    """Payloads of about 200 bytes, already JSON: what is compared is the server's work."""
    return [f"t{n % topics}" for n in range(count)], [f'{{"n": {n}, "note": "{"x" * 180}"}}' for n in range(count)]


def publish(url: str, to: str, *, batch: int, events: int, connections: int = 4, durable: bool = False) -> float:
    """Events per second of several connections, each statement a transaction.

    Prepared, with arrays that are made beforehand and handed to libpq: what Python takes for a statement would be most
    of it, and the same for all.
    """
    values = [_array(column) for column in rows(batch, 100)]
    each = max(1, events // batch // connections)
    ready = threading.Barrier(connections + 1)

    def work() -> None:
        try:
            with open_session(url, durable=durable) as session:
                _expect(session.pgconn.prepare(b"publish", STATEMENTS[to]), pq.ExecStatus.COMMAND_OK)
                for number in range(each + 1):
                    _expect(session.pgconn.exec_prepared(b"publish", values), pq.ExecStatus.TUPLES_OK)
                    if number == 0:
                        ready.wait()
        except BaseException:
            ready.abort()  # nobody waits for one that will not come
            raise

    with ThreadPoolExecutor(connections) as pool:
        working = [pool.submit(work) for _ in range(connections)]
        with suppress(threading.BrokenBarrierError):
            ready.wait()
        begin = time.perf_counter()
        for done in working:
            done.result()
        return each * connections * batch / (time.perf_counter() - begin)


def _array(values: Sequence[str]) -> bytes:
    """As PostgreSQL writes one of texts."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return ("{" + ",".join(f'"{value}"' for value in escaped) + "}").encode()


def _expect(result: pq.abc.PGresult, status: pq.ExecStatus) -> None:
    if result.status != status:
        raise RuntimeError(result.error_message.decode())


def keep(url: str, events: int) -> None:
    """Put events into the log that count as dispatched, as `rebase` marks those of another cluster."""
    insert = (
        "insert into events (xid, topic, payload) select '1', 't' || n %% 100, jsonb_build_object('n', n)"
        " from generate_series(1, %s::int) as n"
    )

    def work(_: int) -> None:
        with open_session(url) as session:
            session.execute(insert, [events // 4])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def scans_of_events(session: Session) -> int:
    """How often partitions of events were read from end to end, as PostgreSQL counts it."""
    session.execute("select pg_stat_force_next_flush()")
    query = (
        "select sum(seq_scan)::bigint from pg_stat_user_tables where relname like 'events\\_%%' and n_live_tup > 1000"
    )
    return int(session.execute(query, []).fetchall()[0][0] or 0)


def dispatch_all(session: Session) -> tuple[int, float]:
    """Events that were waiting, and events per second."""
    count, begin = 0, time.perf_counter()
    while True:
        dispatched, more = session.execute("select dispatched, more from poll_for_events_v1()").fetchall()[0]
        count += dispatched
        if not more:
            return count, count / (time.perf_counter() - begin)


def read_group(session: Session, group: str, chunk: int) -> tuple[int, float]:
    """Everything that waits for a group, a chunk at a time."""
    count, begin = 0, time.perf_counter()
    while found := read_chunk(session, group, chunk):
        count += len(found)
    return count, count / (time.perf_counter() - begin)


def read_queue(session: Session, chunk: int) -> tuple[int, float]:
    count, begin = 0, time.perf_counter()
    while found := session.execute(_TAKE, [chunk]).fetchall():
        count += len(found)
    return count, count / (time.perf_counter() - begin)


def read_chunk(session: Session, group: str, chunk: int) -> list[Any]:
    """The next events of a group, and its cursor behind them."""
    query = "select id, topic, payload, pos from read_next_events_v1(%s, null, %s, false, 'bench')"
    found = session.execute(query, [group, chunk]).fetchall()
    if found:
        session.execute("select set_group_cursor_v1(%s, %s, false, 'bench', null)", [group, found[-1][3]])
    return found


def install_original(url: str, subscriptions: Sequence[tuple[str, str, str]]) -> None:
    """The model of the broker that ours replaces, which the tests have, with these subscriptions."""
    with psycopg.connect(url, autocommit=True) as session, session.cursor() as cursor:
        cursor.execute(ORIGINAL.read_bytes())
        cursor.executemany("select original.assert_subscription(%s, %s, %s::jsonb, null)", subscriptions)


def dispatch_original(session: Session) -> tuple[int, float]:
    count = session.execute("select count(*) from original.unread_events").fetchall()[0][0]
    begin = time.perf_counter()
    while session.execute("select original.poll_for_events()").fetchall() != [(0,)]:
        pass
    return count, count / (time.perf_counter() - begin)


def read_original(session: Session, group: str, chunk: int) -> tuple[int, float]:
    count, begin = 0, time.perf_counter()
    query = "select * from original.read_next_events(%s, null, %s)"
    while found := session.execute(query, [group, chunk]).fetchall():
        count += len(found)
        session.execute("select original.set_group_cursor(%s, %s, false)", [group, found[0][4]])
    return count, count / (time.perf_counter() - begin)


def install_peer(url: str, name: str) -> bool:
    """Whether there is this one's SQL, and the server has what it needs."""
    path = os.environ.get(PEERS[name])
    if path is None:
        return False
    with psycopg.connect(url, autocommit=True) as session:
        try:
            session.execute(Path(path).read_bytes())
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.SyntaxError):  # no extension, or too old a server
            return False
        if name == "pgmq":
            session.execute("select pgmq.create('bench')")
        return True


def read_pgmq(session: Session, chunk: int) -> tuple[int, float]:
    """As its clients do: a chunk is hidden from others, and deleted when it was handled."""
    count, begin = 0, time.perf_counter()
    while found := session.execute("select msg_id, message from pgmq.read('bench', 60, %s)", [chunk]).fetchall():
        count += len(found)
        session.execute("select pgmq.delete('bench', %s::bigint[])", [[row[0] for row in found]])
    return count, count / (time.perf_counter() - begin)


class Ledger:
    """What was published and what arrived. A rate counts only with nothing missing and nothing doubled."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.doubled = 0

    def arrive(self, ids: list[int]) -> None:
        before = len(self.seen)
        self.seen.update(ids)
        self.doubled += len(ids) - (len(self.seen) - before)


def consume_group(url: str, group: str, ledger: Ledger, is_over: Callable[[], bool]) -> None:
    """Dispatch and read until the publishers have ended and nothing is left."""
    with open_session(url) as session:
        while True:
            ending = is_over()
            session.execute("select poll_for_events_v1()").fetchall()
            found = read_chunk(session, group, 10_000)
            ledger.arrive([row[0] for row in found])
            if not found and ending:
                return


def consume_queue(url: str, ledger: Ledger, is_over: Callable[[], bool]) -> None:
    with open_session(url) as session:
        while True:
            ending = is_over()
            found = session.execute(_TAKE, [10_000]).fetchall()
            ledger.arrive([row[0] for row in found])
            if not found and ending:
                return
