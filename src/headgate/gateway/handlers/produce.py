"""Writing: Produce, InitProducerId."""

from __future__ import annotations

import asyncio
import logging
import time

from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.handlers.cluster import INTERNAL_TOPICS, find_topic
from headgate.gateway.store import Appended, Topic
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

# An append that was asked for, or why it was not.
_Started = asyncio.Task[Appended] | Refused


async def produce(context: Context, header: RequestHeader, request: ProduceRequest) -> Body | None:
    """Append batches; the answer comes when PostgreSQL has committed them. With acks 0 there is none."""
    _check(request)
    started_at = time.perf_counter()
    # Tasks start in the order in which they are made, and the store orders appends by their start.
    async with context.session.appending:
        topics = [await _start(context, topic) for topic in request.topic_data]
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
        raise Refused(ErrorCode.INVALID_TXN_STATE, "transactions are not served")


async def _start(context: Context, topic: ProduceTopic) -> list[_Started]:
    try:
        found = await find_topic(context, topic.name, topic.topic_id)
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
            started.append(await _append(context, found, partition))
    return started


async def _append(context: Context, topic: Topic, partition: ProducePartition) -> _Started:
    """What its records are when they are inflated counts until they are written."""
    try:
        batches = await context.store.prepared(topic, partition.index, partition.records or b"")
    except Refused as refused:
        return refused
    except Exception:
        # The other partitions of the request may be in the log, and say so.
        logger.exception("a batch could not be checked")
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the gateway failed; its log says why")
    budget, address = context.services.budget, context.session.address
    size = sum(len(batch.plain) for batch in batches if batch.plain is not None)
    budget.take(size, address)
    task = asyncio.ensure_future(context.store.write(topic, partition.index, batches))
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
    """A number that nobody had before, for an idempotent producer."""
    if request.transactional_id is not None:
        raise Refused(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    return InitProducerIdResponse(producer_id=await context.store.new_producer_id(), producer_epoch=0)


def _init_failed(request: InitProducerIdRequest, code: ErrorCode, message: str | None) -> Body:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLERS: Handlers = {ProduceRequest: produce, InitProducerIdRequest: init_producer_id}
FAILURES: Failures = {ProduceRequest: _produce_failed, InitProducerIdRequest: _init_failed}
