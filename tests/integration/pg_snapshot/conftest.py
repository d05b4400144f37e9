"""A source of its own for every test, in the shared server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from headgate.embedded import Endpoints
from headgate.wire.pgtypes import SESSION
from tests.integration.pg_snapshot.source import Source

_numbers = itertools.count(1)


@pytest.fixture
def source(endpoints: Endpoints) -> Iterator[Source]:
    assert endpoints.postgres_url is not None
    settings = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    with psycopg.connect(endpoints.postgres_url, autocommit=True, options=settings) as connection:
        source = Source(endpoints.postgres_url, connection, f"snapshot_{next(_numbers)}")
        yield source
        source.drop()
