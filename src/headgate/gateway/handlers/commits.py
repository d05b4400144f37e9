"""A group's offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from uuid import UUID

from headgate.gateway.access import Kind, Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.groups import Commit, Committed
from headgate.gateway.store import Topic
from headgate.wire.kafka import NO_UUID, Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.commits import (
    CommitPartition,
    CommittedPartition,
    CommittedTopic,
    CommitTopic,
    DeletedOffset,
    DeletedOffsetsTopic,
    FetchedGroupOffset,
    FetchedOffset,
    FetchedOffsetsGroup,
    FetchedOffsetsGroupTopic,
    FetchedOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

_COMMITS_BY_ID, _FETCHES_BY_ID, _SEVERAL_GROUPS = 10, 10, 8  # the first versions of OffsetCommit and OffsetFetch
_NONE_STORED = -1
_NOT_ALLOWED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def commit(context: Context, header: RequestHeader, request: OffsetCommitRequest) -> Body:
    """Store offsets; partitions that do not exist are refused one by one, a member that may not as a whole."""
    limit = context.coordinator.settings.max_metadata_bytes
    known = [(topic, await _topic(context, topic.name, topic.topic_id)) for topic in request.topics]
    readable = await _readable(context, known)
    checked = [
        [
            (each, _check(each, found, limit, is_named=topic.topic_id == NO_UUID) if is_readable else _NOT_ALLOWED)
            for each in topic.partitions
        ]
        for (topic, found), is_readable in zip(known, readable, strict=True)
    ]
    commits = [
        _commit(each, found)
        for (_, found), partitions in zip(known, checked, strict=True)
        for each, code in partitions
        if found is not None and code is ErrorCode.NONE
    ]
    member = request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    await context.coordinator.commit(request.group_id, member, commits, header.api_version)
    return OffsetCommitResponse(
        topics=tuple(
            _committed(topic, (code for _, code in partitions))
            for topic, partitions in zip(request.topics, checked, strict=True)
        )
    )


async def _readable(context: Context, asked: Sequence[tuple[CommitTopic, Topic | None]]) -> list[bool]:
    """Whether the client may read each topic; those that are not there by the name that was given."""
    names = [found.name if found else topic.name for topic, found in asked]
    allowed = await context.access.allowed(Operation.READ, Kind.TOPIC, [name for name in names if name])
    return [not name or name in allowed for name in names]  # by an id that there is not: it is told so


async def _topic(context: Context, name: str, topic_id: UUID) -> Topic | None:
    catalog = context.store.catalog
    return await catalog.find(name) if topic_id == NO_UUID else await catalog.find_id(topic_id)


def _check(partition: CommitPartition, topic: Topic | None, limit: int, *, is_named: bool) -> ErrorCode:
    if topic is None and not is_named:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or not 0 <= partition.partition_index < len(topic.parts):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_too_long = len((partition.committed_metadata or "").encode()) > limit
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_long else ErrorCode.NONE


def _commit(partition: CommitPartition, topic: Topic) -> Commit:
    return Commit(
        topic.id,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
    )


def _committed(topic: CommitTopic, codes: Iterable[ErrorCode]) -> CommittedTopic:
    return CommittedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            CommittedPartition(each.partition_index, code) for each, code in zip(topic.partitions, codes, strict=True)
        ),
    )


def _not_committed(request: OffsetCommitRequest, code: ErrorCode, message: str | None) -> Body:
    return OffsetCommitResponse(
        topics=tuple(_committed(topic, (code for _ in topic.partitions)) for topic in request.topics)
    )


async def fetch(context: Context, header: RequestHeader, request: OffsetFetchRequest) -> Body:
    """The stored offsets. Whoever requires stable ones must wait for open transactions that have others."""
    stable = request.require_stable
    if header.api_version >= _SEVERAL_GROUPS:
        groups = [await _fetched(context, header.api_version, group, stable) for group in request.groups]
        return OffsetFetchResponse(groups=tuple(groups))
    wanted = None
    if request.topics is not None:
        wanted = tuple(OffsetFetchGroupTopic(each.name, NO_UUID, each.partition_indexes) for each in request.topics)
    one = await _fetched(context, header.api_version, OffsetFetchGroup(request.group_id, None, -1, wanted), stable)
    return OffsetFetchResponse(
        error_code=one.error_code,
        topics=tuple(
            FetchedOffsetsTopic(topic.name, tuple(_older(each, one.error_code) for each in topic.partitions))
            for topic in one.topics
        ),
    )


def _older(offset: FetchedGroupOffset, group_code: int) -> FetchedOffset:
    """As versions before 8 say it; version 1 has no other place for the group's error."""
    return FetchedOffset(
        offset.partition_index,
        offset.committed_offset,
        offset.committed_leader_epoch,
        offset.metadata,
        offset.error_code or group_code,
    )


