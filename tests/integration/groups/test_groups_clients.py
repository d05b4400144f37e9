"""Groups of real consumers: they share, come, go, die, come back, and go on where they were."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka import KafkaConsumer
from kafka import TopicPartition as PyPartition
from kafka.structs import OffsetAndMetadata as PyOffset

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.consumer_groups import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread
from tests.integration.groups.members import (
    RawMember,
    create_topic,
    generation,
    member,
    poll_until,
    share_out,
    write,
)

PARTITIONS = 6
KINDS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "roundrobin": {"partition_assignment_strategy": "roundrobin"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
    "consumer-range": {"group_protocol": "consumer", "group_remote_assignor": "range"},
}
TWO = {kind: KINDS[kind] for kind in ("range", "consumer")}


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_members_share_the_partitions_as_they_come_and_go(
    gateway: GatewayThread, name: str, kind: dict[str, Any]
) -> None:
    create_topic(gateway.bootstrap, name, PARTITIONS)
    write(gateway.bootstrap, name, [str(n) for n in range(60)], PARTITIONS)
    with ExitStack() as stack:
        first = stack.enter_context(member(gateway.bootstrap, name, name, **kind))
        poll_until([first], lambda: share_out([first], PARTITIONS) and len(first.values) == 60)
        first.consumer.commit(asynchronous=False)
        with member(gateway.bootstrap, name, name, **kind) as second:
            poll_until([first, second], lambda: share_out([first, second], PARTITIONS))
            with member(gateway.bootstrap, name, name, **kind) as third:
                everybody = [first, second, third]
                poll_until(everybody, lambda: share_out(everybody, PARTITIONS))
                write(gateway.bootstrap, name, [f"new {n}" for n in range(30)], PARTITIONS)
                poll_until(everybody, lambda: sum(len(each.values) for each in everybody) >= 90)
                for each in everybody:
                    each.consumer.commit(asynchronous=False)
            poll_until([first, second], lambda: share_out([first, second], PARTITIONS))
        poll_until([first], lambda: share_out([first], PARTITIONS))
    read = [value for each in everybody for value in each.values]
    assert sorted(read) == sorted([str(n) for n in range(60)] + [f"new {n}" for n in range(30)])


@pytest.mark.parametrize("kind", TWO.values(), ids=list(TWO))
def test_a_static_member_comes_back_without_a_rebalance(
    gateway: GatewayThread, database: str, name: str, kind: dict[str, Any]
) -> None:
    create_topic(gateway.bootstrap, name, 4)
    with ExitStack() as stack:
        first = stack.enter_context(member(gateway.bootstrap, name, name, group_instance_id="one", **kind))
        with member(gateway.bootstrap, name, name, group_instance_id="two", **kind) as second:
            poll_until([first, second], lambda: share_out([first, second], 4))
            share, before = second.partitions, generation(database, name)
        rebalances = first.rebalances
        with member(gateway.bootstrap, name, name, group_instance_id="two", **kind) as again:
            poll_until([first, again], lambda: bool(again.partitions))
            assert again.partitions == share
            assert generation(database, name) == before
            assert first.rebalances == rebalances


def test_the_older_of_two_that_are_the_same_is_fenced(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 2)
    with ExitStack() as stack:
        old = stack.enter_context(member(gateway.bootstrap, name, name, group_instance_id="same"))
        poll_until([old], lambda: len(old.partitions) == 2)
        new = stack.enter_context(member(gateway.bootstrap, name, name, group_instance_id="same"))
        poll_until([old, new], lambda: bool(old.errors) and len(new.partitions) == 2)
        assert KafkaError._FATAL in old.errors or KafkaError.FENCED_INSTANCE_ID in old.errors
        with pytest.raises(KafkaException):
            old.consumer.commit(offsets=[TopicPartition(name, 0, 5)], asynchronous=False)
        new.consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
        assert new.consumer.committed([TopicPartition(name, 0)])[0].offset == 7


def test_a_consumer_that_is_the_same_as_one_that_lives_is_refused(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 2)
    with ExitStack() as stack:
        old = stack.enter_context(
            member(gateway.bootstrap, name, name, group_instance_id="same", group_protocol="consumer")
        )
        poll_until([old], lambda: len(old.partitions) == 2)
        new = stack.enter_context(
            member(gateway.bootstrap, name, name, group_instance_id="same", group_protocol="consumer")
        )
        poll_until([old, new], lambda: bool(new.errors))
        assert len(old.partitions) == 2
        assert not old.errors


def test_a_classic_member_that_dies_is_missed(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 4)
    with member(gateway.bootstrap, name, name) as survivor:
        poll_until([survivor], lambda: len(survivor.partitions) == 4)
        victim = RawMember(gateway.port, name, name)
        victim.learn_id()
        victim.send_join()
        poll_until([survivor], victim.has_answer)
        assert victim.joined().error_code == ErrorCode.NONE
        assert victim.sync().assignment
        poll_until([survivor], lambda: len(survivor.partitions) == 2)
        victim.close()
        poll_until([survivor], lambda: len(survivor.partitions) == 4)


def test_a_consumer_that_dies_is_missed(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 4)
    with member(gateway.bootstrap, name, name, group_protocol="consumer") as survivor, RawClient(gateway.port) as raw:
        poll_until([survivor], lambda: len(survivor.partitions) == 4)
        join = ConsumerGroupHeartbeatRequest(
            group_id=name, member_id=str(uuid4()), rebalance_timeout_ms=5000, subscribed_topic_names=(name,)
        )
        assert raw.ask(CONSUMER_GROUP_HEARTBEAT, 1, join).error_code == ErrorCode.NONE
        poll_until([survivor], lambda: len(survivor.partitions) == 2)
        poll_until([survivor], lambda: len(survivor.partitions) == 4)


def test_a_pattern_finds_topics_that_come_later(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, f"{name}-a", 1)
    with member(gateway.bootstrap, name, f"^{name}-[a-c]", group_protocol="consumer") as one:
        poll_until([one], lambda: one.partitions == {(f"{name}-a", 0)})
        create_topic(gateway.bootstrap, f"{name}-b", 2)
        create_topic(gateway.bootstrap, f"{name}-z", 1)
        poll_until([one], lambda: one.partitions == {(f"{name}-a", 0), (f"{name}-b", 0), (f"{name}-b", 1)})


def test_new_partitions_are_given_out_and_deleted_topics_taken_back(gateway: GatewayThread, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    create_topic(gateway.bootstrap, name, 1)
    create_topic(gateway.bootstrap, f"{name}-2", 1)
    with member(gateway.bootstrap, name, name, f"{name}-2", group_protocol="consumer") as one:
        poll_until([one], lambda: len(one.partitions) == 2)
        admin.create_partitions([NewPartitions(name, 3)])[name].result(10)
        poll_until([one], lambda: len(one.partitions) == 4)
        admin.delete_topics([f"{name}-2"])[f"{name}-2"].result(10)
        poll_until([one], lambda: one.partitions == {(name, 0), (name, 1), (name, 2)})


def test_kinds_do_not_mix_but_an_empty_group_changes_its_kind(gateway: GatewayThread, database: str, name: str) -> None:
    create_topic(gateway.bootstrap, name, 2)
    write(gateway.bootstrap, name, ["a", "b"], 2)
    with member(gateway.bootstrap, name, name) as classic:
        poll_until([classic], lambda: len(classic.values) == 2)
        classic.consumer.commit(asynchronous=False)
        join = ConsumerGroupHeartbeatRequest(
            group_id=name, member_id=str(uuid4()), rebalance_timeout_ms=5000, subscribed_topic_names=(name,)
        )
        with RawClient(gateway.port) as raw:
            assert raw.ask(CONSUMER_GROUP_HEARTBEAT, 1, join).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        before = generation(database, name)
    with member(gateway.bootstrap, name, name, group_protocol="consumer") as consumer:
        poll_until([consumer], lambda: len(consumer.partitions) == 2)
        assert {each.offset for each in consumer.consumer.committed([TopicPartition(name, 0)])} == {1}
        assert generation(database, name) > before
        other = RawMember(gateway.port, name, name)
        with closing(other):
            assert other.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    with member(gateway.bootstrap, name, name) as classic:
        poll_until([classic], lambda: len(classic.partitions) == 2)
        write(gateway.bootstrap, name, ["c", "d"], 2)
        poll_until([classic], lambda: sorted(classic.values) == ["c", "d"])


def test_kafka_python_resumes_where_it_was(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 2)
    write(gateway.bootstrap, name, ["0", "1", "2", "3"], 2)
    settings = {
        "bootstrap_servers": gateway.bootstrap,
        "group_id": name,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "consumer_timeout_ms": 10_000,
    }
    with closing(KafkaConsumer(name, **settings)) as consumer:
        values = [next(consumer).value for _ in range(4)]
        assert sorted(values) == [b"0", b"1", b"2", b"3"]
        here = PyPartition(name, 0)
        consumer.commit({here: PyOffset(2, "two done", -1), PyPartition(name, 1): PyOffset(1, "", -1)})
        assert consumer.committed(here, metadata=True).metadata == "two done"
    with closing(KafkaConsumer(name, **settings)) as consumer:
        assert next(consumer).value == b"3"


def test_aiokafka_shares_and_resumes(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 4)
    write(gateway.bootstrap, name, [str(n) for n in range(8)], 4)
    asyncio.run(_share_aiokafka(gateway.bootstrap, name))


async def _share_aiokafka(bootstrap: str, name: str) -> None:
    def consumer() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            name,
            bootstrap_servers=bootstrap,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            max_poll_interval_ms=5000,
        )

    first, second = consumer(), consumer()
    await first.start()
    try:
        read = [await asyncio.wait_for(first.getone(), 10) for _ in range(8)]
        assert sorted(each.value for each in read) == [b"%d" % n for n in range(8)]
        await first.commit({AioPartition(name, n): OffsetAndMetadata(1, f"at {n}") for n in range(4)})
        await second.start()
        try:
            async with asyncio.timeout(15):
                while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                    await first.getmany(timeout_ms=50)
                again = [await second.getone() for _ in range(2)]
            assert {each.offset for each in again} == {1}
        finally:
            await second.stop()
    finally:
        await first.stop()


def test_lag_is_known_to_sql(gateway: GatewayThread, database: str, name: str) -> None:
    create_topic(gateway.bootstrap, name, 2)
    write(gateway.bootstrap, name, [str(n) for n in range(10)], 2)
    with member(gateway.bootstrap, name, name) as one:
        poll_until([one], lambda: len(one.partitions) == 2)
        offsets = [TopicPartition(name, 0, 2, metadata="über"), TopicPartition(name, 1, 5)]
        one.consumer.commit(offsets=offsets, asynchronous=False)
        assert [each.metadata or "" for each in one.consumer.committed(offsets)] == ["über", ""]
        with psycopg.connect(database) as connection:
            rows = connection.execute("select partition, lag from kafka.lag(%s)", [name]).fetchall()
            total = connection.execute(
                "select members, lag, coordinator from kafka.consumer_groups where group_id = %s", [name]
            ).fetchone()
    assert rows == [(0, 3), (1, 0)]
    assert total == (1, 3, gateway.bootstrap)
