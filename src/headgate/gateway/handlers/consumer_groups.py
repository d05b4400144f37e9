"""Consumer groups of the new protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from headgate.gateway.access import Kind, Operation, refusal
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.groups import ConsumerGroup, Partition, Sight
from headgate.gateway.handlers.groups import NO_OPERATIONS
from headgate.gateway.handlers.membership import client_of
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages import consumer_groups as messages
from headgate.wire.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMember,
    DescribedAssignment,
    NamedAssignedTopic,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

_CONSUMER_MEMBER = 1  # a member that uses this protocol, and not the classic one
_NAMES_ITSELF = 1  # ConsumerGroupHeartbeat's first version in which members choose their id


async def heartbeat(context: Context, header: RequestHeader, request: ConsumerGroupHeartbeatRequest) -> Body:
    """Enter, live in or leave a group."""
    if not request.member_id and (header.api_version >= _NAMES_ITSELF or request.member_epoch != 0):
        raise Refused(ErrorCode.INVALID_REQUEST, "a member needs an id")
    named = request.subscribed_topic_names or ()
    if len(await context.access.allowed(Operation.DESCRIBE, Kind.TOPIC, named)) < len(set(named)):
        raise refusal(Kind.TOPIC)
    return await context.coordinator.consumer_heartbeat(request, client_of(context, header), _sight(context))


def _sight(context: Context) -> Sight:
    """Of topics that an expression matches, those that the client may look at."""

    async def sight(names: Collection[str]) -> Collection[str]:
        return await context.access.allowed(Operation.DESCRIBE, Kind.TOPIC, names, is_asked=False)

    return sight


def _no_heartbeat(request: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str | None) -> Body:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


async def describe(context: Context, header: RequestHeader, request: ConsumerGroupDescribeRequest) -> Body:
    """Groups with their members, and what these have and should have."""
    wants = request.include_authorized_operations
    return ConsumerGroupDescribeResponse(
        groups=tuple([await _described(context, group_id, wants) for group_id in request.group_ids])
    )


async def _described(context: Context, group_id: str, wants_operations: bool) -> messages.ConsumerGroup:
    try:
        await context.access.check(Operation.DESCRIBE, Kind.GROUP, group_id)
        group = await context.coordinator.look(group_id)
        if not isinstance(group, ConsumerGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        members = _members(context, group)
        await _check_topics(context, members)
    except Refused as refused:
        return messages.ConsumerGroup(error_code=refused.code, error_message=refused.message, group_id=group_id)
    return messages.ConsumerGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.generation,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=members,
        authorized_operations=(
            await context.access.operations(Kind.GROUP, group_id) if wants_operations else NO_OPERATIONS
        ),
    )


async def _check_topics(context: Context, members: Iterable[ConsumerGroupMember]) -> None:
    """A group is shown whole or not: only to those who may look at all topics that its members name or have."""
    names = {name for each in members for name in each.subscribed_topic_names}
    for each in members:
        for assignment in (each.assignment, each.target_assignment):
            names |= {topic.topic_name for topic in assignment.topic_partitions}
    if len(await context.access.allowed(Operation.DESCRIBE, Kind.TOPIC, names)) < len(names):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the group reads topics that the client may not look at")


def _members(context: Context, group: ConsumerGroup) -> tuple[ConsumerGroupMember, ...]:
    return tuple(
        ConsumerGroupMember(
            member_id=each.member_id,
            instance_id=each.instance_id,
            rack_id=each.rack_id,
            member_epoch=each.epoch,
            client_id=each.client_id,
            client_host=each.client_host,
            subscribed_topic_names=tuple(sorted(each.names)),
            subscribed_topic_regex=each.regex,
            assignment=_named(context, each.assigned),
            target_assignment=_named(context, each.target),
            member_type=_CONSUMER_MEMBER,
        )
        for each in group.members.values()
    )


def _named(context: Context, partitions: Iterable[Partition]) -> DescribedAssignment:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    known = [(context.store.catalog.by_id(topic_id), indexes) for topic_id, indexes in by_topic.items()]
    return DescribedAssignment(
        tuple(NamedAssignedTopic(topic.uuid, topic.name, tuple(indexes)) for topic, indexes in known if topic)
    )


def _not_described(request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str | None) -> Body:
    return ConsumerGroupDescribeResponse(
        groups=tuple(
            messages.ConsumerGroup(error_code=code, error_message=message, group_id=each) for each in request.group_ids
        )
    )


HANDLERS: Handlers = {ConsumerGroupHeartbeatRequest: heartbeat, ConsumerGroupDescribeRequest: describe}
FAILURES: Failures = {ConsumerGroupHeartbeatRequest: _no_heartbeat, ConsumerGroupDescribeRequest: _not_described}
