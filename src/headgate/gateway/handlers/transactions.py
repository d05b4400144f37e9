"""Transactions: their partitions, their offsets, their ends, and what administrators see of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headgate.commitlog.append import Membership
from headgate.gateway.access import Kind, Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.groups import Commit
from headgate.gateway.handlers.cluster import find_allowed, find_topic, visible_topics
from headgate.gateway.handlers.fetch import part_of
from headgate.gateway.handlers.moved import check_writable
from headgate.gateway.transactions import Identity, State, Transactional
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.leadership import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headgate.wire.kafka.messages.leadership import TransactionTopic as DescribedTopic
from headgate.wire.kafka.messages.transactions import (
    AddedPartition,
    AddedTopic,
    AddedTransaction,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TransactionPartitions,
    TransactionTopic,
    TxnCommittedPartition,
    TxnCommittedTopic,
    TxnCommitTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenMarker,
    WrittenMarkerPartition,
    WrittenMarkerTopicResult,
    WrittenTxnMarker,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

_SEVERAL = 4  # AddPartitionsToTxn's first version for several transactions
_SAYS_FENCED = 2  # the first version of these requests that knows PRODUCER_FENCED
_SECOND_PROTOCOL, _JOINS_BY_COMMIT = 5, 5  # the first versions of EndTxn and TxnOffsetCommit that speak it (KIP-890)
_SAYS_ABORTABLE = 5
_NOT_ALLOWED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_KNOWN_STATES = frozenset((*State, "PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence"))
# What a producer makes of a member that is not, or not yet, what it says: the transaction is to be aborted.
_AS_ILLEGAL = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}


_CodeOf = Callable[[tuple[str, int]], ErrorCode]  # of a partition, by topic and number


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code as this version of the request knows it."""
    is_old = version < _SAYS_FENCED and code is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else code


# --- partitions -----------------------------------------------------------------------------------------------------


async def add_partitions(context: Context, header: RequestHeader, request: AddPartitionsToTxnRequest) -> Body:
    """Make partitions part of a transaction, or ask whether they are."""
    if header.api_version >= _SEVERAL:
        results = [await _added(context, header.api_version, each) for each in request.transactions]
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))
    one = TransactionPartitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    added = await _added(context, header.api_version, one)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=added.topic_results)


async def _added(context: Context, version: int, asked: TransactionPartitions) -> AddedTransaction:
    """All of them or none."""
    identity = Identity(asked.producer_id, asked.producer_epoch)
    try:
        parts, missing = await _parts(context, asked.topics)
        if missing:
            return _results(asked, lambda place: missing.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED))
        if asked.verify_only:
            known = await context.transactions.parts_of(asked.transactional_id, identity)
            absent = ErrorCode.TRANSACTION_ABORTABLE if version >= _SAYS_ABORTABLE else ErrorCode.INVALID_TXN_STATE
            return _results(asked, lambda place: ErrorCode.NONE if parts[place] in known else absent)
        await context.transactions.add(asked.transactional_id, identity, parts=list(parts.values()))
    except Refused as refused:
        code = _code(refused.code, version)
        return _results(asked, lambda _: code)
    return _results(asked, lambda _: ErrorCode.NONE)


async def _parts(
    context: Context, topics: Sequence[TransactionTopic]
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], ErrorCode]]:
    """The partitions by topic and number, and those that cannot be had."""
    parts: dict[tuple[str, int], int] = {}
    missing: dict[tuple[str, int], ErrorCode] = {}
    for topic in topics:
        for index in topic.partitions:
            try:
                found = await find_allowed(context, Operation.WRITE, topic.name)
                check_writable(found.move)
                parts[topic.name, index] = part_of(found, index)
            except Refused as refused:
                missing[topic.name, index] = refused.code
    return parts, missing


def _results(asked: TransactionPartitions, code_of: _CodeOf) -> AddedTransaction:
    return AddedTransaction(
        asked.transactional_id,
        tuple(
            AddedTopic(
                topic.name, tuple(AddedPartition(index, code_of((topic.name, index))) for index in topic.partitions)
            )
            for topic in asked.topics
        ),
    )