async def _fetched(context: Context, version: int, group: OffsetFetchGroup, stable: bool) -> FetchedOffsetsGroup:
    try:
        await context.access.check(Operation.DESCRIBE, Kind.GROUP, group.group_id)
        stored = await context.coordinator.offsets(group.group_id, group.member_id, group.member_epoch)
    except Refused as refused:
        return _unfetched(group, refused.code)
    if not stable:
        stored = [dataclasses.replace(each, is_stable=True) for each in stored if each.offset != _NONE_STORED]
    if group.topics is None:
        visible = await context.access.allowed(
            Operation.DESCRIBE, Kind.TOPIC, {each.name for each in stored}, is_asked=False
        )
        return FetchedOffsetsGroup(group.group_id, tuple(_all([each for each in stored if each.name in visible])))
    is_by_id = version >= _FETCHES_BY_ID
    return FetchedOffsetsGroup(
        group.group_id, tuple([await _wanted(context, each, stored, is_by_id) for each in group.topics])
    )


def _unfetched(group: OffsetFetchGroup, code: ErrorCode) -> FetchedOffsetsGroup:
    topics = tuple(
        FetchedOffsetsGroupTopic(each.name, each.topic_id, tuple(_none(index) for index in each.partition_indexes))
        for each in group.topics or ()
    )
    return FetchedOffsetsGroup(group.group_id, topics, code)


def _all(stored: list[Committed]) -> Iterator[FetchedOffsetsGroupTopic]:
    for (topic_id, name), offsets in groupby(stored, key=lambda each: (each.topic, each.name)):
        yield FetchedOffsetsGroupTopic(name, topic_id, tuple(_some(each) for each in offsets))


async def _wanted(
    context: Context, topic: OffsetFetchGroupTopic, stored: list[Committed], is_by_id: bool
) -> FetchedOffsetsGroupTopic:
    unknown = ErrorCode.NONE
    known = await context.store.catalog.find_id(topic.topic_id) if is_by_id else None
    if is_by_id and known is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    elif not await context.access.allowed(Operation.DESCRIBE, Kind.TOPIC, (known.name if known else topic.name,)):
        unknown, stored = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
    found = {
        each.partition: each
        for each in stored
        if (each.topic == topic.topic_id if is_by_id else each.name == topic.name)
    }
    return FetchedOffsetsGroupTopic(
        topic.name,
        topic.topic_id,
        tuple(_some(found[index]) if index in found else _none(index, unknown) for index in topic.partition_indexes),
    )


def _some(stored: Committed) -> FetchedGroupOffset:
    if not stored.is_stable:
        return _none(stored.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return FetchedGroupOffset(stored.partition, stored.offset, stored.leader_epoch, stored.metadata)


def _none(index: int, code: ErrorCode = ErrorCode.NONE) -> FetchedGroupOffset:
    return FetchedGroupOffset(index, _NONE_STORED, -1, "", code)


def _not_fetched(request: OffsetFetchRequest, code: ErrorCode, message: str | None) -> Body:
    return OffsetFetchResponse(error_code=code, groups=tuple(_unfetched(group, code) for group in request.groups))


async def delete(context: Context, header: RequestHeader, request: OffsetDeleteRequest) -> Body:
    """Forget offsets."""
    partitions = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    readable = await context.access.allowed(Operation.READ, Kind.TOPIC, {name for name, _ in partitions})
    deletable = [place for place in partitions if place[0] in readable]
    codes = dict(zip(deletable, await context.coordinator.delete_offsets(request.group_id, deletable), strict=True))

    def outcome(name: str, index: int) -> DeletedOffset:
        return DeletedOffset(index, codes.get((name, index), _NOT_ALLOWED))

    return OffsetDeleteResponse(
        topics=tuple(
            DeletedOffsetsTopic(
                topic.name, tuple(outcome(topic.name, each.partition_index) for each in topic.partitions)
            )
            for topic in request.topics
        )
    )


HANDLERS: Handlers = {OffsetCommitRequest: commit, OffsetFetchRequest: fetch, OffsetDeleteRequest: delete}
FAILURES: Failures = {OffsetCommitRequest: _not_committed, OffsetFetchRequest: _not_fetched}
