"""Features that a gateway does not have, as tools ask for them: an honest answer, and the tool goes on."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as untyped

from headgate.wire.kafka import Record, encode_batch
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import leadership as lead
from headgate.wire.kafka.messages import security
from headgate.wire.kafka.messages.cluster import METADATA, AskedTopic, MetadataRequest
from headgate.wire.kafka.messages.configs import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest
from headgate.wire.kafka.messages.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, running

TIMEOUT_S = 30.0
kafka: Any = untyped  # its stubs leave out most names


def test_acls_are_disabled(gateway: GatewayThread) -> None:
    admin: Any = kafka.AdminClient({"bootstrap.servers": gateway.bootstrap})
    binding = kafka.AclBinding(
        kafka.ResourceType.TOPIC,
        "t",
        kafka.ResourcePatternType.LITERAL,
        "User:a",
        "*",
        kafka.AclOperation.READ,
        kafka.AclPermissionType.ALLOW,
    )
    (future,) = admin.create_acls([binding]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    assert caught.value.args[0].code() == ErrorCode.SECURITY_DISABLED
    assert "no ACLs" in caught.value.args[0].str()
    with RawClient(gateway.port) as client:
        described = client.ask(security.DESCRIBE_ACLS, 3, security.DescribeAclsRequest())
        assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, ())
        request = security.DeleteAclsRequest(filters=(security.DeleteAclsFilter(),))
        (result,) = client.ask(security.DELETE_ACLS, 3, request).filter_results
        assert result.error_code == ErrorCode.SECURITY_DISABLED


def test_producers(gateway: GatewayThread, topic: str) -> None:
    with RawClient(gateway.port) as client:
        client.create(topic)
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, value=b"v")], producer_id=7, producer_epoch=2, base_sequence=0
        )
        data = ProduceTopic(name=topic, partition_data=(ProducePartition(index=0, records=batch),))
        client.ask(PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,)))
        asked = lead.AskedProducersTopic(name=topic, partition_indexes=(0, 5))
        (answer,) = client.ask(lead.DESCRIBE_PRODUCERS, 0, lead.DescribeProducersRequest(topics=(asked,))).topics
    here, nowhere = answer.partitions
    (producer,) = here.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 0)
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_reassignments_and_elections(gateway: GatewayThread, topic: str) -> None:
    with RawClient(gateway.port) as client:
        client.create(topic)
        none = client.ask(lead.LIST_PARTITION_REASSIGNMENTS, 0, lead.ListPartitionReassignmentsRequest())
        assert (none.error_code, none.topics) == (0, ())
        parts = lead.ReassignPartition(partition_index=0, replicas=(9,)), lead.ReassignPartition(partition_index=0)
        request = lead.AlterPartitionReassignmentsRequest(topics=(lead.ReassignTopic(name=topic, partitions=parts),))
        (moved,) = client.ask(lead.ALTER_PARTITION_REASSIGNMENTS, 1, request).responses
        assert [each.error_code for each in moved.partitions] == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ]
        elect = lead.ElectLeadersRequest(topic_partitions=(lead.ElectTopic(topic=topic, partitions=(0, 9)),))
        (elected,) = client.ask(lead.ELECT_LEADERS, 2, elect).replica_election_results
        assert [each.error_code for each in elected.partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert client.ask(lead.ELECT_LEADERS, 2, lead.ElectLeadersRequest(topic_partitions=None)).error_code == 0


def test_the_quorum_has_one_voter(gateway: GatewayThread) -> None:
    cluster = gateway.gateway.services.cluster
    with RawClient(gateway.port) as client:
        for name in ("__cluster_metadata", "other"):
            asked = lead.AskedQuorumTopic(topic_name=name, partitions=(lead.AskedQuorumPartition(),))
            answer = client.ask(lead.DESCRIBE_QUORUM, 2, lead.DescribeQuorumRequest(topics=(asked,)))
            (partition,) = answer.topics[0].partitions
            if name == "other":
                assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            assert partition.leader_id == cluster.controller.node_id
            assert [each.replica_id for each in partition.current_voters] == [cluster.controller.node_id]
            assert answer.nodes[0].listeners[0].port == cluster.controller.port


def test_internal_topics_are_there_and_empty(fresh_database: str) -> None:
    """For tools that look at them; what Kafka keeps there is in tables."""
    with running(fresh_database) as gateway, RawClient(gateway.port) as client:
        name = "__consumer_offsets"
        (found,) = client.ask(METADATA, 9, MetadataRequest(topics=(AskedTopic(name=name),))).topics
        assert (found.error_code, found.is_internal) == (0, True)
        (refused,) = client.produce(name, b"v").responses[0].partition_responses
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert client.fetch(name).responses[0].partitions[0].high_watermark == 0


def test_what_has_settings(gateway: GatewayThread, topic: str) -> None:
    with RawClient(gateway.port) as client:
        client.create(topic)
        assert client.ask(LIST_CONFIG_RESOURCES, 0, ListConfigResourcesRequest()).config_resources == ()
        everything = client.ask(LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest()).config_resources
        assert (topic, 2) in {(each.resource_name, each.resource_type) for each in everything}
        metrics = client.ask(LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=(16,)))
        assert metrics.config_resources == ()
