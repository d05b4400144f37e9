"""The demo's log: what it counts, and that both commands it shows see the same messages."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator

import psycopg
import pytest
from confluent_kafka import Producer

from headgate.demo.log import DemoLog, prepare_log
from headgate.embedded import Endpoints
from tests.gateway.servers import new_database, running

TOPIC = "cdc.shop.orders.insert"


@pytest.fixture
def url(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as made:
        yield made


def produce(bootstrap: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(10) == 0


def test_the_demo_counts_and_shows_its_messages(url: str) -> None:
    prepare_log(url)
    prepare_log(url)  # as every start does
    with running(url) as gateway:
        produce(gateway.bootstrap, ["of an earlier run"])
        with DemoLog(url, {"advertised": gateway.bootstrap}) as log:
            assert (log.messages, log.arrived, log.first_arrival) == (1, 0, None)
            produce(gateway.bootstrap, [f"{n}" for n in range(5)])
            log.poll()
            assert (log.messages, log.arrived) == (6, 5)
            assert log.first_arrival is not None
            query = shlex.split(log.sql_command)[-1]
            with psycopg.connect(url) as connection:
                assert connection.execute(query.encode()).fetchall() == [("4",), ("3",), ("2",)]
            if shutil.which("kcat"):
                command = shlex.split(log.kcat_command)
                done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
                assert done.stdout.splitlines() == ["2", "3", "4"]


def test_messages_of_the_demo_go_after_an_hour(url: str) -> None:
    prepare_log(url)
    with psycopg.connect(url) as connection:
        found = connection.execute("select distinct configs ->> 'retention.ms' from kafka.topics").fetchall()
    assert found == [("3600000",)]


def test_a_server_that_is_away_is_looked_at_again(url: str) -> None:
    prepare_log(url)
    with DemoLog(url, {"advertised": "127.0.0.1:9092"}) as log, psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'headgate demo' and datname = current_database()"
        )
        log.poll()
        admin.execute("update kafka.partitions set next_offset = 3 where part_id = 1")
        log.poll()
        assert log.arrived == 3
