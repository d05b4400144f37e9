"""A gateway with a log to mirror from, and an Apache Kafka to mirror to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.embedded import Endpoints
from headgate.shadow.client import close_idle_clients
from tests.apache_kafka import ApacheKafka
from tests.gateway.servers import GatewayThread, new_database, running
from tests.integration.commitlog.conftest import connection, log_url, stock_log_url, stock_url, topic

__all__ = ["connection", "log_url", "stock_log_url", "stock_url", "topic"]


@pytest.fixture(scope="session", autouse=True)
def no_idle_clients() -> Iterator[None]:
    """Connections of this process do not outlive the tests."""
    yield
    close_idle_clients()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Shared by all tests: use topics of your own in it, and do not stop it."""
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def url(endpoints: Endpoints) -> Iterator[str]:
    """A database of its own: a mirror takes all topics of a log."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as made:
        yield made


@pytest.fixture
def gateway(url: str) -> Iterator[GatewayThread]:
    with running(url) as started:
        yield started
