"""A database for stores."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from headgate.embedded import Endpoints
from tests.gateway.servers import new_database


@pytest.fixture(scope="package")
def store_url(endpoints: Endpoints) -> Iterator[str]:
    """Shared by all tests of the store: use topics of your own."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture
def own_url(endpoints: Endpoints) -> Iterator[str]:
    """For one test, which may count tables in it."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"t-{uuid4().hex[:10]}"
