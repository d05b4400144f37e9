"""Transactional clients while gateways and PostgreSQL are killed: all of a transaction or nothing, and once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.embedded.postgres import PostgresServer
from tests.acceptance.test_gateway_chaos import end_backends, free_port, gateway_process, listening
from tests.cdc import Chaos, Fault, Victim, crash, restart
from tests.gateway.transactional_workers import Copier, TransactionReader, TransactionWriter
from tests.gateway.transactions import TransactionHistory, check_copies, check_transactions
from tests.gateway.workers import read_log, wait_until
from tests.stock import StockPostgres, both_servers

pytestmark = pytest.mark.timeout(400)

TOPIC, COPIES, PARTITIONS, SECONDS = "orders", "copies", 3, 30


@contextmanager
def _postgres(which: str, directory: Path) -> Iterator[PostgresServer]:
    """A server whose commits are on disk: the embedded one or Debian's."""
    (directory / "run").mkdir()
    if which == "embedded":
        server = PostgresServer(directory / "postgres", directory / "run", durable=True)
    else:
        server = StockPostgres(directory / "postgres", directory / "run", settings={"fsync": "on"})
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("which", both_servers)
def test_transactions_are_whole_whatever_is_killed(tmp_path: Path, which: str) -> None:
    """Writers that commit and abort, readers, and two copiers from topic to topic, exactly once."""
    with _postgres(which, tmp_path) as postgres:
        url = postgres.url
        ports = [free_port(), free_port()]
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        with gateway_process(tmp_path, url, ports[0]) as first, gateway_process(tmp_path, url, ports[1]) as second:
            wait_until(lambda: all(map(listening, ports)), 240, "the gateways do not start")
            admin = AdminClient({"bootstrap.servers": servers})
            for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS), NewTopic(COPIES, PARTITIONS)]).values():
                made.result(20)
            history = TransactionHistory()
            writers = [TransactionWriter(f"w{n}", servers, TOPIC, PARTITIONS, history) for n in range(2)]
            copiers = [Copier(f"c{n}", servers, TOPIC, COPIES) for n in range(2)]
            readers = [TransactionReader(f"r{n}", servers, TOPIC, history) for n in range(1)]
            for worker in (*readers, *copiers, *writers):
                worker.start()
            faults = [
                _kill(first, ports[0]),
                _kill(second, ports[1]),
                end_backends(url),
                restart(postgres),
                crash(postgres),
            ]
            strikes = Chaos(seed=11, faults=faults, count=8, seconds=SECONDS, pause_s=(1, 3)).run()
            assert len(strikes) >= 5, strikes
            for writer in writers:
                writer.stop(240)
            wait_until(lambda: _open(url) == 0, 120, "a transaction stays open")
            log = read_log(servers, TOPIC, PARTITIONS)
            wanted = sum(map(len, log.values()))
            wait_until(lambda: _committed(url, COPIES) >= wanted, 120, "the copiers do not catch up")
            for copier in copiers:
                copier.stop(120)
            for reader in readers:
                reader.stop(60)
            wait_until(lambda: _open(url) == 0, 120, "a transaction of a copier stays open")
            left = "select count(*) from kafka.states where cardinality(open_offsets) > 0"
            assert _count(url, left) == 0, "readers wait for a transaction that is over"
            assert _count(url, "select count(*) from kafka.pending_offsets") == 0
            assert check_transactions(history, log) == [], strikes
            assert check_copies(log, read_log(servers, COPIES, PARTITIONS)) == [], strikes
            ended = [transaction.ended for done in history.done.values() for transaction in done]
            assert ended.count("committed") > 50, ended
            assert ended.count("aborted") > 20, ended
            assert "a handler failed" not in (tmp_path / "gateways.log").read_text()


def _kill(gateway: Victim, port: int) -> Fault:
    """Kill it with -9, and wait for the next one: one that begins while PostgreSQL is away ends, as it should."""

    def strike(_rng: object) -> None:
        gateway.kill()
        gateway.start()
        wait_until(lambda: listening(port), 60, "the gateway does not come back")

    return Fault("kill -9", strike, 2)


def _open(url: str) -> int:
    return _count(url, "select count(*) from kafka.transactions where state = 'Ongoing'")


def _committed(url: str, topic: str) -> int:
    return _count(url, f"select count(*) from kafka.messages where topic = '{topic}'")


def _count(url: str, query: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])
