"""What a server that dies leaves behind: everything that was committed."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headgate.broker import install
from headgate.embedded.postgres import PostgresServer
from tests.integration.broker.brokers import Broker, Headgate, Original, drain


def publish(broker: Broker) -> None:
    broker.subscribe("g", "e.topic is not null")
    broker.db.execute("checkpoint")
    broker.publish(*[("t", number) for number in range(100)])
    for number in range(10):
        broker.schedule("later", number, "1 millisecond")


def test_a_crash_loses_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """H2: events that were not dispatched, and scheduled ones. The original has them in an unlogged table."""
    directory = tmp_path_factory.mktemp("crash")
    (directory / "run").mkdir()
    server = PostgresServer(directory / "data", directory / "run", durable=False)
    server.start()
    try:
        with psycopg.connect(server.url, autocommit=True) as db:
            install(db)
            db.execute(Path(__file__).with_name("original.sql").read_bytes())
            for broker in (Headgate(db), Original(db)):
                publish(broker)
            server.kill()
        server.start()
        with psycopg.connect(server.url, autocommit=True) as db:
            for broker, expected in ((Headgate(db), 110), (Original(db), 0)):
                broker.poll()
                assert len(drain(broker, "g")) == expected
    finally:
        server.stop()


def test_no_table_is_unlogged(db: psycopg.Connection) -> None:
    unlogged = db.execute(
        "select relname from pg_class where relnamespace = 'headgate'::regnamespace and relpersistence <> 'p'"
    )
    assert unlogged.fetchall() == []
