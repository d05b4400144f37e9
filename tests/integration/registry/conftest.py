"""A database for each test on Debian's PostgreSQL, and registries that serve it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.registry.http.server import RegistryServer
from headgate.registry.options import RegistryOptions
from tests.registries import running_registry
from tests.servers import chosen_url
from tests.stock import stock_url

__all__ = ["stock_url"]

Serve = Callable[..., RegistryServer]


@pytest.fixture
def server_url(request: pytest.FixtureRequest) -> str:
    """Debian's server, or the one that HEADGATE_TEST_POSTGRES names."""
    return chosen_url() or str(request.getfixturevalue("stock_url"))


@pytest.fixture
def database(server_url: str) -> Iterator[str]:
    name = f"registry_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield make_conninfo(server_url, dbname=name)
        admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def serve(database: str) -> Iterator[Serve]:
    """Start a registry on the test's database, on a free port."""
    with ExitStack() as stack:

        def start(**options: Any) -> RegistryServer:
            given: dict[str, Any] = {"postgres_url": database, "port": 0} | options
            return stack.enter_context(running_registry(RegistryOptions(**given)))

        yield start


@pytest.fixture
def registry(serve: Serve) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=serve().url, timeout=60) as client:
        yield client
