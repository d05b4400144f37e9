"""One gateway for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from headgate.embedded import Endpoints
from tests.gateway.servers import GatewayThread, new_database, running
from tests.stock import stock_url

__all__ = ["stock_url"]


@pytest.fixture(scope="session")
def database(endpoints: Endpoints) -> Iterator[str]:
    """A database that all tests of gateways share: use topics of your own."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture
def fresh_database(endpoints: Endpoints) -> Iterator[str]:
    """For tests that start gateways of their own, which others need not see as brokers."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def gateway(database: str) -> Iterator[GatewayThread]:
    with running(database) as started:
        yield started


@pytest.fixture(scope="session")
def stock_gateway(stock_url: str) -> Iterator[GatewayThread]:
    with new_database(stock_url) as url, running(url) as started:
        yield started


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"t-{uuid4().hex[:10]}"
