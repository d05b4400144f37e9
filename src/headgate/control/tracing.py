"""Sets OpenTelemetry's SDK up by its own environment variables, if they ask for traces.

    OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 headgate run

Exporters are found by their entry points, so whichever is installed can be named. A program that has set up a provider
of its own, as `opentelemetry-instrument` does, is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opentelemetry import trace

from headgate import __version__
from headgate.model import ConfigError, DependencyError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["exported_traces"]

_VARIABLE = "OTEL_TRACES_EXPORTER"
_GROUP = "opentelemetry_traces_exporter"


@contextmanager
def exported_traces() -> Iterator[None]:
    """Export traces as the environment says, until the end, when what is left is sent."""
    names = [name.strip() for name in os.environ.get(_VARIABLE, "").split(",")]
    names = [name for name in names if name and name != "none"]
    if not names or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield
        return
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise DependencyError(
            "traces need OpenTelemetry's SDK", where=_VARIABLE, remedy="pip install opentelemetry-sdk"
        ) from None
    ours = Resource.create({SERVICE_NAME: "headgate", SERVICE_VERSION: __version__})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def _exporter(name: str) -> SpanExporter:
    """The exporter of a name, made as its own variables say."""
    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        known = ", ".join(sorted(each.name for each in entry_points(group=_GROUP)))
        raise ConfigError(
            f"no exporter of traces is called {name[:40]!r}; installed are: {known}",
            where=_VARIABLE,
            remedy="for otlp: pip install opentelemetry-exporter-otlp",
        )
    make: type[SpanExporter] = found[0].load()
    return make()
