"""Traces go through the broker: the W3C context travels in an event's metadata, and handlers run in spans of it.

Without a current span nothing is written, and without an SDK spans cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headgate.broker.messages import Event

__all__ = ["handling", "with_context"]

_PARENT = "traceparent"
_propagator = TraceContextTextMapPropagator()


def with_context(metadata: Any) -> Any:
    """Metadata with the current span in it. What has one already, or is no object, stays as it is."""
    if metadata is not None and (not isinstance(metadata, Mapping) or _PARENT in metadata):
        return metadata
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return {**(metadata or {}), **carrier} if carrier else metadata


@contextmanager
def handling(name: str, group: str, events: Sequence[Event]) -> Iterator[None]:
    """The span of a handler: the child of an event's context, or linked to those of many."""
    contexts = [context for event in events if (context := _context_of(event.metadata)) is not None]
    # Never what is current here: that is whatever the program did when it registered the handler.
    parent = contexts[0] if len(contexts) == len(events) == 1 else Context()
    links = [] if parent else [trace.Link(trace.get_current_span(context).get_span_context()) for context in contexts]
    attributes: dict[str, str | int] = {
        "messaging.system": "headgate",
        "messaging.operation.type": "process",
        "messaging.operation.name": name,
        "messaging.consumer.group.name": group,
        "messaging.batch.message_count": len(events),
    }
    if len(topics := {event.topic for event in events}) == 1:
        attributes["messaging.destination.name"] = next(iter(topics))
    tracer = trace.get_tracer("headgate.broker")
    with tracer.start_as_current_span(
        f"process {name}", context=parent, kind=trace.SpanKind.CONSUMER, links=links, attributes=attributes
    ):
        yield


def _context_of(metadata: Any) -> Context | None:
    if not isinstance(metadata, Mapping) or _PARENT not in metadata:
        return None
    carrier = {key: value for key, value in metadata.items() if isinstance(value, str)}
    context = _propagator.extract(carrier, Context())
    return context or None
