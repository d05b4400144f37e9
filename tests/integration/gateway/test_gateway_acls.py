"""What clients may do, by ACLs: with real clients, and request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError as PythonTopicError

from headgate.embedded import Endpoints
from headgate.gateway.access import RIGHTS, Kind, Operation, Rules
from headgate.gateway.handlers import HANDLERS
from headgate.wire.kafka import APIS
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import (
    cluster,
    commits,
    configs,
    consumer_groups,
    fetch,
    groups,
    leadership,
    membership,
    offsets,
    produce,
    security,
    session,
    storage,
    topics,
    transactions,
)
from tests.gateway.access import TIMEOUT_S, USERS, acl, admin_of, as_user, change, grant, kafka, login
from tests.gateway.raw import RawClient, fetch_request, produce_request
from tests.gateway.servers import GatewayThread, new_database, running

DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# librdkafka looks for the coordinator of a group also if it needs none.
UNUSED = ("GROUP", "LITERAL", "unused", "*", "DESCRIBE")


@pytest.fixture(scope="module")
def url(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as database:
        yield database


@pytest.fixture(scope="module")
def gateway(url: str) -> Iterator[GatewayThread]:
    with running(url, users=USERS, authorization="acls", superusers=("User:admin",)) as started:
        grant(started, UNUSED)
        yield started


@pytest.fixture
def made(gateway: GatewayThread, topic: str) -> str:
    """A topic with a message in it, to which nobody but the superuser has a right."""
    with login(gateway, "admin") as client:
        client.create(topic)
        client.produce(topic, b"secret")
    return topic


def write(gateway: GatewayThread, user: str, topic: str) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer(as_user(gateway, user))
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return errors[0]


def read(gateway: GatewayThread, user: str, topic: str) -> bytes | None:
    consumer = Consumer(as_user(gateway, user, **{"group.id": "unused", "enable.auto.commit": False}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, TIMEOUT_S)
    consumer.close()
    assert message.error() is None
    return message.value()


def cannot_read(gateway: GatewayThread, user: str, topic: str) -> bool:
    """librdkafka waits without a word for a topic that it was assigned and may not read."""
    with login(gateway, user) as client:
        error = client.fetch(topic).responses[0].partitions[0].error_code
    assert error in (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return bool(error)


def code(outcome: object) -> int:
    assert isinstance(outcome, KafkaError), outcome
    return int(outcome.code())


# -- made, shown and taken away


def test_nobody_may_do_anything_until_an_acl_says_so(gateway: GatewayThread, made: str) -> None:
    admin = admin_of(gateway, "admin")
    assert code(write(gateway, "alice", made)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert cannot_read(gateway, "bob", made)
    bindings = [acl("TOPIC", made, "alice", "WRITE"), acl("TOPIC", made, "bob", "READ")]
    for future in admin.create_acls(bindings).values():
        future.result(TIMEOUT_S)
    assert write(gateway, "alice", made) is None
    assert read(gateway, "bob", made) == b"secret"
    assert cannot_read(gateway, "alice", made)
    assert code(write(gateway, "bob", made)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    anything = kafka.AclBindingFilter(
        *(kafka.ResourceType.TOPIC, made, kafka.ResourcePatternType.ANY, None, None),
        *(kafka.AclOperation.ANY, kafka.AclPermissionType.ANY),
    )
    assert set(admin.describe_acls(anything).result(TIMEOUT_S)) == set(bindings)
    (future,) = admin.delete_acls([anything]).values()
    assert set(future.result(TIMEOUT_S)) == set(bindings)
    assert admin.describe_acls(anything).result(TIMEOUT_S) == []
    assert cannot_read(gateway, "bob", made)


def test_whoever_administers_needs_a_right_to(gateway: GatewayThread, url: str, made: str) -> None:
    eve = admin_of(gateway, "eve")
    (future,) = eve.create_acls([acl("TOPIC", made, "eve", "ALL")]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    assert caught.value.args[0].code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    grant(gateway, ("CLUSTER", "LITERAL", "kafka-cluster", "eve", "ALTER"))
    try:
        (future,) = eve.create_acls([acl("TOPIC", made, "eve", "READ")]).values()
        future.result(TIMEOUT_S)
        assert read(gateway, "eve", made) == b"secret"
    finally:
        with psycopg.connect(url) as connection:
            ((made_by,),) = connection.execute("select made_by from kafka.acls where resource_name = %s", [made])
        change(gateway, "delete from kafka.acls where principal = 'User:eve'")
        assert made_by == "User:eve"


def test_wrong_entries_stop_no_right_ones(gateway: GatewayThread, made: str) -> None:
    good = security.AclCreation(2, made, 3, "User:alice", "*", 3, 3)
    wrong = [
        security.AclCreation(2, made, 3, "alice", "*", 3, 3),
        security.AclCreation(4, "other", 3, "User:alice", "*", 3, 3),
        security.AclCreation(2, "a\0b", 3, "User:alice", "*", 3, 3),
        security.AclCreation(1, made, 3, "User:alice", "*", 3, 3),
    ]
    with login(gateway, "admin") as client:
        request = security.CreateAclsRequest(creations=(wrong[0], good, *wrong[1:], good))
        results = client.ask(security.CREATE_ACLS, 3, request).results
        assert [each.error_code for each in results] == [42, 0, 42, 42, 42, 0]
        assert all(each.error_message for each in results if each.error_code)
        unknown = security.DeleteAclsFilter(resource_type_filter=0, resource_name_filter=None)
        exact = security.DeleteAclsFilter(2, made, 3, "User:alice", "*", 3, 3)
        request = security.DeleteAclsRequest(filters=(unknown, exact))  # type: ignore[assignment]
        refused, found = client.ask(security.DELETE_ACLS, 3, request).filter_results
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert [each.resource_name for each in found.matching_acls] == [made]


# -- real clients meet it as they would in Kafka


def test_a_group_of_librdkafka(gateway: GatewayThread, url: str, made: str) -> None:
    grant(gateway, ("TOPIC", "LITERAL", made, "bob", "READ"))
    settings = {"group.id": f"g-{made}", "auto.offset.reset": "earliest"}
    consumer = Consumer(as_user(gateway, "bob", **settings))
    consumer.subscribe([made])
    (message,) = consumer.consume(1, TIMEOUT_S)
    assert code(message.error()) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    grant(gateway, ("GROUP", "PREFIXED", "g-", "bob", "READ"))
    consumer = Consumer(as_user(gateway, "bob", **settings))
    consumer.subscribe([made])
    (message,) = consumer.consume(1, TIMEOUT_S)
    assert message.value() == b"secret"
    consumer.commit(asynchronous=False)
    consumer.close()


def test_aiokafka_and_kafka_python(gateway: GatewayThread, made: str) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "eve", "sasl_plain_password": USERS["eve"]}
    producer = KafkaProducer(
        bootstrap_servers=gateway.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        **login,
    )
    try:
        with pytest.raises(PythonTopicError):
            producer.send(made, b"v").get(TIMEOUT_S)
    finally:
        producer.close()

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            made, bootstrap_servers=gateway.bootstrap, security_protocol="SASL_PLAINTEXT", **login
        )
        try:
            with pytest.raises(TopicAuthorizationFailedError):
                await asyncio.wait_for(consumer.start(), TIMEOUT_S)
        finally:
            await consumer.stop()

    asyncio.run(consume())


def test_a_consumer_group_of_the_new_protocol(gateway: GatewayThread, url: str, made: str) -> None:
    """By an expression it gets the topics that it may look at, and no others."""
    hidden = f"{made}-hidden"
    with login(gateway, "admin") as client:
        client.create(hidden)
        client.produce(hidden, b"hidden")
    grant(gateway, ("TOPIC", "LITERAL", made, "alice", "READ"), ("GROUP", "LITERAL", made, "alice", "READ"))
    settings = {"group.id": made, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer(as_user(gateway, "alice", **settings))
    consumer.subscribe([f"^{made}.*"])
    (message,) = consumer.consume(1, TIMEOUT_S)
    assert message.value() == b"secret"
    assert {each.topic for each in consumer.assignment()} == {made}
    consumer.close()
    with login(gateway, "alice") as client:
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=made,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=(made, hidden),
        )
        answer = client.ask(consumer_groups.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_an_idempotent_producer_needs_one_topic(gateway: GatewayThread, url: str, made: str) -> None:
    settings = {"enable.idempotence": True, "message.timeout.ms": 10_000}
    producer = Producer(as_user(gateway, "eve", **settings))
    producer.produce(made, b"v")
    producer.flush(5)
    with login(gateway, "eve") as client:
        answer = client.ask(produce.INIT_PRODUCER_ID, 4, produce.InitProducerIdRequest(transactional_id=None))
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    grant(gateway, ("TOPIC", "LITERAL", made, "alice", "WRITE"))
    with login(gateway, "alice") as client:
        assert (
            client.ask(produce.INIT_PRODUCER_ID, 4, produce.InitProducerIdRequest(transactional_id=None)).error_code
            == 0
        )


def test_a_right_is_taken_away_in_the_middle_of_a_transaction(gateway: GatewayThread, url: str, made: str) -> None:
    grant(
        gateway, ("TOPIC", "LITERAL", made, "alice", "WRITE"), ("TRANSACTIONAL_ID", "LITERAL", made, "alice", "WRITE")
    )
    producer = Producer(as_user(gateway, "alice", **{"transactional.id": made}))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(made, b"in a transaction")
    producer.flush(TIMEOUT_S)
    change(gateway, "delete from kafka.acls where resource_name = %s", made)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].code() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with login(gateway, "admin") as client:  # nothing of it is committed
        request = fetch_request(made)
        answer = client.ask(fetch.FETCH, 11, request)
        (partition,) = answer.responses[0].partitions
        assert partition.last_stable_offset == 1


def test_a_right_is_taken_away_while_a_reader_waits(gateway: GatewayThread, url: str, made: str) -> None:
    grant(gateway, ("TOPIC", "LITERAL", made, "bob", "READ"))
    with login(gateway, "bob") as reader, login(gateway, "admin") as writer:
        request = fetch_request(made, 1, max_wait_ms=20_000)
        assert reader.ask(fetch.FETCH, 11, fetch_request(made)).responses[0].partitions[0].error_code == 0
        reader.send(fetch.FETCH, 11, request)
        change(gateway, "delete from kafka.acls where principal = 'User:bob'")
        writer.produce(made, b"for others")
        _, answer = reader.receive(fetch.FETCH, 11)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not partition.records


def test_a_fetch_session_ends_for_what_is_taken_away(gateway: GatewayThread, url: str, made: str) -> None:
    other = f"{made}-other"
    with login(gateway, "admin") as client:
        client.create(other)
    grant(gateway, ("TOPIC", "LITERAL", made, "bob", "READ"), ("TOPIC", "LITERAL", other, "bob", "READ"))
    parts = tuple(
        fetch.FetchTopic(topic=name, partitions=(fetch.FetchPartition(partition=0, partition_max_bytes=1000),))
        for name in (made, other)
    )
    with login(gateway, "bob") as client:
        begun = client.ask(fetch.FETCH, 11, fetch.FetchRequest(max_bytes=1000, session_epoch=0, topics=parts))
        assert begun.session_id
        change(gateway, "delete from kafka.acls where resource_name = %s", other)
        again = fetch.FetchRequest(max_bytes=1000, session_id=begun.session_id, session_epoch=1)
        codes = {each.topic: each.partitions[0].error_code for each in client.ask(fetch.FETCH, 11, again).responses}
    assert codes[other] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes.get(made, 0) == 0


# -- what is seen


def test_metadata_hides_what_one_may_not_look_at(gateway: GatewayThread, url: str, made: str) -> None:
    grant(gateway, ("TOPIC", "LITERAL", made, "alice", "DESCRIBE"))
    with login(gateway, "admin") as client:
        (known,) = client.ask(cluster.METADATA, 12, ask_metadata(made)).topics
    with login(gateway, "alice") as client:
        everything = client.ask(
            cluster.METADATA, 12, cluster.MetadataRequest(topics=None, include_topic_authorized_operations=True)
        )
        assert made in {each.name for each in everything.topics}
        (found,) = client.ask(cluster.METADATA, 12, ask_metadata(made)).topics
        assert found.topic_authorized_operations == 1 << 8
        assert everything.brokers
    with login(gateway, "eve") as client:
        everything = client.ask(cluster.METADATA, 12, cluster.MetadataRequest(topics=None))
        assert everything.topics == ()
        for name in (made, "there-is-no-such-topic", "not a name", ""):
            (refused,) = client.ask(cluster.METADATA, 12, ask_metadata(name)).topics
            assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, name
            assert refused.topic_id.int == 0
            assert not refused.partitions
        by_id = cluster.MetadataRequest(topics=(cluster.AskedTopic(name=None, topic_id=known.topic_id),))
        (refused,) = client.ask(cluster.METADATA, 12, by_id).topics
        assert (refused.error_code, refused.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


def ask_metadata(name: str) -> cluster.MetadataRequest:
    return cluster.MetadataRequest(topics=(cluster.AskedTopic(name=name),), include_topic_authorized_operations=True)


def test_a_topic_is_not_made_by_somebody_who_may_not(gateway: GatewayThread, url: str, topic: str) -> None:
    grant(gateway, ("TOPIC", "LITERAL", topic, "alice", "WRITE"))
    with login(gateway, "alice") as client:
        (refused,) = client.ask(cluster.METADATA, 9, ask_metadata(topic)).topics
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        grant(gateway, ("TOPIC", "PREFIXED", topic, "alice", "CREATE"))
        (found,) = client.ask(cluster.METADATA, 9, ask_metadata(topic)).topics
        assert found.error_code == 0


def test_groups_and_their_operations(gateway: GatewayThread, url: str, made: str) -> None:
    grant(gateway, ("GROUP", "LITERAL", made, "alice", "READ"), ("TOPIC", "LITERAL", made, "alice", "READ"))
    commit = commits.OffsetCommitRequest(
        group_id=made,
        generation_id_or_member_epoch=-1,
        topics=(
            commits.CommitTopic(
                name=made, partitions=(commits.CommitPartition(partition_index=0, committed_offset=1),)
            ),
        ),
    )
    with login(gateway, "alice") as client:
        assert client.ask(commits.OFFSET_COMMIT, 8, commit).topics[0].partitions[0].error_code == 0
        assert made in {each.group_id for each in client.ask(groups.LIST_GROUPS, 4, groups.ListGroupsRequest()).groups}
        request = groups.DescribeGroupsRequest(groups=(made,), include_authorized_operations=True)
        (group,) = client.ask(groups.DESCRIBE_GROUPS, 5, request).groups
        assert group.authorized_operations == 1 << 3 | 1 << 8
        (deleted,) = client.ask(groups.DELETE_GROUPS, 2, groups.DeleteGroupsRequest(groups_names=(made,))).results
        assert deleted.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    with login(gateway, "eve") as client:
        assert client.ask(groups.LIST_GROUPS, 4, groups.ListGroupsRequest()).groups == ()


# -- every API, as somebody without any right


def requests_for(topic: str) -> dict[type, list[Any]]:
    """For each API a request that a superuser could make, and that names things."""
    part = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    commit = commits.CommitPartition(partition_index=0, committed_offset=1)
    txn_topic = transactions.TransactionTopic(topic, (0,))
    resources = (2, topic), (4, "1")
    entity = security.QuotaEntity(entity_type="user", entity_name="eve")
    requests = [
        produce_request(topic, b"v"),
        produce.ProduceRequest(transactional_id="t", acks=-1, topic_data=produce_request(topic, b"v").topic_data),
        fetch.FetchRequest(topics=(fetch.FetchTopic(topic=topic, partitions=(part,)),), session_epoch=-1),
        offsets.ListOffsetsRequest(
            topics=(offsets.ListOffsetsTopic(name=topic, partitions=(offsets.ListOffsetsPartition(timestamp=-1),)),)
        ),
        offsets.OffsetForLeaderEpochRequest(
            topics=(offsets.LeaderEpochTopic(topic=topic, partitions=(offsets.LeaderEpochPartition(),)),)
        ),
        storage.DeleteRecordsRequest(
            topics=(storage.DeleteRecordsTopic(name=topic, partitions=(storage.DeleteRecordsPartition(0, -1),)),)
        ),
        cluster.MetadataRequest(topics=(cluster.AskedTopic(name=topic),)),
        cluster.DescribeTopicPartitionsRequest(topics=(cluster.DescribableTopic(name=topic),)),
        topics.CreateTopicsRequest(topics=(topics.CreatableTopic("of-eve", 1, -1),)),
        topics.DeleteTopicsRequest(topic_names=(topic,), topics=(topics.DeletableTopic(name=topic),)),
        topics.CreatePartitionsRequest(topics=(topics.CreatePartitionsTopic(name=topic, count=3, assignments=None),)),
        configs.DescribeConfigsRequest(
            resources=tuple(configs.DescribeConfigsResource(kind, name) for kind, name in resources)
        ),
        configs.AlterConfigsRequest(
            resources=tuple(configs.AlterConfigsResource(kind, name) for kind, name in resources)
        ),
        configs.IncrementalAlterConfigsRequest(
            resources=tuple(configs.IncrementalAlterConfigsResource(kind, name) for kind, name in resources)
        ),
        leadership.DescribeProducersRequest(topics=(leadership.AskedProducersTopic(topic, (0,)),)),
        membership.FindCoordinatorRequest(key="g", coordinator_keys=("g",)),
        membership.FindCoordinatorRequest(key="t", key_type=1, coordinator_keys=("t",)),
        membership.JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer"),
        membership.SyncGroupRequest(group_id="g"),
        membership.HeartbeatRequest(group_id="g"),
        membership.LeaveGroupRequest(group_id="g", members=(membership.LeavingMember("m"),)),
        consumer_groups.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=(topic,)),
        commits.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=(commits.CommitTopic(name=topic, partitions=(commit,)),),
        ),
        commits.OffsetFetchRequest(
            group_id="g",
            topics=(commits.OffsetFetchTopic(topic, (0,)),),
            groups=(commits.OffsetFetchGroup("g", topics=None),),
        ),
        commits.OffsetDeleteRequest(group_id="g", topics=()),
        groups.DescribeGroupsRequest(groups=("g",)),
        groups.DeleteGroupsRequest(groups_names=("g",)),
        consumer_groups.ConsumerGroupDescribeRequest(group_ids=("g",)),
        produce.InitProducerIdRequest(transactional_id=None),
        produce.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000),
        transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=(txn_topic,),
            transactions=(transactions.TransactionPartitions("t", topics=(txn_topic,)),),
        ),
        transactions.AddOffsetsToTxnRequest(transactional_id="t", group_id="g"),
        transactions.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            topics=(transactions.TxnCommitTopic(topic, (transactions.TxnCommitPartition(),)),),
        ),
        transactions.EndTxnRequest(transactional_id="t", committed=True),
        transactions.WriteTxnMarkersRequest(
            markers=(transactions.WrittenMarker(producer_id=1, topics=(transactions.WrittenMarkerTopic(topic, (0,)),)),)
        ),
        leadership.DescribeTransactionsRequest(transactional_ids=("t",)),
        storage.DescribeLogDirsRequest(topics=None),
        configs.ListConfigResourcesRequest(),
        leadership.DescribeQuorumRequest(),
        leadership.ListPartitionReassignmentsRequest(topics=None),
        leadership.AlterPartitionReassignmentsRequest(),
        leadership.ElectLeadersRequest(topic_partitions=(leadership.ElectTopic(topic, (0,)),)),
        security.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        security.CreateAclsRequest(creations=(security.AclCreation(2, topic, 3, "User:eve", "*", 2, 3),)),
        security.DeleteAclsRequest(filters=(security.DeleteAclsFilter(1, None, 1, None, None, 1, 1),)),
        security.DescribeUserScramCredentialsRequest(),
        security.AlterUserScramCredentialsRequest(upsertions=(security.ScramUpsertion("eve", 1, 4096, b"s", b"p"),)),
        security.DescribeClientQuotasRequest(),
        security.AlterClientQuotasRequest(entries=(security.AlterQuota(entity=(entity,)),)),
    ]
    by_kind: dict[type, list[Any]] = {}
    for request in requests:
        by_kind.setdefault(type(request), []).append(request)
    return by_kind


# Answered to anybody, and nothing is in the answer but what a client must know to connect.
HARMLESS = {session.ApiVersionsRequest, session.SaslHandshakeRequest, session.SaslAuthenticateRequest}
# Lists of what one may look at: empty.
LISTS = {groups.ListGroupsRequest, leadership.ListTransactionsRequest, cluster.DescribeClusterRequest}


def codes_in(answer: Any) -> set[int]:
    """Every error code anywhere in an answer."""
    if isinstance(answer, tuple):
        return {code for each in answer for code in codes_in(each)}
    fields = getattr(answer, "__struct_fields__", ())
    found = {getattr(answer, name) for name in fields if name.endswith("error_code")}
    return found.union(*(codes_in(getattr(answer, name)) for name in fields))


@pytest.mark.parametrize("api", [api for api in APIS.values() if api.request in HANDLERS], ids=lambda api: api.name)
def test_nobody_gets_anything_without_a_right(gateway: GatewayThread, made: str, api: Any) -> None:
    assert api.request in RIGHTS
    if api.request in HARMLESS | LISTS:
        assert not RIGHTS[api.request].whole
        return
    requests = requests_for(made)[api.request]
    for request in requests:
        for version in {api.first, api.last, *([9] if api.name == "Produce" else [])}:
            if api.name == "Produce" and not 3 <= version <= 12:
                continue  # not served, or by the id of a topic
            if api.name == "DescribeLogDirs" and version < 3:
                continue  # no directory stands for it there
            if api.name == "Fetch" and version > 12:
                version = 12
            with login(gateway, "eve") as client:
                answer = client.ask(api, version, request)
            codes = codes_in(answer) - {0}
            assert codes, (version, answer)
            assert codes <= DENIED | {ErrorCode.OPERATION_NOT_ATTEMPTED}, (version, answer)
    with login(gateway, "admin") as client:
        (topic,) = client.ask(
            cluster.METADATA, 9, cluster.MetadataRequest(topics=(cluster.AskedTopic(name=made),))
        ).topics
        assert len(topic.partitions) == 1
        assert client.fetch(made).responses[0].partitions[0].high_watermark == 1


def test_lists_are_empty_for_those_without_a_right(gateway: GatewayThread, made: str) -> None:
    with login(gateway, "eve") as client:
        assert client.ask(groups.LIST_GROUPS, 5, groups.ListGroupsRequest()).groups == ()
        listed = client.ask(leadership.LIST_TRANSACTIONS, 1, leadership.ListTransactionsRequest())
        assert listed.transaction_states == ()
        request = cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert client.ask(cluster.DESCRIBE_CLUSTER, 1, request).cluster_authorized_operations == 0


def test_ids_of_topics_open_nothing(gateway: GatewayThread, made: str) -> None:
    with login(gateway, "admin") as client:
        (known,) = client.ask(cluster.METADATA, 12, ask_metadata(made)).topics
    part = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    by_id = fetch.FetchTopic(topic_id=known.topic_id, partitions=(part,))
    data = produce_request(made, b"v").topic_data[0]
    written = produce.ProduceTopic(topic_id=known.topic_id, partition_data=data.partition_data)
    with login(gateway, "eve") as client:
        read = client.ask(fetch.FETCH, 16, fetch.FetchRequest(topics=(by_id,), session_epoch=-1))
        assert codes_in(read) - {0} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        answer = client.ask(produce.PRODUCE, 13, produce.ProduceRequest(acks=-1, topic_data=(written,)))
        assert codes_in(answer) - {0} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        delete = topics.DeleteTopicsRequest(topics=(topics.DeletableTopic(topic_id=known.topic_id),))
        answer = client.ask(topics.DELETE_TOPICS, 6, delete)
        assert codes_in(answer) - {0} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert made not in str(answer)


# -- what goes wrong


def test_a_row_of_nonsense_stops_nobody_and_opens_nothing(fresh_database: str, topic: str) -> None:
    with running(fresh_database, users=USERS, authorization="acls", superusers=("User:admin",)) as gateway:
        with login(gateway, "admin") as client:
            client.create(topic)
            client.produce(topic, b"v")
        grant(
            gateway,
            ("TOPIC", "PREFIXED", topic[:3], "alice", "READ"),
            ("TOPIC", "LITERAL", topic, "bob", "READ"),
            UNUSED,
        )
        with psycopg.connect(fresh_database, autocommit=True) as connection:
            for name in ("operation", "permission", "resource_type"):
                connection.execute(f"alter table kafka.acls drop constraint acls_{name}_check")
            insert = "insert into kafka.acls values ('TOPIC', 'LITERAL', %s, %s, '*', %s, %s)"
            connection.execute(insert, [topic, "User:alice", "REED", "DENY"])
            connection.execute(insert, [topic, "User:eve", "REED", "ALLOW"])
            connection.execute(insert, [topic, "User:eve", "READ", "PERHAPS"])
        assert read(gateway, "bob", topic) == b"v"
        assert cannot_read(gateway, "alice", topic)
        assert cannot_read(gateway, "eve", topic)
        assert gateway.gateway.told()["acl_rows_not_understood"] == 3


def test_a_gateway_hears_of_rights_that_another_one_changed(url: str, gateway: GatewayThread, made: str) -> None:
    options: dict[str, Any] = {"users": USERS, "authorization": "acls", "superusers": ("User:admin",)}
    with running(url, **options) as other:
        admin = admin_of(other, "admin")
        (future,) = admin.create_acls([acl("TOPIC", made, "bob", "READ")]).values()
        future.result(TIMEOUT_S)
        with login(gateway, "bob") as client:
            seen = iter(lambda: client.fetch(made).responses[0].partitions[0].error_code, 0)
            assert len(list(zip(seen, range(100_000), strict=False))) < 100_000


def test_ten_thousand_acls_of_a_thousand_principals(fresh_database: str, topic: str) -> None:
    with running(fresh_database, users=USERS, authorization="acls") as gateway:
        change(
            gateway,
            "insert into kafka.acls"
            " select 'TOPIC', case mod(i, 2) when 0 then 'LITERAL' else 'PREFIXED' end, 'topic-' || i,"
            " 'User:u' || mod(i, 1000), '*', 'READ', 'ALLOW' from generate_series(10001, 20000) as i",
        )
        grant(gateway, ("TOPIC", "LITERAL", topic, "alice", "ALL"))
        rules = gateway.gateway.services.authority.state
        assert isinstance(rules, Rules)
        for number in range(10_001, 20_001):
            who = f"User:u{number % 1000}"
            assert rules.allows(who, "::1", Operation.READ, Kind.TOPIC, f"topic-{number}")
            assert rules.allows(who, "::1", Operation.READ, Kind.TOPIC, f"topic-{number}-x") is bool(number % 2)
        with login(gateway, "alice") as client:
            client.create(topic)
            client.produce(topic, b"v")
            assert client.fetch(topic).responses[0].partitions[0].high_watermark == 1
            other = client.fetch("topic-10001").responses[0].partitions[0]
            assert other.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_whoever_did_not_log_in_is_anonymous(fresh_database: str, topic: str) -> None:
    with running(fresh_database, authorization="acls") as gateway, RawClient(gateway.port) as client:
        (refused,) = client.ask(cluster.METADATA, 9, ask_metadata(topic)).topics
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        grant(gateway, ("TOPIC", "LITERAL", topic, "ANONYMOUS", "ALL"))
        client.create(topic)
        assert client.fetch(topic).responses[0].partitions[0].error_code == 0


def test_everybody_may_what_no_acl_is_about(fresh_database: str, topic: str) -> None:
    options: dict[str, Any] = {"users": USERS, "authorization": "acls", "allow_everyone_if_no_acl": True}
    with running(fresh_database, **options) as gateway, login(gateway, "alice") as client:
        client.create(topic)
        grant(gateway, ("TOPIC", "LITERAL", topic, "bob", "READ"))
        assert client.fetch(topic).responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        client.create(f"{topic}-2")
