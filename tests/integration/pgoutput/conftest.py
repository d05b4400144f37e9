"""Servers live as long as the test session, one per version; a database's slot as long as its test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from .server import Database, Server, installations, running

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=sorted(installations()), ids="pg{}".format)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param) as server:
        yield server


@pytest.fixture
def make_database(server: Server) -> Iterator[Callable[..., Database]]:
    made: list[Database] = []

    def make() -> Database:
        made.append(Database(server, server.connect(), f"t{next(_numbers)}"))
        return made[-1]

    yield make
    for database in made:
        database.sql(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", database.slot
        )
        database.sql(f"drop publication if exists {database.name}; drop schema {database.name} cascade")
        database.connection.close()


@pytest.fixture
def database(make_database: Callable[..., Database]) -> Database:
    return make_database()
