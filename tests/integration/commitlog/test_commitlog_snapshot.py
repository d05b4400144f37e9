"""A transaction that stays open elsewhere, such as a backup's, keeps old versions of rows: nobody pays for these."""

from __future__ import annotations

import psycopg
import pytest

from headgate.commitlog.append import append, append_arguments
from headgate.commitlog.prepare import Batch
from tests.integration.commitlog.log_topics import batch, create
from tests.stock import both_servers

_APPENDS = 5000


@pytest.fixture(params=both_servers)
def log_url(request: pytest.FixtureRequest, log_url: str) -> str:
    """On the embedded server and on Debian's: plans differ by version and settings."""
    return log_url if request.param == "embedded" else str(request.getfixturevalue("stock_log_url"))


def _pages(connection: psycopg.Connection, batches: list[tuple[int, Batch]]) -> int:
    """How many an append looks at."""
    statement = "explain (analyze, buffers, format json) select * from kafka.append(%b, %b, %b)"
    row = connection.execute(statement, append_arguments(batches, is_durable=True)).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_an_append_costs_the_same_after_thousands_under_a_snapshot(log_url: str, topic: str) -> None:
    """Of an idempotent producer and of one that is not: all rows that an append changes."""
    with (
        psycopg.connect(log_url) as backup,
        psycopg.connect(log_url, autocommit=True) as connection,
    ):
        parts = create(connection, topic, 2)
        connection.execute("set synchronous_commit = off")
        backup.execute("set transaction isolation level repeatable read")
        backup.execute("select count(*) from kafka.topics")
        pages: list[int] = []
        for sequence in range(_APPENDS):
            batches = [(parts[0], batch(b"v", producer=7, epoch=0, sequence=sequence)), (parts[1], batch(b"v"))]
            if sequence % 1000 == 999:
                # As autovacuum does, at any time: statistics of many versions and few rows are not to spoil the plans.
                connection.execute("vacuum analyze kafka.states, kafka.producers, kafka.parts")
            if 20 <= sequence < 40 or sequence >= _APPENDS - 20:
                pages.append(_pages(connection, batches))
            else:
                append(connection, batches)
        assert min(pages[20:]) < 3 * min(pages[:20]), str(pages)  # it was 24 times as many
        rows = connection.execute("select next_offset from kafka.partitions where part_id = any(%s)", [parts])
        assert list(rows) == [(_APPENDS,), (_APPENDS,)]
        backup.rollback()
