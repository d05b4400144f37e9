"""Features of Kafka that a gateway does not have, answered as they are: nothing is there, or it cannot be changed.

Tools ask for them all the same, and one that gets no answer fails altogether.
"""

from __future__ import annotations

from headgate.gateway.access import Kind, Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.handlers.cluster import LEADER_EPOCH
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.configs import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headgate.wire.kafka.messages.leadership import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AskedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectedPartition,
    ElectedTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ProducersOfPartition,
    ProducersOfTopic,
    ProducerState,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
    ReassignedPartition,
    ReassignedTopic,
)

__all__ = ["FAILURES", "HANDLERS"]

_NO_REPLICAS = "partitions are in PostgreSQL, and gateways lead them by a hash"
_METADATA_TOPIC = "__cluster_metadata"
_TOPICS, _BROKERS = 2, 4  # types of resources that have settings; client metrics have none


async def describe_producers(context: Context, header: RequestHeader, request: DescribeProducersRequest) -> Body:
    """The idempotent producers of partitions, as the log remembers them, and where their open transactions begin."""
    topics = []
    for topic in request.topics:
        partitions = await _producers_of(context, topic)
        topics.append(ProducersOfTopic(name=topic.name, partitions=tuple(partitions)))
    return DescribeProducersResponse(topics=tuple(topics))


async def _producers_of(context: Context, topic: AskedProducersTopic) -> list[ProducersOfPartition]:
    if not await context.access.allowed(Operation.READ, Kind.TOPIC, (topic.name,)):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return [ProducersOfPartition(partition_index=index, error_code=code) for index in topic.partition_indexes]
    found = await context.store.catalog.find(topic.name)
    parts = found.parts if found else ()
    return [await _producers(context, parts, index) for index in topic.partition_indexes]


async def _producers(context: Context, parts: tuple[int, ...], index: int) -> ProducersOfPartition:
    if not 0 <= index < len(parts):
        return ProducersOfPartition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    begins = await context.transactions.open_in(parts[index])
    return ProducersOfPartition(
        partition_index=index,
        active_producers=tuple(
            ProducerState(
                producer_id=producer,
                producer_epoch=epoch,
                last_sequence=sequence,
                last_timestamp=seen_ms,
                current_txn_start_offset=begins.get(producer, -1),
            )
            for producer, epoch, sequence, seen_ms in await context.store.producers(parts[index])
        ),
    )


async def list_reassignments(
    context: Context, header: RequestHeader, request: ListPartitionReassignmentsRequest
) -> Body:
    return ListPartitionReassignmentsResponse(error_message=None)


async def alter_reassignments(
    context: Context, header: RequestHeader, request: AlterPartitionReassignmentsRequest
) -> Body:
    def outcome(index: int, is_cancelled: bool) -> ReassignedPartition:
        if is_cancelled:
            return ReassignedPartition(
                partition_index=index, error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, error_message=None
            )
        return ReassignedPartition(
            partition_index=index, error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, error_message=_NO_REPLICAS
        )

    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=tuple(
            ReassignedTopic(
                name=topic.name,
                partitions=tuple(outcome(each.partition_index, each.replicas is None) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


async def elect_leaders(context: Context, header: RequestHeader, request: ElectLeadersRequest) -> Body:
    """Every partition has a leader at all times. A tool that asks for all of them is told of none that changed."""
    results = []
    for topic in request.topic_partitions or ():
        found = await context.store.catalog.find(topic.topic)
        count = len(found.parts) if found else 0
        results.append(
            ElectedTopic(
                topic=topic.topic,
                partition_result=tuple(
                    ElectedPartition(partition_id=index, error_code=_election(index, count), error_message=None)
                    for index in topic.partitions
                ),
            )
        )
    return ElectLeadersResponse(replica_election_results=tuple(results))


def _election(index: int, count: int) -> ErrorCode:
    return ErrorCode.ELECTION_NOT_NEEDED if 0 <= index < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def describe_quorum(context: Context, header: RequestHeader, request: DescribeQuorumRequest) -> Body:
    """The controller is the one voter, and the other gateways look on: PostgreSQL decides."""
    cluster = context.cluster
    voter = cluster.controller
    others = tuple(QuorumReplica(replica_id=each.node_id) for each in cluster.live() if each is not voter)

    def partition(topic: str, index: int) -> QuorumPartition:
        if (topic, index) != (_METADATA_TOPIC, 0):
            return QuorumPartition(
                partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None
            )
        return QuorumPartition(
            error_message=None,
            leader_id=voter.node_id,
            leader_epoch=LEADER_EPOCH,
            current_voters=(QuorumReplica(replica_id=voter.node_id),),
            observers=others,
        )

    listener = QuorumListener(name="PLAINTEXT", host=voter.host, port=voter.port)
    return DescribeQuorumResponse(
        error_message=None,
        topics=tuple(
            QuorumTopic(
                topic_name=topic.topic_name,
                partitions=tuple(partition(topic.topic_name, each.partition_index) for each in topic.partitions),
            )
            for topic in request.topics
        ),
        nodes=(QuorumNode(node_id=voter.node_id, listeners=(listener,)),),
    )


async def list_config_resources(context: Context, header: RequestHeader, request: ListConfigResourcesRequest) -> Body:
    """What has settings; client metrics, which version 0 asks for, have none."""
    wanted = set(request.resource_types) if header.api_version else set()
    if header.api_version and not wanted:
        wanted = {_TOPICS, _BROKERS}
    found = []
    if _TOPICS in wanted:
        found += [(topic.name, _TOPICS) for topic in await context.store.catalog.all()]
    if _BROKERS in wanted:
        found += [(str(broker.node_id), _BROKERS) for broker in context.cluster.live()]
    return ListConfigResourcesResponse(
        config_resources=tuple(ConfigResource(resource_name=name, resource_type=kind) for name, kind in found)
    )


def _election_failed(request: ElectLeadersRequest, code: ErrorCode, message: str | None) -> Body:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=tuple(
            ElectedTopic(
                topic=topic.topic,
                partition_result=tuple(
                    ElectedPartition(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ),
            )
            for topic in request.topic_partitions or ()
        ),
    )


def _producers_failed(request: DescribeProducersRequest, code: ErrorCode, message: str | None) -> Body:
    return DescribeProducersResponse(
        topics=tuple(
            ProducersOfTopic(
                name=topic.name,
                partitions=tuple(
                    ProducersOfPartition(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics
        )
    )


HANDLERS: Handlers = {
    DescribeProducersRequest: describe_producers,
    ListPartitionReassignmentsRequest: list_reassignments,
    AlterPartitionReassignmentsRequest: alter_reassignments,
    ElectLeadersRequest: elect_leaders,
    DescribeQuorumRequest: describe_quorum,
    ListConfigResourcesRequest: list_config_resources,
}
FAILURES: Failures = {
    ElectLeadersRequest: _election_failed,
    DescribeProducersRequest: _producers_failed,
}
