"""Groups through the eyes of administrators: listed, described, reset, deleted, by the tools of three clients."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as PyPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.commits import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    CommitPartition,
    CommitTopic,
    OffsetCommitRequest,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from headgate.wire.kafka.messages.consumer_groups import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from headgate.wire.kafka.messages.groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from headgate.wire.kafka.messages.membership import FIND_COORDINATOR, FindCoordinatorRequest
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread
from tests.integration.groups.members import create_topic, member, poll_until, write

WAIT_S = 10.0


@pytest.fixture
def admin(gateway: GatewayThread) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.bootstrap, "log_level": 0})


def test_librdkafka_lists_groups_by_state_and_type(gateway: GatewayThread, admin: AdminClient, name: str) -> None:
    create_topic(gateway.bootstrap, name, 1)
    with ExitStack() as stack:
        classic = stack.enter_context(member(gateway.bootstrap, f"{name}-classic", name))
        consumer = stack.enter_context(member(gateway.bootstrap, f"{name}-consumer", name, group_protocol="consumer"))
        poll_until([classic, consumer], lambda: bool(classic.partitions) and bool(consumer.partitions))

        def found(**filters: object) -> set[str]:
            listed = admin.list_consumer_groups(request_timeout=WAIT_S, **filters).result(WAIT_S)
            assert not listed.errors
            return {each.group_id.removeprefix(name) for each in listed.valid if each.group_id.startswith(name)}

        assert found() == {"-classic", "-consumer"}
        assert found(types={ConsumerGroupType.CLASSIC}) == {"-classic"}
        assert found(types={ConsumerGroupType.CONSUMER}) == {"-consumer"}
        assert found(states={ConsumerGroupState.STABLE}) == {"-classic", "-consumer"}
        assert found(states={ConsumerGroupState.EMPTY}) == set()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_describes_members_and_what_they_have(
    gateway: GatewayThread, admin: AdminClient, name: str, protocol: str
) -> None:
    create_topic(gateway.bootstrap, name, 2)
    settings = {"group_protocol": protocol, "client_id": "the client", "group_instance_id": "static"}
    with member(gateway.bootstrap, name, name, **settings) as one:
        poll_until([one], lambda: len(one.partitions) == 2)
        described = admin.describe_consumer_groups([name], request_timeout=WAIT_S)[name].result(WAIT_S)
        assert described.state is ConsumerGroupState.STABLE
        assert described.coordinator.port == gateway.port
        (only,) = described.members
        assert (only.client_id, only.group_instance_id, only.host) == ("the client", "static", "/127.0.0.1")
        assert {(each.topic, each.partition) for each in only.assignment.topic_partitions} == one.partitions


def test_librdkafka_deletes_groups_and_moves_offsets(gateway: GatewayThread, admin: AdminClient, name: str) -> None:
    create_topic(gateway.bootstrap, name, 2)
    first = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 1)])
    with member(gateway.bootstrap, name, name) as one:
        poll_until([one], lambda: len(one.partitions) == 2)
        one.consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([name], request_timeout=WAIT_S)[name].result(WAIT_S)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        (moved,) = admin.alter_consumer_group_offsets([first])[name].result(WAIT_S).topic_partitions
        assert moved.error is not None
        assert moved.error.code() == KafkaError.UNKNOWN_MEMBER_ID  # the group has members; only they may
    (moved,) = admin.alter_consumer_group_offsets([first])[name].result(WAIT_S).topic_partitions
    assert moved.error is None
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(WAIT_S)
    assert [(each.partition, each.offset) for each in listed.topic_partitions] == [(0, 1)]
    admin.delete_consumer_groups([name], request_timeout=WAIT_S)[name].result(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([name], request_timeout=WAIT_S)[name].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_kafka_python_administers_groups(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 2)
    write(gateway.bootstrap, name, ["a", "b"], 2)
    with closing(KafkaAdminClient(bootstrap_servers=gateway.bootstrap)) as admin:
        with member(gateway.bootstrap, name, name) as one:
            poll_until([one], lambda: len(one.values) == 2)
            one.consumer.commit(asynchronous=False)
            described = admin.describe_groups([name])[name]
            assert described["group_state"] == "Stable"
            assert len(described["members"]) == 1
        assert name in {each["group_id"] for each in admin.list_groups()}
        offsets = admin.list_group_offsets([name])[name]
        assert {partition: each.offset for partition, each in offsets.items()} == {
            PyPartition(name, 0): 1,
            PyPartition(name, 1): 1,
        }
        admin.alter_group_offsets(name, {PyPartition(name, 0): OffsetAndMetadata(0, "again", -1)})
        assert admin.list_group_offsets([name])[name][PyPartition(name, 0)].metadata == "again"
        admin.delete_group_offsets(name, [PyPartition(name, 0)])
        assert PyPartition(name, 0) not in admin.list_group_offsets([name])[name]
        admin.delete_groups([name])
        assert name not in {each["group_id"] for each in admin.list_groups()}


def test_aiokafka_administers_groups(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 1)
    with member(gateway.bootstrap, name, name) as one:
        poll_until([one], lambda: bool(one.partitions))
        one.consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
        asyncio.run(_administer_with_aiokafka(gateway.bootstrap, name))


async def _administer_with_aiokafka(bootstrap: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        assert (name, "consumer") in {tuple(each[:2]) for each in await admin.list_consumer_groups()}
        (described,) = await admin.describe_consumer_groups([name])
        assert described.groups[0][2] == "Stable"
        offsets = await admin.list_consumer_group_offsets(name)
        assert [each.offset for each in offsets.values()] == [4]
    finally:
        await admin.close()


def commit_request(group: str, topic: str, *partitions: CommitPartition) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id=group, topics=(CommitTopic(name=topic, partitions=partitions),))


@pytest.mark.parametrize("version", range(OFFSET_COMMIT.first, OFFSET_COMMIT.last + 1))
def test_every_version_of_the_commit_says_what_is_wrong_with_each_partition(
    gateway: GatewayThread, name: str, version: int
) -> None:
    create_topic(gateway.bootstrap, name, 1)
    partitions = (
        CommitPartition(0, 5, -1, "fine"),
        CommitPartition(7, 5),
        CommitPartition(0, 6, -1, "x" * 5000),
    )
    expected = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    with RawClient(gateway.port) as raw:
        topic_id = gateway.gateway.services.store.catalog.get(name)
        assert topic_id is not None
        topic = CommitTopic(name=name, topic_id=topic_id.uuid, partitions=partitions)
        answer = raw.ask(OFFSET_COMMIT, version, OffsetCommitRequest(group_id=name, topics=(topic,)))
        assert [each.error_code for each in answer.topics[0].partitions] == expected
        stale = raw.ask(
            OFFSET_COMMIT,
            version,
            OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=3, member_id="m", topics=(topic,)),
        )
        assert {each.error_code for each in stale.topics[0].partitions} == {ErrorCode.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize("version", range(OFFSET_FETCH.first, OFFSET_FETCH.last + 1))
def test_every_version_fetches_offsets(gateway: GatewayThread, name: str, version: int) -> None:
    create_topic(gateway.bootstrap, name, 2)
    topic = gateway.gateway.services.store.catalog.get(name)
    assert topic is not None
    with RawClient(gateway.port) as raw:
        raw.ask(OFFSET_COMMIT, 8, commit_request(name, name, CommitPartition(0, 5, 0, "here")))
        if version < 8:
            request = OffsetFetchRequest(group_id=name, topics=(OffsetFetchTopic(name, (0, 1)),))
            answer = raw.ask(OFFSET_FETCH, version, request)
            partitions = answer.topics[0].partitions
        else:
            wanted = (OffsetFetchGroupTopic(name, topic.uuid, (0, 1)),)
            groups = (OffsetFetchGroup(group_id=name, topics=wanted), OffsetFetchGroup(group_id="none", topics=None))
            answer = raw.ask(OFFSET_FETCH, version, OffsetFetchRequest(groups=groups, require_stable=True))
            partitions = answer.groups[0].topics[0].partitions
            assert answer.groups[1].topics == ()
        assert [(each.committed_offset, each.metadata, each.error_code) for each in partitions] == [
            (5, "here", 0),
            (-1, "", 0),
        ]


def test_offsets_of_topics_that_are_read_are_not_deleted(gateway: GatewayThread, name: str) -> None:
    create_topic(gateway.bootstrap, name, 1)
    create_topic(gateway.bootstrap, f"{name}-2", 1)
    with member(gateway.bootstrap, name, name) as one, RawClient(gateway.port) as raw:
        poll_until([one], lambda: bool(one.partitions))
        one.consumer.commit(offsets=[TopicPartition(name, 0, 4), TopicPartition(f"{name}-2", 0, 4)], asynchronous=False)
        topics = tuple(OffsetDeleteTopic(each, (OffsetDeletePartition(0),)) for each in (name, f"{name}-2"))
        answer = raw.ask(OFFSET_DELETE, 0, OffsetDeleteRequest(name, topics))
        codes = [each.partitions[0].error_code for each in answer.topics]
        assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


@pytest.mark.parametrize("version", [5, 6])
def test_a_group_that_does_not_exist_is_dead(gateway: GatewayThread, name: str, version: int) -> None:
    with RawClient(gateway.port) as raw:
        (group,) = raw.ask(DESCRIBE_GROUPS, version, DescribeGroupsRequest((name,))).groups
        assert group.group_state == "Dead"
        assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
        (group,) = raw.ask(CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest((name,))).groups
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
def test_every_version_finds_the_coordinator(gateway: GatewayThread, name: str, version: int) -> None:
    with RawClient(gateway.port) as raw:
        if version < 4:
            found = raw.ask(FIND_COORDINATOR, version, FindCoordinatorRequest(key=name))
            refused = raw.ask(FIND_COORDINATOR, version, FindCoordinatorRequest(key=""))
        else:
            request = FindCoordinatorRequest(coordinator_keys=(name, ""))
            found, refused = raw.ask(FIND_COORDINATOR, version, request).coordinators
    assert (found.error_code, found.port) == (ErrorCode.NONE, gateway.port)
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID
