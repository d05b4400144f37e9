"""Nothing lost, nothing doubled, nothing out of order: whoever is killed, and whoever comes back late."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer

from headgate.embedded import Stack
from headgate.model import ConnectError, DeliveryError, HeadgateError, Retry
from headgate.shadow.client import Client, batches_of
from headgate.shadow.links import find_link
from headgate.wire.kafka import stamped
from tests.apache_kafka import ApacheKafka
from tests.gateway.servers import GatewayThread, running
from tests.integration.shadow.mirroring import Mirror
from tests.integration.shadow.test_shadow_mirror import assert_mirrored, create, messages, write

FAILPOINTS = ("shadow.planned", "shadow.accepted", "shadow.sent", "shadow.mapped")


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:10]}"


@contextmanager
def worker(url: str, servers: str, *arguments: str, failpoint: str = "") -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | ({"HEADGATE_FAILPOINT": failpoint} if failpoint else {})
    command = [sys.executable, "-m", "tests.integration.shadow.mirroring", url, servers, *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def trickle(servers: str, topic: str, rows: list[dict[str, Any]]) -> None:
    """Many small batches."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 0, "batch.num.messages": 3})
    for row in rows:
        producer.produce(topic, **row)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_killed_at_each_step(gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str, failpoint: str) -> None:
    """Also twice in a row; with two partitions, the first may be done and the second not begun."""
    create(gateway.bootstrap, topic, 2)
    Mirror(url, kafka.servers).ensure()
    for number in range(2):
        for partition in range(2):
            trickle(gateway.bootstrap, topic, messages(30, partition, f"{number}"))
        with worker(url, kafka.servers, "--once", failpoint=failpoint) as process:
            assert process.wait(60) == -signal.SIGKILL
    Mirror(url, kafka.servers).ensure().to_the_end()
    assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 2)


def test_killed_at_any_time_while_messages_come(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    create(gateway.bootstrap, topic, 2)
    stop = threading.Event()
    written = 0

    def keep_writing() -> None:
        nonlocal written
        while not stop.is_set():
            trickle(gateway.bootstrap, topic, messages(20, written % 2, f"{written}"))
            written += 1

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        for _ in range(6):
            with worker(url, kafka.servers) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                stop.wait(random.uniform(0.05, 0.5))
                process.send_signal(signal.SIGKILL)
    finally:
        stop.set()
        writer.join()
    Mirror(url, kafka.servers).ensure().to_the_end()
    found = assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 2)
    assert sum(map(len, found)) == written * 20


def test_what_a_zombie_sends_late_changes_nothing(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    """Its batches as they are on the wire: those of long ago, the last ones, and one that it was first to send."""
    create(gateway.bootstrap, topic, 1)
    trickle(gateway.bootstrap, topic, messages(60, 0))
    mirror = Mirror(url, kafka.servers).ensure()
    mirror.to_the_end()
    client = Client(mirror.destination.cluster)
    found = client.topic(topic)
    assert found is not None
    sent = batches_of(client.fetch(found, 0, 0))
    assert len(sent) > 10
    for header, batch in (sent[0], sent[-1]):
        client.post_batch(found, 0, batch)
        answer = client.take_batch(found, 0)
        assert answer.error_code or answer.base_offset == header.base_offset
    write(gateway.bootstrap, topic, messages(4, 0, "next"))
    with psycopg.connect(url) as connection:
        link = find_link(connection, "mirror")
        row = connection.execute("select data from kafka.batches order by base_offset desc limit 1").fetchone()
    assert link is not None
    assert link.producer_id is not None
    assert row is not None
    client.post_batch(found, 0, stamped(row[0], link.producer_id, 0, 60))
    assert client.take_batch(found, 0).base_offset == 60
    with pytest.raises(HeadgateError):
        mirror.run()  # it has not planned what lies there
    client.close()


def test_a_zombie_that_is_faster_is_recognised(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    """It had planned the batch, and its request arrives when the next run has looked at the end already."""
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(4, 0))
    with worker(url, kafka.servers, "--once", failpoint="shadow.planned") as process:
        assert process.wait(60) == -signal.SIGKILL
    mirror = Mirror(url, kafka.servers).ensure()
    client = Client(mirror.destination.cluster)
    found = client.topic(topic)
    assert found is not None
    with psycopg.connect(url) as connection:
        link = find_link(connection, "mirror")
        row = connection.execute("select data from kafka.batches").fetchone()
    assert link is not None
    assert link.producer_id is not None
    assert row is not None
    client.post_batch(found, 0, stamped(row[0], link.producer_id, 0, 0))
    assert client.take_batch(found, 0).error_code == 0
    mirror.to_the_end()
    client.post_batch(found, 0, stamped(row[0], link.producer_id, 0, 0))
    assert client.take_batch(found, 0).base_offset == 0, "and again"
    client.close()
    write(gateway.bootstrap, topic, messages(4, 0, "next"))
    mirror.to_the_end()
    assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 1)


def test_a_cluster_that_forgot_the_producer_is_told_by_an_epoch(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    """Our count of records and the number that the broker expects differ: the next epoch begins with 0."""
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(4, 0))
    mirror = Mirror(url, kafka.servers).ensure()
    mirror.to_the_end()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update kafka.shadow_partitions set epoch_records = -7")
    write(gateway.bootstrap, topic, messages(4, 0, "next"))
    with pytest.raises(DeliveryError, match="OUT_OF_ORDER"):
        mirror.run()
    mirror.to_the_end()
    write(gateway.bootstrap, topic, messages(4, 0, "last"))
    mirror.to_the_end()
    assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 1)


def test_kafka_is_killed_and_comes_back(url: str, gateway: GatewayThread, tmp_path: Path, topic: str) -> None:
    with ApacheKafka(tmp_path / "kafka") as own:
        create(gateway.bootstrap, topic, 1)
        mirror = Mirror(url, own.servers).ensure()
        for number in range(2):
            trickle(gateway.bootstrap, topic, messages(200, 0, f"{number}"))
            killer = threading.Timer(0.02 * number, own.kill)
            killer.start()
            with suppress(ConnectError):  # it may have been faster
                mirror.run()
            killer.join()
            with pytest.raises(ConnectError):
                mirror.destination.check()
            own.start()
        mirror.to_the_end()
        found = assert_mirrored(url, gateway.bootstrap, own.servers, topic, 1)
        assert len(found[0]) == 400


def test_postgresql_is_killed_and_comes_back(kafka: ApacheKafka, tmp_path: Path, topic: str) -> None:
    directory = tmp_path / "stack"
    with Stack(directory, nats=False) as stack:
        assert stack.postgres_url is not None
        mirror = Mirror(stack.postgres_url, kafka.servers)
        with running(stack.postgres_url) as gateway:
            create(gateway.bootstrap, topic, 1)
            trickle(gateway.bootstrap, topic, messages(100, 0))
            mirror.ensure().run()
            trickle(gateway.bootstrap, topic, messages(100, 0, "more"))
    with pytest.raises(HeadgateError) as told:
        mirror.run()
    assert told.value.retry is Retry.BACKOFF
    with Stack(directory, nats=False) as stack, running(str(stack.postgres_url)) as gateway:
        mirror = Mirror(str(stack.postgres_url), kafka.servers).ensure()
        mirror.to_the_end()
        found = assert_mirrored(str(stack.postgres_url), gateway.bootstrap, kafka.servers, topic, 1)
        assert len(found[0]) == 200
