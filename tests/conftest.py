"""Fixtures that every test may use: real servers and one Spark session, started once when first asked for."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession

from headgate.embedded import Endpoints, Stack, find_java
from headgate.pipeline.session import SparkOptions, open_session
from tests.servers import chosen_url

# Timing differs too much between machines to be part of a property.
# The suite has many properties and twenty minutes: `pytest --hypothesis-profile=thorough` looks longer.
settings.register_profile("headgate", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("headgate")

# A shell that starts the tests in the background makes them ignore Ctrl-C, and all their children, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Settings of the person who runs the tests must not leak into them, but for those that are meant for tests.
for name in [name for name in os.environ if name.startswith("HEADGATE_") and not name.startswith("HEADGATE_TEST_")]:
    del os.environ[name]


# Tests start Java dozens of times, for seconds each: optimising their code costs more than it gives.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Commands set up the log of the whole process, to a stream that is closed when they are over.

    What one test is told must not change what the next one sees, nor be written where nothing can be.
    """
    root = logging.getLogger()
    handlers, filters, level = root.handlers[:], root.filters[:], root.level
    try:
        return (yield)
    finally:
        root.handlers[:], root.filters[:] = handlers, filters
        root.setLevel(level)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that workers side by side end at about the same time."""
    items.sort(key=lambda item: "/acceptance/" not in item.nodeid)


@pytest.fixture(scope="session")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """PostgreSQL and NATS, shared by all tests: use names of your own in them.

    HEADGATE_TEST_POSTGRES has them use another server, of another version: `tests/servers.py`.
    """
    url = chosen_url()
    with Stack(tmp_path_factory.mktemp("stack"), durable=False, postgres=url is None) as running:
        yield replace(running, postgres_url=url, postgres_tcp_url=url) if url else running


@pytest.fixture(scope="session")
def spark_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_dir: Path) -> Iterator[SparkSession]:
    """One Spark session for the whole run; starting one takes seconds."""
    session = open_session(SparkOptions(java_home=find_java(spark_dir / "java").home, log_dir=spark_dir / "logs"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def span_exporter() -> InMemorySpanExporter:
    """There is one provider of traces in a process, for good."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(span_exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    """The spans that end during a test."""
    span_exporter.clear()
    yield span_exporter
    span_exporter.clear()
