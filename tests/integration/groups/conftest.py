"""One gateway for the tests of groups, with times that let a test see the end of a session."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from headgate.embedded import Endpoints
from headgate.gateway.groups import GroupSettings
from tests.gateway.servers import GatewayThread, new_database, running

# Members are given up after a second or less; heartbeats of the new protocol come five times in that time.
FAST = GroupSettings(
    min_session_timeout_ms=300, consumer_session_timeout_s=1.0, consumer_heartbeat_interval_s=0.1, lease_check_s=0.2
)


@pytest.fixture(scope="session")
def database(endpoints: Endpoints) -> Iterator[str]:
    """A database that all tests of groups share: use topics and groups of your own."""
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def gateway(database: str) -> Iterator[GatewayThread]:
    with running(database, group_settings=FAST) as started:
        yield started


@pytest.fixture
def name() -> str:
    """A name for a topic and a group that no other test has."""
    return f"g-{uuid4().hex[:10]}"
