"""Under load, and while commits hang: a snapshot has exactly the rows that its rule predicts from the stream."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from headgate.embedded import Stack
from headgate.sources.postgres_snapshot.copying import SnapshotRange
from headgate.sources.postgres_snapshot.options import SnapshotOptions
from headgate.sources.postgres_snapshot.plan import plan_table
from headgate.sources.postgres_snapshot.points import Method, Point, take_point
from headgate.sources.postgres_snapshot.reading import ROW, read_range
from headgate.wire.pgoutput import Decoder, Insert, Transaction, parse_lsn
from tests.cdc.assembler import Assembler

Admin = psycopg.Connection[Any]

WRITERS = 4
ROUNDS = 5


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: the tests here let its commits hang."""
    with Stack(tmp_path_factory.mktemp("exact"), durable=False) as endpoints:
        assert endpoints.postgres_url is not None
        yield endpoints.postgres_url


@pytest.fixture
def admin(url: str) -> Iterator[Admin]:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("create table t (id bigint generated always as identity primary key, n int)")
        admin.execute("create publication p for table t")
        admin.execute("select pg_create_logical_replication_slot('main', 'pgoutput')")
        yield admin
        hang(admin, False)
        admin.execute("drop publication p; drop table t; select pg_drop_replication_slot('main')")


def hang(admin: Admin, on: bool) -> None:
    """Commits wait for a standby that never comes: they are in the stream, but snapshots do not see them."""
    value = "set synchronous_standby_names = 'nobody'" if on else "reset synchronous_standby_names"
    admin.execute(f"alter system {value}".encode())
    admin.execute("select pg_reload_conf()")


def transactions(admin: Admin) -> list[Transaction]:
    """What the slot streams, from its begin."""
    rows = admin.execute(
        "select lsn::text, data from pg_logical_slot_peek_binary_changes('main', null, null,"
        " 'proto_version', '1', 'publication_names', 'p')"
    )
    decoder, assembler = Decoder(1), Assembler()
    done = [assembler.feed(decoder.decode(bytes(data)), parse_lsn(lsn)) for lsn, data in rows]
    return [each for each in done if each is not None]


def ids(transaction: Transaction) -> set[int]:
    bodies = [change.body for change in transaction.changes]
    return {int(body.new[0]) for body in bodies if isinstance(body, Insert) and isinstance(body.new[0], bytes)}


def contains(point: Point, transaction: Transaction) -> bool:
    """The rules of docs/snapshots.md."""
    if point.method == "export":
        return transaction.commit_lsn < point.lsn
    assert transaction.xid is not None
    xid = transaction.xid | (point.xmax >> 32 << 32)
    return xid < point.xmin or (xid < point.xmax and xid not in point.xip)


@dataclass
class Load:
    """Writers with pauses in their transactions, some of which they roll back."""

    url: str
    seed: int

    def __enter__(self) -> Load:
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        for thread in self._threads:
            thread.start()
        return self

    def _write(self, number: int) -> None:
        rng = random.Random(self.seed * 100 + number)
        with psycopg.connect(self.url) as connection:
            while not self._end.is_set():
                for _ in range(rng.randint(1, 5)):
                    connection.execute("insert into t (n) values (%s)", [number])
                    if rng.random() < 0.3:
                        self._end.wait(rng.random() * 0.02)
                if rng.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)


class Pulse(threading.Thread):
    """Lets commits hang for moments, again and again."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._end = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as admin:
            while not self._end.wait(0.03):
                hang(admin, True)
                self._end.wait(0.08)
                hang(admin, False)

    def stop(self) -> None:
        self._end.set()
        self.join(10)


def snapshot(url: str, method: Method) -> tuple[Point, set[int]]:
    with take_point(url, method, "public", "t", 30) as point:
        plan = plan_table(url, "public", "t", ("p",))
        options = SnapshotOptions(url, "t", "p")
        ranges = [SnapshotRange(plan, part, point.snapshot_name) for part in plan.ranges(2, least_blocks=1)]
        rows = [row for range_ in ranges for batch in read_range(options, range_) for row in batch[ROW].to_pylist()]
    return point, {msgspec.msgpack.decode(row)["id"] for row in rows}


@pytest.mark.timeout(120)
def test_both_rules_are_exact_under_load(url: str, admin: Admin) -> None:
    taken: list[tuple[Point, set[int]]] = []
    published: list[int] = []  # how many transactions the stream had before each snapshot was begun
    pulse = Pulse(url)
    with Load(url, seed=1):
        pulse.start()
        for _ in range(ROUNDS):
            for method in ("filter", "export"):
                published.append(len(transactions(admin)))
                taken.append(snapshot(url, method))
        pulse.stop()
    streamed = transactions(admin)
    for (point, rows), before in zip(taken, published, strict=True):
        assert rows == set().union(*(ids(each) for each in streamed if contains(point, each)))
        # Nothing that was published before need be read again: it is in the rows.
        assert set().union(*(ids(each) for each in streamed[:before])) <= rows
    assert 0 < len(taken[0][1]) < len(taken[-1][1])


@pytest.mark.parametrize("method", ["filter", "export"])
def test_a_commit_that_hangs_is_waited_for(url: str, admin: Admin, method: Method) -> None:
    """It is published, no snapshot sees it, and it is no member of `xip` either, being the newest of all."""
    hang(admin, True)
    writer = threading.Thread(target=_insert, args=(url,))
    writer.start()
    while not transactions(admin):
        admin.execute("select pg_sleep(0.01)")
    ((seen, running),) = admin.execute(
        "select (select count(*) from t), (select count(*) from pg_snapshot_xip(pg_current_snapshot()))"
    ).fetchall()
    assert (seen, running) == (0, 0)
    taken: list[tuple[Point, set[int]]] = []
    taking = threading.Thread(target=lambda: taken.append(snapshot(url, method)))
    taking.start()
    taking.join(0.3)
    assert taking.is_alive()
    hang(admin, False)
    taking.join(20)
    writer.join(20)
    ((point, rows),) = taken
    assert rows == {1}
    assert contains(point, transactions(admin)[0])


def _insert(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("insert into t (n) values (1)")


def test_a_version_back(tmp_path: Path) -> None:
    """PostgreSQL 16 has other catalogs and no transaction_timeout."""
    with Stack(tmp_path, postgres_version=16, durable=False) as endpoints:
        url = endpoints.postgres_url
        assert url is not None
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("create table t (id int primary key, a text, twice int generated always as (id * 2) stored)")
            admin.execute("create publication p for table t (id, a) where (id > 1)")
            admin.execute("insert into t values (1, 'x'), (2, 'y'), (3, null)")
        for method in ("filter", "export"):
            assert snapshot(url, method)[1] == {2, 3}
