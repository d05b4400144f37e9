"""A database with the log in it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from headgate.commitlog.install import install
from headgate.embedded import Endpoints
from tests.gateway.servers import new_database
from tests.stock import stock_url

__all__ = ["stock_url"]


@pytest.fixture(scope="package")
def log_url(endpoints: Endpoints) -> Iterator[str]:
    """Shared by all tests of the log: use topics of your own."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        with psycopg.connect(url) as connection:
            install(connection)
        yield url


@pytest.fixture(scope="package")
def stock_log_url(stock_url: str) -> Iterator[str]:
    with new_database(stock_url) as url:
        with psycopg.connect(url) as connection:
            install(connection)
        yield url


@pytest.fixture
def connection(log_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(log_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"t-{uuid4().hex[:10]}"
