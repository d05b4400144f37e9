"""Reading: Fetch, OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from headgate.gateway.access import Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.fetch_sessions import Asked
from headgate.gateway.handlers.cluster import LEADER_EPOCH, find_allowed
from headgate.gateway.handlers.moved import check_readable
from headgate.gateway.store import Fetched, Topic, Want
from headgate.gateway.throttle import must_wait
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.fetch import (
    AbortedTransaction,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from headgate.wire.kafka.messages.offsets import (
    EpochEndOffset,
    EpochEndTopic,
    LeaderEpochPartition,
    LeaderEpochTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS", "READ_COMMITTED", "check_epoch", "part_of"]

_MAX_WAIT_S = 300.0
READ_COMMITTED = 1
_TOPIC_IDS = 13  # the version from which on topics are named by their ids
_OF_SESSIONS = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


async def fetch(context: Context, header: RequestHeader, request: FetchRequest) -> Body:
    """Batches as they were sent, waiting for some if there are none."""
    turn = context.services.fetch_sessions.turn(context.session, request, uses_ids=header.api_version >= _TOPIC_IDS)
    if must_wait(context, header):
        return turn.nothing()
    is_committed = request.isolation_level == READ_COMMITTED
    rights = context.access.state
    wants = await _wants(context, turn.asked, is_committed=is_committed)
    good = [want for want in wants if isinstance(want, Want)]
    fetched: list[Fetched] = []
    if good:
        fetched = await context.store.fetch(
            good,
            max_bytes=max(min(request.max_bytes, context.options.max_fetch_bytes), 0),
            room=context.answer,
            min_bytes=request.min_bytes,
            # An error is told at once.
            max_wait_s=min(max(request.max_wait_ms, 0) / 1000, _MAX_WAIT_S) if len(good) == len(wants) else 0.0,
        )
    answers = iter(fetched)
    parts = [
        _refused(partition, want.code)
        if isinstance(want, Refused)
        else _fetched(partition, next(answers), is_committed)
        for (_, partition), want in zip(turn.asked, wants, strict=True)
    ]
    if good and context.access.state != rights:  # what came in while it waited may be for others by now
        again = await _wants(context, turn.asked, is_committed=is_committed)
        parts = [
            _refused(partition, want.code) if isinstance(want, Refused) else part
            for (_, partition), want, part in zip(turn.asked, again, parts, strict=True)
        ]
    return turn.response(parts)


async def _wants(context: Context, asked: Sequence[Asked], *, is_committed: bool) -> list[Want | Refused]:
    found: dict[tuple[str, UUID], Topic | Refused] = {}
    wants: list[Want | Refused] = []
    for (name, uuid, _), partition in asked:
        if (name, uuid) not in found:
            try:
                found[name, uuid] = await find_allowed(context, Operation.READ, name, uuid)
            except Refused as refused:
                found[name, uuid] = refused
        topic = found[name, uuid]
        wants.append(topic if isinstance(topic, Refused) else _want(topic, partition, is_committed))
    return wants


def _want(topic: Topic, partition: FetchPartition, is_committed: bool) -> Want | Refused:
    try:
        check_readable(topic.move)
        check_epoch(partition.current_leader_epoch)
        part_id = part_of(topic, partition.partition)
    except Refused as refused:
        return refused
    return Want(part_id, partition.fetch_offset, max(partition.partition_max_bytes, 0), is_committed)


def part_of(topic: Topic, index: int) -> int:
    """A partition by its index; refused if there is none."""
    if not 0 <= index < len(topic.parts):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.parts[index]


def check_epoch(known: int) -> None:
    """A client that knows a later leader than there ever was has asked the wrong cluster."""
    if known > LEADER_EPOCH:
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH)


def _fetched(partition: FetchPartition, fetched: Fetched, is_committed: bool) -> FetchedPartition:
    return FetchedPartition(
        partition_index=partition.partition,
        error_code=fetched.error,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=tuple(AbortedTransaction(producer, first) for producer, first in fetched.aborted)
        if is_committed
        else None,
        records=tuple(fetched.buffers),
    )


def _refused(partition: FetchPartition, code: ErrorCode) -> FetchedPartition:
    return FetchedPartition(
        partition_index=partition.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _fetch_failed(request: FetchRequest, code: ErrorCode, message: str | None) -> Body:
    if code in _OF_SESSIONS:
        return FetchResponse(error_code=code)
    return FetchResponse(
        responses=tuple(
            FetchedTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=tuple(_refused(partition, code) for partition in topic.partitions),
            )
            for topic in request.topics
        )
    )


async def offset_for_leader_epoch(
    context: Context, header: RequestHeader, request: OffsetForLeaderEpochRequest
) -> Body:
    """Where an epoch ended. There is one epoch, and it has not ended: nothing is ever truncated."""
    return OffsetForLeaderEpochResponse(topics=tuple([await _ends(context, topic) for topic in request.topics]))


async def _ends(context: Context, topic: LeaderEpochTopic) -> EpochEndTopic:
    partitions = tuple([await _end(context, topic.topic, partition) for partition in topic.partitions])
    return EpochEndTopic(topic=topic.topic, partitions=partitions)


async def _end(context: Context, name: str, partition: LeaderEpochPartition) -> EpochEndOffset:
    try:
        topic = await find_allowed(context, Operation.DESCRIBE, name)
        check_readable(topic.move)
        part_id = part_of(topic, partition.partition)
        check_epoch(partition.current_leader_epoch)
    except Refused as refused:
        return EpochEndOffset(partition=partition.partition, error_code=refused.code)
    if partition.leader_epoch != LEADER_EPOCH:
        return EpochEndOffset(partition=partition.partition)
    end = await context.store.latest(part_id)
    return EpochEndOffset(partition=partition.partition, leader_epoch=LEADER_EPOCH, end_offset=end)


def _epochs_failed(request: OffsetForLeaderEpochRequest, code: ErrorCode, message: str | None) -> Body:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            EpochEndTopic(
                topic=topic.topic,
                partitions=tuple(
                    EpochEndOffset(partition=each.partition, error_code=code) for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


HANDLERS: Handlers = {FetchRequest: fetch, OffsetForLeaderEpochRequest: offset_for_leader_epoch}
FAILURES: Failures = {FetchRequest: _fetch_failed, OffsetForLeaderEpochRequest: _epochs_failed}
