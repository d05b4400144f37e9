"""Places in the log: ListOffsets, DeleteRecords."""

from __future__ import annotations

from headgate.gateway.access import Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.handlers.cluster import LEADER_EPOCH, find_allowed
from headgate.gateway.handlers.fetch import READ_COMMITTED, check_epoch, part_of
from headgate.gateway.handlers.moved import check_readable
from headgate.gateway.store import Found
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.offsets import (
    ListedOffsetsPartition,
    ListedOffsetsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from headgate.wire.kafka.messages.storage import (
    DeletedRecordsPartition,
    DeletedRecordsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

# Times that are none: what they ask for instead. There is no second, remote store that some of them ask about.
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING: 11}
_NOWHERE = -1


async def list_offsets(context: Context, header: RequestHeader, request: ListOffsetsRequest) -> Body:
    """Offsets by time; none behind the beginning of an open transaction, for those who read what is committed."""
    is_committed = request.isolation_level == READ_COMMITTED
    topics = [
        ListedOffsetsTopic(
            name=topic.name,
            partitions=tuple(
                [await _listed(context, header, topic.name, each, is_committed) for each in topic.partitions]
            ),
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=tuple(topics))


async def _listed(
    context: Context, header: RequestHeader, name: str, partition: ListOffsetsPartition, is_committed: bool
) -> ListedOffsetsPartition:
    try:
        topic = await find_allowed(context, Operation.DESCRIBE, name)
        check_readable(topic.move)
        check_epoch(partition.current_leader_epoch)
        part_id = part_of(topic, partition.partition_index)
        found = await _find(context, header, part_id, partition.timestamp, is_committed)
    except Refused as refused:
        return ListedOffsetsPartition(partition_index=partition.partition_index, error_code=refused.code)
    if header.api_version == 0:
        return await _old_style(context, part_id, partition, found)
    if found is None:
        return ListedOffsetsPartition(partition_index=partition.partition_index)
    return ListedOffsetsPartition(
        partition_index=partition.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=LEADER_EPOCH,
    )


async def _find(
    context: Context, header: RequestHeader, part_id: int, timestamp: int, is_committed: bool
) -> Found | None:
    if timestamp < _EARLIEST_PENDING or header.api_version < _SINCE.get(timestamp, 0):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == _LATEST:
        return Found((await context.store.bounds(part_id)).end(is_committed=is_committed), _NOWHERE)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return Found(await context.store.earliest(part_id), _NOWHERE)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING):
        return None
    if timestamp == _MAX_TIMESTAMP:
        found = await context.store.max_timestamp(part_id)
    else:
        found = await context.store.at_time(part_id, timestamp)
    if found is None or found.offset < (await context.store.bounds(part_id)).end(is_committed=is_committed):
        return found
    return None


async def _old_style(
    context: Context, part_id: int, partition: ListOffsetsPartition, found: Found | None
) -> ListedOffsetsPartition:
    """Version 0 names places from which to read, the latest first; a time after the last record means the end."""
    offset = found.offset if found else await context.store.latest(part_id)
    return ListedOffsetsPartition(
        partition_index=partition.partition_index, old_style_offsets=(offset,) if partition.max_num_offsets > 0 else ()
    )


def _list_failed(request: ListOffsetsRequest, code: ErrorCode, message: str | None) -> Body:
    return ListOffsetsResponse(
        topics=tuple(
            ListedOffsetsTopic(
                name=topic.name,
                partitions=tuple(
                    ListedOffsetsPartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


async def delete_records(context: Context, header: RequestHeader, request: DeleteRecordsRequest) -> Body:
    """Forget what lies before an offset."""
    topics = [
        DeletedRecordsTopic(
            name=topic.name, partitions=tuple([await _deleted(context, topic.name, each) for each in topic.partitions])
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(topics=tuple(topics))


async def _deleted(context: Context, name: str, partition: DeleteRecordsPartition) -> DeletedRecordsPartition:
    try:
        topic = await find_allowed(context, Operation.DELETE, name)
        part_of(topic, partition.partition_index)
        start = await context.store.delete_records(topic, partition.partition_index, partition.offset)
    except Refused as refused:
        return _not_deleted(partition, refused.code)
    return DeletedRecordsPartition(partition_index=partition.partition_index, low_watermark=start)


def _not_deleted(partition: DeleteRecordsPartition, code: ErrorCode) -> DeletedRecordsPartition:
    return DeletedRecordsPartition(partition_index=partition.partition_index, low_watermark=-1, error_code=code)


def _delete_failed(request: DeleteRecordsRequest, code: ErrorCode, message: str | None) -> Body:
    return DeleteRecordsResponse(
        topics=tuple(
            DeletedRecordsTopic(
                name=topic.name, partitions=tuple(_not_deleted(each, code) for each in topic.partitions)
            )
            for topic in request.topics
        )
    )


HANDLERS: Handlers = {ListOffsetsRequest: list_offsets, DeleteRecordsRequest: delete_records}
FAILURES: Failures = {ListOffsetsRequest: _list_failed, DeleteRecordsRequest: _delete_failed}
