"""Servers of our own, because these tests restart them, and one stream recorded by the reference bridge."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from headgate.embedded import Endpoints, Stack
from tests.cdc import (
    SERVER_SETTINGS,
    Connection,
    Oracle,
    ReferenceBridge,
    Shop,
    Tally,
    Workload,
    WorkloadOptions,
    decoded,
)

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cdc_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("cdc"), durable=False, postgres_settings=SERVER_SETTINGS)
    with stack:
        yield stack


@pytest.fixture
def cdc(cdc_stack: Stack) -> Endpoints:
    return cdc_stack.endpoints


@pytest.fixture
def connect(cdc: Endpoints) -> Iterator[Callable[[], Connection]]:
    """Connections of the superuser; a test that restarts the server asks for a new one."""
    opened: list[Connection] = []

    def make() -> Connection:
        assert cdc.postgres_url is not None
        opened.append(psycopg.connect(cdc.postgres_url, autocommit=True))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def shop(connect: Callable[[], Connection]) -> Iterator[Shop]:
    """An empty shop, published, with its reader."""
    shop = Shop(f"shop{next(_numbers)}")
    connection = connect()
    shop.create(connection)
    shop.publish(connection)
    shop.grant(connection)
    yield shop
    shop.drop(connect())


@pytest.fixture
def bridge(cdc: Endpoints, shop: Shop) -> Iterator[ReferenceBridge]:
    """The reference bridge on a slot of its own, with the rights of the shop's reader."""
    assert cdc.postgres_tcp_url is not None
    bridge = ReferenceBridge(shop.reader_url(cdc.postgres_tcp_url), f"{shop.name}_reference", shop.publication)
    bridge.create_slot()
    yield bridge
    bridge.drop_slot()


@dataclass(frozen=True)
class Recording:
    """A workload, the events of it, and the shop in the state it left."""

    shop: Shop
    tally: Tally
    events: list[dict[str, Any]]
    oracle_lines: list[str]


@pytest.fixture(scope="session")
def recording(cdc_stack: Stack) -> Iterator[Recording]:
    """Recorded once; nobody changes the shop afterwards."""
    endpoints = cdc_stack.endpoints
    assert endpoints.postgres_url is not None
    assert endpoints.postgres_tcp_url is not None
    shop = Shop("recorded")
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as connection:
        shop.create(connection)
        shop.publish(connection)
        shop.grant(connection)
    bridge = ReferenceBridge(shop.reader_url(endpoints.postgres_tcp_url), "recorded", shop.publication)
    bridge.create_slot()
    options = WorkloadOptions(seed=11, transactions=70, copied_rows=150, big_rows=400)
    with Oracle(endpoints.postgres_url, shop) as oracle:
        with Workload(endpoints.postgres_url, shop, options) as work:
            tally = work.wait()
        oracle.wait_for()
        lines = oracle.compare()
    yield Recording(shop, tally, decoded(bridge.read()), lines)
    bridge.drop_slot()
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as connection:
        shop.drop(connection)
