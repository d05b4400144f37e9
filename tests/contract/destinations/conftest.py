"""One backend after the other for every test of the suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.destinations.kafka import close_idle_clients
from headgate.embedded import Endpoints
from tests.contract.destinations.backends import Backend, open_backend
from tests.contract.destinations.cluster import MockCluster
from tests.contract.destinations.promises import PROMISES


@pytest.fixture(scope="session")
def cluster() -> Iterator[MockCluster]:
    """A Kafka cluster shared by all tests: use topics of your own in it."""
    with MockCluster() as running:
        yield running
        close_idle_clients()


@pytest.fixture(params=PROMISES)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    kind: str = request.param
    if kind == "iggy" and "HEADGATE_TEST_IGGY" not in os.environ:
        pytest.skip("HEADGATE_TEST_IGGY names no server")
    cluster = request.getfixturevalue("cluster") if kind.startswith("kafka") else None
    needs_servers = kind.startswith(("nats", "log", "broker"))
    endpoints: Endpoints | None = request.getfixturevalue("endpoints") if needs_servers else None
    nats_url, postgres_url = (endpoints.nats_url, endpoints.postgres_url) if endpoints else (None, None)
    with open_backend(kind, tmp_path, cluster, nats_url, postgres_url) as opened:
        yield opened
