"""What there is: Metadata, DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

import dataclasses

from headgate.gateway.access import Kind, Operation
from headgate.gateway.cluster import Cluster
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.handlers.moved import metadata_of, moved_partitions
from headgate.gateway.outage import NO_DATABASE
from headgate.gateway.store import Topic
from headgate.gateway.store.moves import Elsewhere
from headgate.wire.kafka import NO_UUID, Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import (
    AskedTopic,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from headgate.wire.kafka.messages.shared import Cursor
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS", "INTERNAL_TOPICS", "find_allowed", "find_topic", "visible_topics"]

LEADER_EPOCH = 0  # a partition has no owner that could change
# Kafka keeps its own things there. Here they are in tables, and these are empty, for tools that look at them.
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state"))
_NOT_ASKED = -(2**31)
_MAX_PAGE_PARTITIONS = 2000
_NAMELESS = 12  # Metadata's first version in which a topic may have no name


async def metadata(context: Context, header: RequestHeader, request: MetadataRequest) -> Body:
    """Brokers, and the topics asked for; those that are missing are made if both sides want that."""
    if request.topics is None or (header.api_version == 0 and not request.topics):
        topics = [await _described(context, topic, request) for topic in await visible_topics(context)]
    else:
        topics = [await _asked(context, header, asked, request) for asked in request.topics or ()]
    operations = _NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = await _cluster_operations(context)
    targets = [_target(context, topic.name) if not topic.error_code else None for topic in topics] or [None]
    return metadata_of(context, topics, targets, operations)


def _target(context: Context, name: str | None) -> Elsewhere | None:
    topic = context.store.catalog.get(name or "")
    return topic.move.target if topic is not None and topic.move is not None and topic.move.state == "moved" else None


async def _cluster_operations(context: Context) -> int:
    """What the client may do with the cluster, which is told to those who may look at it."""
    if not await context.access.may(Operation.DESCRIBE, Kind.CLUSTER):
        return 0
    return await context.access.operations(Kind.CLUSTER)


async def visible_topics(context: Context, operation: Operation = Operation.DESCRIBE) -> list[Topic]:
    """Return the topics, by name, that the client may look at, or do something else with."""
    topics = await context.store.catalog.all()
    visible = await context.access.allowed(operation, Kind.TOPIC, [topic.name for topic in topics], is_asked=False)
    return topics if len(visible) == len(topics) else [topic for topic in topics if topic.name in visible]


async def _asked(context: Context, header: RequestHeader, asked: AskedTopic, request: MetadataRequest) -> TopicMetadata:
    try:
        if asked.name is not None and asked.topic_id == NO_UUID:
            await context.access.check(Operation.DESCRIBE, Kind.TOPIC, asked.name)
        topic = await _found_or_made(context, asked, may_make=request.allow_auto_topic_creation)
    except Refused as refused:
        return TopicMetadata(error_code=refused.code, name=asked.name, topic_id=asked.topic_id)
    except NO_DATABASE:  # the brokers are told all the same, so that the client does not lose them
        return TopicMetadata(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=asked.name, topic_id=asked.topic_id)
    if asked.topic_id != NO_UUID and not await context.access.allowed(Operation.DESCRIBE, Kind.TOPIC, (topic.name,)):
        # Ids are no secret; the name that belongs to one is.
        return TopicMetadata(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            name=None if header.api_version >= _NAMELESS else "",
            topic_id=asked.topic_id,
        )
    return await _described(context, topic, request)


async def _found_or_made(context: Context, asked: AskedTopic, *, may_make: bool) -> Topic:
    if asked.topic_id != NO_UUID:
        return await find_topic(context, "", asked.topic_id)
    if asked.name is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic without a name and an id")
    found = await context.store.catalog.find(asked.name)
    if found is not None:
        return found
    if not (may_make and context.options.auto_create_topics):
        # A name that no topic can have is told apart from one that no topic has.
        await context.store.catalog.create(asked.name, 1, {}, validate_only=True)
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not await context.access.may(Operation.CREATE, Kind.CLUSTER):
        await context.access.check(Operation.CREATE, Kind.TOPIC, asked.name)
    settings = {"cleanup.policy": "compact"} if asked.name in INTERNAL_TOPICS else {}
    try:
        return await context.store.catalog.create(asked.name, context.options.default_partitions, settings)
    except Refused as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return await find_topic(context, asked.name)  # somebody else was faster


async def find_allowed(context: Context, operation: Operation, name: str, topic_id: object = NO_UUID) -> Topic:
    """Return a topic with which the client may do something. Raises `Refused`.

    Whether there is a topic is not told to those who may not know: what is named is looked at before it is looked for.
    """
    if topic_id == NO_UUID:
        await context.access.check(operation, Kind.TOPIC, name)
    topic = await find_topic(context, name, topic_id)
    if topic_id != NO_UUID:
        await context.access.check(operation, Kind.TOPIC, topic.name)
    return topic


async def find_topic(context: Context, name: str, topic_id: object = NO_UUID) -> Topic:
    """A topic by id, or by name if there is no id; refused if there is none. Look at `find_allowed` first."""
    catalog = context.store.catalog
    if topic_id != NO_UUID:
        topic = await catalog.find_id(topic_id)  # type: ignore[arg-type]
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic
    topic = await catalog.find(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


async def _described(context: Context, topic: Topic, request: MetadataRequest) -> TopicMetadata:
    partitions = tuple(_partition(context.cluster, index, part_id) for index, part_id in enumerate(topic.parts))
    topic_id = topic.uuid
    if topic.move is not None and topic.move.is_closed:
        partitions = moved_partitions(topic.move, len(topic.parts))
        topic_id = topic.move.target.topic_id if topic.move.state == "moved" and topic.move.target else topic.uuid
    return TopicMetadata(
        name=topic.name,
        topic_id=topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=(
            await context.access.operations(Kind.TOPIC, topic.name)
            if request.include_topic_authorized_operations
            else _NOT_ASKED
        ),
    )


def _partition(cluster: Cluster, index: int, part_id: int) -> PartitionMetadata:
    leader = cluster.leader_of(part_id).node_id
    return PartitionMetadata(
        partition_index=index,
        leader_id=leader,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=(leader,),
        isr_nodes=(leader,),
    )


async def describe_cluster(context: Context, header: RequestHeader, request: DescribeClusterRequest) -> Body:
    """The brokers. There are no controllers that could be asked directly."""
    cluster = context.cluster
    if request.endpoint_type != 1:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="there are no controllers of their own",
            endpoint_type=request.endpoint_type,
        )
    return DescribeClusterResponse(
        error_message=None,
        cluster_id=cluster.id,
        controller_id=cluster.controller.node_id,
        brokers=tuple(
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port) for each in cluster.live()
        ),
        cluster_authorized_operations=(
            await _cluster_operations(context) if request.include_cluster_authorized_operations else _NOT_ASKED
        ),
    )


@dataclasses.dataclass(slots=True)
class _Page:
    """Topics up to a number of partitions, and where the next page begins."""

    room: int
    topics: list[DescribedTopic] = dataclasses.field(default_factory=list)
    next_cursor: Cursor | None = None

    def add(self, cluster: Cluster, topic: Topic, first: int, operations: int) -> None:
        if self.room <= 0:
            self.next_cursor = Cursor(topic_name=topic.name, partition_index=first)
            return
        parts = list(enumerate(topic.parts))[first : first + self.room]
        self.room -= len(parts)
        self.topics.append(
            DescribedTopic(
                name=topic.name,
                topic_id=topic.uuid,
                partitions=tuple(_described_partition(cluster, index, part_id) for index, part_id in parts),
                topic_authorized_operations=operations,
            )
        )
        if first + len(parts) < len(topic.parts):
            self.next_cursor = Cursor(topic_name=topic.name, partition_index=first + len(parts))


async def describe_topic_partitions(
    context: Context, header: RequestHeader, request: DescribeTopicPartitionsRequest
) -> Body:
    """Topics by name, page by page."""
    cursor = request.cursor or Cursor()
    page = _Page(min(max(request.response_partition_limit, 1), _MAX_PAGE_PARTITIONS))
    for name, topic in await _named(context, request):
        if name < cursor.topic_name or page.next_cursor:
            continue
        if isinstance(topic, Refused):
            page.topics.append(DescribedTopic(error_code=topic.code, name=name))
            continue
        first = max(cursor.partition_index, 0) if name == cursor.topic_name else 0
        page.add(context.cluster, topic, first, await context.access.operations(Kind.TOPIC, name))
    return DescribeTopicPartitionsResponse(topics=tuple(page.topics), next_cursor=page.next_cursor)


async def _named(context: Context, request: DescribeTopicPartitionsRequest) -> list[tuple[str, Topic | Refused]]:
    if not request.topics:
        return [(topic.name, topic) for topic in await visible_topics(context)]
    found: list[tuple[str, Topic | Refused]] = []
    for name in sorted({topic.name for topic in request.topics}):
        try:
            found.append((name, await find_allowed(context, Operation.DESCRIBE, name)))
        except Refused as refused:
            found.append((name, refused))
    return found


def _described_partition(cluster: Cluster, index: int, part_id: int) -> DescribedPartition:
    leader = cluster.leader_of(part_id).node_id
    return DescribedPartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=(leader,),
        isr_nodes=(leader,),
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


def _metadata_failed(request: MetadataRequest, code: ErrorCode, message: str | None) -> Body:
    topics = tuple(
        TopicMetadata(error_code=code, name=asked.name or "", topic_id=asked.topic_id) for asked in request.topics or ()
    )
    return MetadataResponse(topics=topics, error_code=code)


def _pages_failed(request: DescribeTopicPartitionsRequest, code: ErrorCode, message: str | None) -> Body:
    return DescribeTopicPartitionsResponse(
        topics=tuple(DescribedTopic(error_code=code, name=topic.name) for topic in request.topics)
    )


HANDLERS: Handlers = {
    MetadataRequest: metadata,
    DescribeClusterRequest: describe_cluster,
    DescribeTopicPartitionsRequest: describe_topic_partitions,
}
FAILURES: Failures = {MetadataRequest: _metadata_failed, DescribeTopicPartitionsRequest: _pages_failed}
