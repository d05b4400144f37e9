"""Writing: Produce, InitProducerId."""

from __future__ import annotations

import asyncio
import logging
import time

from headgate.commitlog.append import Membership
from headgate.gateway.access import Operation
from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.handlers.cluster import INTERNAL_TOPICS, find_allowed
from headgate.gateway.store import Appended, Topic
from headgate.gateway.transactions import Asked, Identity, check_transactional_id
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    RecordError,
)
from headgate.wire.kafka.refusal import Refused

__all__ = ["FAILURES", "HANDLERS"]

logger = logging.getLogger(__name__)

_LEAST_TIMEOUT_S = 1.0  # a client that gives no time gets this much
_MAX_TIMEOUT_S = 300.0
_SECOND_PROTOCOL = 12  # Produce's first version that adds partitions to a transaction (KIP-890)
_KNOWS_SECOND_PROTOCOL, _SAYS_FENCED = 5, 4  # InitProducerId's

# An append that was asked for, or why it was not.
_Started = asyncio.Task[Appended] | Refused


async def produce(context: Context, header: RequestHeader, request: ProduceRequest) -> Body | None:
    """Append batches; the answer comes when PostgreSQL has committed them. With acks 0 there is none."""
    _check(request)
    within = None
    if request.transactional_id is not None:
        within = Membership(request.transactional_id, may_join=header.api_version >= _SECOND_PROTOCOL)
    started_at = time.perf_counter()
    # Tasks start in the order in which they are made, and the store orders appends by their start.
    async with context.session.appending:
        topics = [await _start(context, topic, within) for topic in request.topic_data]
    tasks = [task for started in topics for task in started if not isinstance(task, Refused)]
    if tasks:
        timeout_s = min(max(request.timeout_ms / 1000, _LEAST_TIMEOUT_S), _MAX_TIMEOUT_S)
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
    answers = tuple(
        _produced(context, topic, started, time.perf_counter() - started_at)
        for topic, started in zip(request.topic_data, topics, strict=True)
    )
    if request.acks != 0:
        return ProduceResponse(responses=answers)
    if any(partition.error_code for topic in answers for partition in topic.partition_responses):
        context.session.is_closing = True  # the only way to tell a client that waits for no answer
    return None


def _check(request: ProduceRequest) -> None:
    if request.acks not in (-1, 0, 1):
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.acks}: use -1 (all), 0 or 1")
    if request.transactional_id is not None:
        check_transactional_id(request.transactional_id)
        if request.acks != -1:
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, "a transaction needs acks -1 (all)")


async def _start(context: Context, topic: ProduceTopic, within: Membership | None) -> list[_Started]:
    try:
        found = await find_allowed(context, Operation.WRITE, topic.name, topic.topic_id)
    except Refused as refused:
        return [refused] * len(topic.partition_data)
    if found.name in INTERNAL_TOPICS:
        return [Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to it")] * len(topic.partition_data)
    started: list[_Started] = []
    for partition in topic.partition_data:
        if not 0 <= partition.index < len(found.parts):
            started.append(Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif not partition.records:
            started.append(Refused(ErrorCode.INVALID_RECORD, "no records"))
        else:
            started.append(await _append(context, found, partition, within))
    return started


async def _append(context: Context, topic: Topic, partition: ProducePartition, within: Membership | None) -> _Started:
    """What its records are when they are inflated counts until they are written."""
    try:
        records, in_transaction = partition.records or b"", within is not None
        batches = await context.store.prepared(topic, partition.index, records, in_transaction=in_transaction)
    except Refused as refused:
        return refused
    except Exception:
        # The other partitions of the request may be in the log, and say so.
        logger.exception("a batch could not be checked")
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the gateway failed; its log says why")
    budget, address = context.services.budget, context.session.address
    size = sum(len(batch.plain) for batch in batches if batch.plain is not None)
    budget.take(size, address)
    task = asyncio.ensure_future(context.store.write(topic, partition.index, batches, within))
    task.add_done_callback(lambda _: budget.give_back(size, address))
    return task


def _produced(context: Context, topic: ProduceTopic, started: list[_Started], seconds: float) -> ProducedTopic:
    return ProducedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=tuple(
            _outcome(context, partition, task, seconds)
            for partition, task in zip(topic.partition_data, started, strict=True)
        ),
    )


def _outcome(context: Context, partition: ProducePartition, started: _Started, seconds: float) -> ProducedPartition:
    try:
        appended = _result(started)
    except Refused as refused:
        context.metrics.requests["Produce partition", refused.code.name] += 1
        return _refused(partition, refused.code, refused.message, refused.records)
    except Exception as fault:
        # The other partitions of the request may be in the log, and say so.
        logger.exception("an append failed", extra={"why": repr(fault)})
        return _refused(partition, ErrorCode.UNKNOWN_SERVER_ERROR, "the gateway failed; its log says why")
    context.metrics.appended(seconds)
    return ProducedPartition(
        index=partition.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


def _result(started: _Started) -> Appended:
    if isinstance(started, Refused):
        raise started
    if not started.done() or started.cancelled():
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the database did not commit in time")
    return started.result()


def _refused(
    partition: ProducePartition, code: ErrorCode, message: str | None, records: tuple[int, ...] = ()
) -> ProducedPartition:
    return ProducedPartition(
        index=partition.index,
        error_code=code,
        base_offset=-1,
        record_errors=tuple(RecordError(batch_index=each, batch_index_error_message=message) for each in records),
        error_message=message,
    )


def _produce_failed(request: ProduceRequest, code: ErrorCode, message: str | None) -> Body:
    return ProduceResponse(
        responses=tuple(
            ProducedTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(_refused(each, code, message) for each in topic.partition_data),
            )
            for topic in request.topic_data
        )
    )


async def init_producer_id(context: Context, header: RequestHeader, request: InitProducerIdRequest) -> Body:
    """A number that nobody had before, for an idempotent producer; id and epoch of one with transactions."""
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await context.store.new_producer_id(), producer_epoch=0)
    if request.enable2_pc or request.keep_prepared_txn:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "transactions of two phases are not served")
    expected = Identity(request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    is_implicit = header.api_version >= _KNOWS_SECOND_PROTOCOL
    asked = Asked(request.transaction_timeout_ms, expected, is_implicit)
    try:
        given = await context.transactions.begin(request.transactional_id, asked)
    except Refused as refused:
        if refused.code is ErrorCode.PRODUCER_FENCED and header.api_version < _SAYS_FENCED:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, refused.message or "") from None
        raise
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.epoch)


def _init_failed(request: InitProducerIdRequest, code: ErrorCode, message: str | None) -> Body:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLERS: Handlers = {ProduceRequest: produce, InitProducerIdRequest: init_producer_id}
FAILURES: Failures = {ProduceRequest: _produce_failed, InitProducerIdRequest: _init_failed}
