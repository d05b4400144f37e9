"""Offsets of groups at the other cluster: exact, never taken back, never over a group that somebody uses."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer
from confluent_kafka.cimpl import TopicPartition

from headgate.shadow.client import borrow_client
from headgate.shadow.cluster import Cluster
from headgate.shadow.coordinators import committed_offsets
from headgate.shadow.groups import GroupOffset, push_groups
from headgate.shadow.links import find_link
from tests.apache_kafka import ApacheKafka
from tests.gateway.servers import GatewayThread
from tests.integration.shadow.mirroring import Mirror, consumed
from tests.integration.shadow.test_shadow_mirror import create, messages, write


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:10]}"


@pytest.fixture
def group() -> str:
    return f"g-{uuid4().hex[:10]}"


def commit(servers: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, partition, offset, "a remark")], asynchronous=False)
    consumer.close()


def committed(servers: str, group: str) -> dict[tuple[str, int], int]:
    with borrow_client(Cluster(servers=servers)) as client:
        return committed_offsets(client, group)


def push(mirror: Mirror, **options: Any) -> list[GroupOffset]:
    with psycopg.connect(mirror.url, autocommit=True) as connection:
        link = find_link(connection, mirror.name)
        assert link is not None
        return push_groups(connection, mirror.destination.cluster, link, **options)


def states(mirror: Mirror, **options: Any) -> list[str]:
    return [each.state for each in push(mirror, **options)]


def test_offsets_are_translated_over_markers(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str, group: str
) -> None:
    """A consumer that goes on there reads exactly what it would have read here."""
    from confluent_kafka import Producer

    create(gateway.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for row in messages(3, 0, f"t{number}"):
            producer.produce(topic, **row)
        producer.flush(30)
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(30)
    mirror = Mirror(url, kafka.servers, groups=("*",)).ensure()
    mirror.to_the_end()
    (source,) = consumed(gateway.bootstrap, topic, 1)
    (target,) = consumed(kafka.servers, topic, 1)
    end = source[-1][0] + 2  # behind the marker
    for at in range(end + 1):
        commit(gateway.bootstrap, group, topic, at)
        assert states(mirror) == ["pushed"]
        offset = committed(kafka.servers, group)[topic, 0]
        left_here = [each[1:] for each in source if each[0] >= at]
        assert [each[1:] for each in target if each[0] >= offset] == left_here, at


def test_an_offset_that_is_not_mirrored_waits(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str, group: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(5, 0))
    mirror = Mirror(url, kafka.servers, groups=("g-*",)).ensure()
    mirror.to_the_end()
    write(gateway.bootstrap, topic, messages(5, 0))
    commit(gateway.bootstrap, group, topic, 8)
    assert states(mirror, again=True) == ["waiting"]
    assert committed(kafka.servers, group).get((topic, 0), -1) < 0
    mirror.to_the_end()
    assert states(mirror) == ["pushed"]
    assert committed(kafka.servers, group)[topic, 0] == 8


def test_a_group_is_never_taken_back(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str, group: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(10, 0))
    mirror = Mirror(url, kafka.servers, groups=("*",)).ensure()
    mirror.to_the_end()
    commit(kafka.servers, group, topic, 9)
    commit(gateway.bootstrap, group, topic, 4)
    assert states(mirror) == ["ahead"]
    assert committed(kafka.servers, group)[topic, 0] == 9
    commit(gateway.bootstrap, group, topic, 10)
    assert states(mirror) == ["pushed"]
    commit(gateway.bootstrap, group, topic, 2)
    assert states(mirror) == ["ahead"], "somebody reads again from the start: here alone"
    assert committed(kafka.servers, group)[topic, 0] == 10


def test_a_group_that_is_used_there_is_left_alone(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str, group: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(10, 0))
    mirror = Mirror(url, kafka.servers, groups=("*",)).ensure()
    mirror.to_the_end()
    commit(gateway.bootstrap, group, topic, 4)
    consumer = Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
    try:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        assert states(mirror) == ["live"]
    finally:
        consumer.close()
    assert states(mirror) in (["ahead"], ["pushed"]), "its consumer has gone"


def test_only_groups_that_are_asked_for(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str, group: str
) -> None:
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(3, 0))
    mirror = Mirror(url, kafka.servers, groups=("billing-*",)).ensure()
    mirror.to_the_end()
    commit(gateway.bootstrap, group, topic, 2)
    assert states(mirror) == []
    assert states(mirror, groups=["*"], topics=["another"]) == []
    assert states(mirror, groups=["*"], topics=[topic]) == ["pushed"]


def test_the_destination_pushes_by_itself(
    gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str, group: str
) -> None:
    """And a trouble of that is shown, and passes."""
    create(gateway.bootstrap, topic, 1)
    write(gateway.bootstrap, topic, messages(3, 0))
    mirror = Mirror(url, kafka.servers, groups=("*",), group_interval_s=0.1).ensure()
    mirror.to_the_end()
    mirror.destination.start()
    try:
        commit(gateway.bootstrap, group, topic, 2)
        wait_for(lambda: committed(kafka.servers, group).get((topic, 0)) == 2)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter table kafka.shadow_groups rename to hidden")
            wait_for(lambda: "shadow_groups" in str(mirror.destination.details().get("groups_error")))
            connection.execute("alter table kafka.hidden rename to shadow_groups")
        wait_for(lambda: mirror.destination.details().get("groups_error") is None)
        assert mirror.destination.details()["lag_records"] == 0
    finally:
        mirror.destination.stop()


def wait_for(condition: Any, timeout_s: float = 30) -> None:
    import time

    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
