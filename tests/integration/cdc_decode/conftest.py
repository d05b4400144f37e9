"""A database whose changes are recorded: its own schema, publication and slot in the shared server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from headgate.embedded import Endpoints
from headgate.wire.pgtypes import SESSION

from .recording import Recording

_numbers = itertools.count(1)


@pytest.fixture
def recording(endpoints: Endpoints) -> Iterator[Recording]:
    assert endpoints.postgres_url is not None
    settings = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    with psycopg.connect(endpoints.postgres_url, autocommit=True, options=settings) as connection:
        recording = Recording(endpoints.postgres_url, connection, f"cdc_decode_{next(_numbers)}")
        yield recording
        recording.drop()
