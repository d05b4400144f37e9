"""Quotas at work: what a request costs, and the answer that tells its client to wait.

The connection is muted for as long as the answer says, whether its client waits by itself or not; other connections go
on. Produce is counted by the bytes of its records, Fetch by those in the answer, and every request by the time in which
it keeps the gateway's one thread busy.
"""

from __future__ import annotations

import math
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

import msgspec

from headgate.gateway.context import Context
from headgate.gateway.quotas import Limit, Metric
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.messages.fetch import FetchRequest, FetchResponse
from headgate.wire.kafka.messages.produce import ProduceRequest
from headgate.wire.kafka.messages.session import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from headgate.wire.kafka.schema import RecordParts

__all__ = ["limits_of", "must_wait", "throttled"]

_T = TypeVar("_T")
_NEVER = (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest)  # by these a client finds out who it is
_LEAST_S = 0.005  # a debt that is not worth a wait: it is added to the next one
_METRICS = {ProduceRequest: frozenset((Metric.PRODUCED,)), FetchRequest: frozenset((Metric.CONSUMED,))}


async def throttled(
    context: Context, header: RequestHeader, request: Body, work: Coroutine[Any, Any, Body | None]
) -> Body | None:
    """Return the answer that `work` makes, with the time that its client has to wait."""
    limits = limits_of(context, header) if context.services.meter.limits and not isinstance(request, _NEVER) else {}
    if not limits:
        return await work
    spent = [0.0]
    answer = await _timed(work, spent)
    meter = context.services.meter
    done = {Metric.PRODUCED: _written(request), Metric.CONSUMED: _read(answer), Metric.REQUESTS: spent[0]}
    relevant = set(Metric) - {Metric.PRODUCED, Metric.CONSUMED} | _METRICS.get(type(request), frozenset())
    delay_s = max(meter.take(limits.get(metric), metric, done[metric]) for metric in relevant)
    if delay_s < _LEAST_S:
        return answer
    context.session.mute_s = max(context.session.mute_s, delay_s)
    context.metrics.throttled_total += 1
    context.metrics.throttled_seconds += delay_s
    if answer is None or "throttle_time_ms" not in answer.__struct_fields__:
        return answer
    return msgspec.structs.replace(answer, throttle_time_ms=math.ceil(delay_s * 1000))


def limits_of(context: Context, header: RequestHeader) -> dict[Metric, Limit]:
    """Return the limits of the client of a request."""
    return context.services.meter.limits.of(context.session.principal.name, header.client_id or "")


def must_wait(context: Context, header: RequestHeader) -> bool:
    """Tell whether a reader has to wait for what it, or others with the same limit, have read before."""
    meter = context.services.meter
    return (
        bool(meter.limits) and meter.debt_s(limits_of(context, header).get(Metric.CONSUMED), Metric.CONSUMED) > _LEAST_S
    )


def _written(request: Body) -> int:
    if not isinstance(request, ProduceRequest):
        return 0
    return sum(len(part.records or b"") for topic in request.topic_data for part in topic.partition_data)


def _read(answer: Body | None) -> int:
    if not isinstance(answer, FetchResponse):
        return 0
    return sum(_size(part.records) for topic in answer.responses for part in topic.partitions)


def _size(records: RecordParts | None) -> int:
    return sum(map(len, records)) if isinstance(records, tuple) else len(records or b"")


@types.coroutine
def _timed(work: Coroutine[Any, Any, _T], spent: list[float]) -> Generator[Any, Any, _T]:
    """Run something step by step; what its steps take, and not what lies between them, is added to `spent`."""
    fault: BaseException | None = None
    while True:
        began = time.perf_counter()
        try:
            awaited = work.send(None) if fault is None else work.throw(fault)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            spent[0] += time.perf_counter() - began
        fault = None
        try:
            yield awaited
        except BaseException as error:
            fault = error
