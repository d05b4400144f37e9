"""Topics made, grown and deleted: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from headgate.commitlog.configs import CONFIGS, value_of
from headgate.gateway.access import Kind, Operation, refusal
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.handlers.cluster import find_allowed
from headgate.gateway.handlers.configs import source_of
from headgate.gateway.store import NewTopic, Topic
from headgate.wire.kafka import NO_UUID, Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatedTopic,
    CreatedTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopic,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

_REPLICATION_FACTOR = 1  # PostgreSQL keeps copies, or does not; the gateway cannot know


async def create_topics(context: Context, header: RequestHeader, request: CreateTopicsRequest) -> Body:
    """Make topics, all in one transaction; each succeeds or fails for itself."""
    counts = Counter(topic.name for topic in request.topics)
    may_make = await _creatable(context, counts)
    wanted = [
        _wanted(context, topic, is_repeated=counts[topic.name] > 1) if topic.name in may_make else refusal(Kind.TOPIC)
        for topic in request.topics
    ]
    made = iter(
        await context.store.catalog.create_many(
            [each for each in wanted if isinstance(each, NewTopic)], validate_only=request.validate_only
        )
    )
    may_look = await context.access.allowed(Operation.DESCRIBE_CONFIGS, Kind.TOPIC, counts, is_asked=False)
    results = [next(made) if isinstance(each, NewTopic) else each for each in wanted]
    return CreateTopicsResponse(
        topics=tuple(
            _not_created(asked, result.code, result.message)
            if isinstance(result, Refused)
            else _created(result, request.validate_only, may_look=result.name in may_look)
            for asked, result in zip(request.topics, results, strict=True)
        )
    )


async def _creatable(context: Context, names: Collection[str]) -> Collection[str]:
    if await context.access.may(Operation.CREATE, Kind.CLUSTER):
        return names
    return await context.access.allowed(Operation.CREATE, Kind.TOPIC, names)


def _wanted(context: Context, asked: CreatableTopic, *, is_repeated: bool) -> NewTopic | Refused:
    try:
        if is_repeated:
            raise Refused(ErrorCode.INVALID_REQUEST, "the topic is named twice")
        return NewTopic(asked.name, _partition_count(context, asked), _configs(asked))
    except Refused as refused:
        return refused


def _created(topic: Topic, validate_only: bool, *, may_look: bool) -> CreatedTopic:
    topic_id = NO_UUID if validate_only else topic.uuid
    if not may_look:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatedTopic(topic.name, topic_id, error_message=None, topic_config_error_code=code, configs=None)
    return CreatedTopic(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(topic.parts),
        replication_factor=_REPLICATION_FACTOR,
        configs=_settings(topic),
    )


def _partition_count(context: Context, asked: CreatableTopic) -> int:
    if asked.assignments:
        return _assigned_count(context, asked)
    # Any number is right: scripts made for other clusters ask for three copies, and here PostgreSQL makes them or not.
    if asked.replication_factor != -1 and asked.replication_factor < 1:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be 1 or more, or -1")
    if asked.num_partitions == -1:
        return context.options.default_partitions
    return asked.num_partitions


def _assigned_count(context: Context, asked: CreatableTopic) -> int:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise Refused(ErrorCode.INVALID_REQUEST, "give assignments or numbers, not both")
    indexes = sorted(assignment.partition_index for assignment in asked.assignments)
    if indexes != list(range(len(indexes))):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are not numbered from 0 without gaps")
    for assignment in asked.assignments:
        _check_brokers(context, assignment.broker_ids)
    return len(indexes)


def _check_brokers(context: Context, broker_ids: Sequence[int]) -> None:
    known = {broker.node_id for broker in context.cluster.live()}
    if not broker_ids or len(set(broker_ids)) != len(broker_ids) or not known.issuperset(broker_ids):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the brokers are {sorted(known)}, each at most once")


def _configs(asked: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        configs[config.name] = config.value
    return configs


def _settings(topic: Topic) -> tuple[CreatedTopicConfig, ...]:
    return tuple(
        CreatedTopicConfig(name=name, value=value_of(topic.configs, name), config_source=source_of(topic.configs, name))
        for name in CONFIGS
    )


def _not_created(asked: CreatableTopic, code: ErrorCode, message: str | None) -> CreatedTopic:
    return CreatedTopic(name=asked.name, error_code=code, error_message=message)


def _create_failed(request: CreateTopicsRequest, code: ErrorCode, message: str | None) -> Body:
    return CreateTopicsResponse(topics=tuple(_not_created(topic, code, message) for topic in request.topics))


async def delete_topics(context: Context, header: RequestHeader, request: DeleteTopicsRequest) -> Body:
    """Delete topics by name or id."""
    asked = _deletable(request)
    return DeleteTopicsResponse(responses=tuple([await _deleted(context, topic) for topic in asked]))


def _deletable(request: DeleteTopicsRequest) -> tuple[DeletableTopic, ...]:
    return request.topics or tuple(DeletableTopic(name=name) for name in request.topic_names)


async def _deleted(context: Context, asked: DeletableTopic) -> DeletedTopic:
    try:
        if (asked.name is None) == (asked.topic_id == NO_UUID):
            raise Refused(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id")
        topic = await find_allowed(context, Operation.DELETE, asked.name or "", asked.topic_id)
        await context.store.catalog.delete(topic.uuid)
    except Refused as refused:
        return DeletedTopic(
            name=asked.name, topic_id=asked.topic_id, error_code=refused.code, error_message=refused.message
        )
    return DeletedTopic(name=topic.name, topic_id=topic.uuid)


def _delete_failed(request: DeleteTopicsRequest, code: ErrorCode, message: str | None) -> Body:
    return DeleteTopicsResponse(
        responses=tuple(
            DeletedTopic(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
            for topic in _deletable(request)
        )
    )


async def create_partitions(context: Context, header: RequestHeader, request: CreatePartitionsRequest) -> Body:
    """Give topics more partitions."""
    return CreatePartitionsResponse(
        results=tuple([await _grown(context, topic, request.validate_only) for topic in request.topics])
    )


async def _grown(context: Context, asked: CreatePartitionsTopic, validate_only: bool) -> CreatePartitionsTopicResult:
    try:
        topic = await find_allowed(context, Operation.ALTER, asked.name)
        if asked.assignments:
            if len(asked.assignments) != asked.count - len(topic.parts):
                raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "one assignment for each new partition")
            for assignment in asked.assignments:
                _check_brokers(context, assignment.broker_ids)
        await context.store.catalog.add_partitions(asked.name, asked.count, validate_only=validate_only)
    except Refused as refused:
        return CreatePartitionsTopicResult(name=asked.name, error_code=refused.code, error_message=refused.message)
    return CreatePartitionsTopicResult(name=asked.name)


def _grow_failed(request: CreatePartitionsRequest, code: ErrorCode, message: str | None) -> Body:
    return CreatePartitionsResponse(
        results=tuple(
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        )
    )


HANDLERS: Handlers = {
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
    CreatePartitionsRequest: create_partitions,
}
FAILURES: Failures = {
    CreateTopicsRequest: _create_failed,
    DeleteTopicsRequest: _delete_failed,
    CreatePartitionsRequest: _grow_failed,
}