def _add_failed(request: AddPartitionsToTxnRequest, code: ErrorCode, message: str | None) -> Body:
    old = TransactionPartitions(topics=request.v3_and_below_topics)
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_transaction=tuple(_results(each, lambda _: code) for each in request.transactions),
        results_by_topic_v3_and_below=_results(old, lambda _: code).topic_results,
    )


# --- offsets --------------------------------------------------------------------------------------------------------


async def add_offsets(context: Context, header: RequestHeader, request: AddOffsetsToTxnRequest) -> Body:
    """Make the offsets of a group part of a transaction."""
    if not request.group_id or "\0" in request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    identity = Identity(request.producer_id, request.producer_epoch)
    try:
        await context.transactions.add(request.transactional_id, identity, groups=[request.group_id])
    except Refused as refused:
        return AddOffsetsToTxnResponse(error_code=_code(refused.code, header.api_version))
    return AddOffsetsToTxnResponse()


async def commit_offsets(context: Context, header: RequestHeader, request: TxnOffsetCommitRequest) -> Body:
    """Keep offsets of a group until a transaction commits."""
    limit = context.coordinator.settings.max_metadata_bytes
    commits: list[Commit] = []
    codes: dict[tuple[str, int], ErrorCode] = {}
    readable = await context.access.allowed(Operation.READ, Kind.TOPIC, {topic.name for topic in request.topics})
    for topic in request.topics:
        if topic.name not in readable:
            codes |= {(topic.name, each.partition_index): _NOT_ALLOWED for each in topic.partitions}
            continue
        found = await context.store.catalog.find(topic.name)
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            if found is None or not 0 <= each.partition_index < len(found.parts):
                codes[topic.name, each.partition_index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > limit:
                codes[topic.name, each.partition_index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                place = each.committed_offset, each.committed_leader_epoch, metadata
                commits.append(Commit(found.id, each.partition_index, *place))
    within = Membership(request.transactional_id, may_join=header.api_version >= _JOINS_BY_COMMIT)
    identity = Identity(request.producer_id, request.producer_epoch)
    member = request.member_id, request.group_instance_id, request.generation_id
    try:
        await context.transactions.commit_offsets(within, identity, request.group_id, member, _newest(commits))
    except Refused as refused:
        code = ErrorCode.ILLEGAL_GENERATION if refused.code in _AS_ILLEGAL else refused.code
        return _committed(request.topics, {}, code)
    return _committed(request.topics, codes, ErrorCode.NONE)


def _newest(commits: Sequence[Commit]) -> list[Commit]:
    """The last for each partition: a row can be written only once in a statement."""
    return list({(each.topic_id, each.partition): each for each in commits}.values())


def _committed(
    topics: Sequence[TxnCommitTopic], codes: dict[tuple[str, int], ErrorCode], otherwise: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnCommittedTopic(
                topic.name,
                tuple(
                    TxnCommittedPartition(
                        each.partition_index, codes.get((topic.name, each.partition_index), otherwise)
                    )
                    for each in topic.partitions
                ),
            )
            for topic in topics
        )
    )


def _commit_failed(request: TxnOffsetCommitRequest, code: ErrorCode, message: str | None) -> Body:
    return _committed(request.topics, {}, code)


# --- ends -----------------------------------------------------------------------------------------------------------


async def end(context: Context, header: RequestHeader, request: EndTxnRequest) -> Body:
    """Commit or abort a transaction."""
    identity = Identity(request.producer_id, request.producer_epoch)
    bumps = header.api_version >= _SECOND_PROTOCOL
    try:
        now = await context.transactions.end(
            request.transactional_id, identity, is_commit=request.committed, bumps=bumps
        )
    except Refused as refused:
        return EndTxnResponse(error_code=_code(refused.code, header.api_version))
    return EndTxnResponse(producer_id=now.producer_id, producer_epoch=now.epoch)


async def write_markers(context: Context, header: RequestHeader, request: WriteTxnMarkersRequest) -> Body:
    """Abort transactions for an administrator. A transaction is aborted in all of its partitions.

    None can be committed like this: a marker without the rest of a transaction would be half of one.
    """
    return WriteTxnMarkersResponse(markers=tuple([await _written(context, marker) for marker in request.markers]))


async def _written(context: Context, marker: WrittenMarker) -> WrittenTxnMarker:
    topics = []
    for topic in marker.topics:
        codes = [await _aborted(context, marker, topic.name, index) for index in topic.partition_indexes]
        partitions = map(WrittenMarkerPartition, topic.partition_indexes, codes)
        topics.append(WrittenMarkerTopicResult(topic.name, tuple(partitions)))
    return WrittenTxnMarker(marker.producer_id, tuple(topics))


async def _aborted(context: Context, marker: WrittenMarker, name: str, index: int) -> ErrorCode:
    if marker.transaction_result:
        return ErrorCode.INVALID_TXN_STATE
    try:
        part = part_of(await find_topic(context, name), index)
        await context.transactions.abort(Identity(marker.producer_id, marker.producer_epoch), part)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE


def _markers_failed(request: WriteTxnMarkersRequest, code: ErrorCode, message: str | None) -> Body:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WrittenTxnMarker(
                marker.producer_id,
                tuple(
                    WrittenMarkerTopicResult(
                        topic.name, tuple(WrittenMarkerPartition(index, code) for index in topic.partition_indexes)
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )


# --- administrators -------------------------------------------------------------------------------------------------


async def list_transactions(context: Context, header: RequestHeader, request: ListTransactionsRequest) -> Body:
    """The transactional ids that clients ask this gateway about."""
    unknown = tuple(state for state in request.state_filters if state not in _KNOWN_STATES)
    states = set(request.state_filters) - set(unknown)
    now_ms = time.time_ns() // 1_000_000
    known = await context.transactions.listed(request.transactional_id_pattern)
    names = [each.transactional_id for each in known]
    visible = await context.access.allowed(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, names, is_asked=False)
    found = [
        ListedTransaction(each.transactional_id, each.identity.producer_id, each.state)
        for each in known
        if each.transactional_id in visible
        and (not states or each.state in states)
        and (not request.producer_id_filters or each.identity.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or _open_ms(each, now_ms) > request.duration_filter)
    ]
    if request.state_filters and not states:
        found = []
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=tuple(found))


def _open_ms(known: Transactional, now_ms: int) -> int:
    return now_ms - known.started_ms if known.state is State.ONGOING else -1


async def describe_transactions(context: Context, header: RequestHeader, request: DescribeTransactionsRequest) -> Body:
    states = [await _described(context, name) for name in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=tuple(states))


async def _described(context: Context, transactional_id: str) -> DescribedTransaction:
    try:
        await context.access.check(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, transactional_id)
        known = await context.transactions.describe(transactional_id)
    except Refused as refused:
        return DescribedTransaction(error_code=refused.code, transactional_id=transactional_id)
    places = {part: (topic.name, at) for topic in await visible_topics(context) for at, part in enumerate(topic.parts)}
    topics: dict[str, list[int]] = {}
    for name, index in sorted(places[part] for part in known.parts if part in places):
        topics.setdefault(name, []).append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=known.state,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms if known.state is State.ONGOING else -1,
        producer_id=known.identity.producer_id,
        producer_epoch=known.identity.epoch,
        topics=tuple(DescribedTopic(topic=name, partitions=tuple(indexes)) for name, indexes in topics.items()),
    )


def _describe_failed(request: DescribeTransactionsRequest, code: ErrorCode, message: str | None) -> Body:
    states = (DescribedTransaction(error_code=code, transactional_id=name) for name in request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=tuple(states))


HANDLERS: Handlers = {
    AddPartitionsToTxnRequest: add_partitions,
    AddOffsetsToTxnRequest: add_offsets,
    TxnOffsetCommitRequest: commit_offsets,
    EndTxnRequest: end,
    WriteTxnMarkersRequest: write_markers,
    ListTransactionsRequest: list_transactions,
    DescribeTransactionsRequest: describe_transactions,
}
FAILURES: Failures = {
    AddPartitionsToTxnRequest: _add_failed,
    TxnOffsetCommitRequest: _commit_failed,
    WriteTxnMarkersRequest: _markers_failed,
    DescribeTransactionsRequest: _describe_failed,
}
