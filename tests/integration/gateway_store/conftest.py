"""A database for stores."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from headgate.embedded import Endpoints
from tests.gateway.servers import new_database
from tests.stock import stock_url

__all__ = ["stock_url"]


@pytest.fixture(scope="package")
def store_url(endpoints: Endpoints) -> Iterator[str]:
    """Shared by all tests of the store: use topics of your own."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture
def stock_own_url(stock_url: str) -> Iterator[str]:
    with new_database(stock_url) as url:
        yield url


@pytest.fixture
def embedded_own_url(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture
def own_url(embedded_own_url: str) -> str:
    """For one test, which may count tables in it."""
    return embedded_own_url


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"t-{uuid4().hex[:10]}"
