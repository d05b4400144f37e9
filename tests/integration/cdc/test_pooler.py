"""Replication needs PostgreSQL itself: behind PgBouncer the reader, checks and snapshots say so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.config.sources import PostgresCdcSourceSection
from headgate.control.checks import Outcome
from headgate.control.checks.cdc import check_cdc
from headgate.embedded.postgres import PostgresServer
from headgate.model import ConfigError
from headgate.postgres import connect
from headgate.sources.postgres_snapshot.points import exported_point
from tests.integration.broker.pooler import needs_pgbouncer, pgbouncer
from tests.integration.cdc.conftest import Admin
from tests.integration.cdc.watching import Start

pytestmark = [pytest.mark.timeout(120), needs_pgbouncer]


@pytest.fixture
def pooled(server: PostgresServer, admin: Admin) -> Iterator[str]:
    with pgbouncer(server.tcp_url) as address:
        yield address


def test_a_reader_behind_a_pooler_is_told_so(pooled: str, reader: Start) -> None:
    with pytest.raises(ConfigError, match="a connection pooler") as caught:
        reader(url=pooled).ensure()
    assert "PostgreSQL itself" in caught.value.remedy


def test_a_snapshot_behind_a_pooler_is_told_so(pooled: str) -> None:
    with pytest.raises(ConfigError, match="a connection pooler"), exported_point(pooled, "public", "t"):
        pass


def test_the_check_says_so(pooled: str) -> None:
    connect(pooled).close()  # an ordinary connection works
    section = PostgresCdcSourceSection(type="postgres-cdc", slot="s", publication="p")
    found = {each.subject: each for each in check_cdc(section, pooled)}
    assert found["replication connection"].outcome is Outcome.FAIL
    assert "PostgreSQL itself" in found["replication connection"].fix
