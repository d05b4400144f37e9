"""A table of its own for every test, polled without Spark: the reader's methods are called as Spark calls them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from headgate.embedded import Endpoints
from headgate.sources.postgres_poll.datasource import PollStreamReader
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.table import describe

Offset = dict[str, Any]
Rows = list[dict[str, Any]]


@dataclass
class Queue:
    """A table `jobs` in a schema of its own."""

    admin: psycopg.Connection[tuple[Any, ...]]
    url: str
    schema: str
    directory: Path
    more: dict[str, str] = field(default_factory=dict)

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.admin.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def options(self, **more: str) -> dict[str, str]:
        known = {
            "url": self.url,
            "table": f"{self.schema}.jobs",
            "trackingColumn": "tick",
            "directory": str(self.directory / "book"),
            "pollIntervalMs": "0",
        }
        return known | self.more | more

    def reader(self, **more: str) -> PollStreamReader:
        options = PollOptions.from_spark(self.options(**more))
        return PollStreamReader(options, describe(options))

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, options=f"-c search_path={self.schema}")


def read(reader: PollStreamReader, start: Offset, end: Offset) -> Rows:
    """The rows of a batch, as executors would give them."""
    parts = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return pa.Table.from_batches(parts).to_pylist() if parts else []


def drain(reader: PollStreamReader, limit: int = 1000, start: Offset | None = None) -> tuple[list[Rows], Offset]:
    """Batch after batch until nothing is new."""
    at = start or reader.initialOffset()
    batches: list[Rows] = []
    while (end := reader.latestOffset(at, ReadMaxRows(limit))) != at:
        batches.append(read(reader, at, end))
        at = end
    return batches, at


@pytest.fixture
def queue(endpoints: Endpoints, tmp_path: Path) -> Iterator[Queue]:
    assert endpoints.postgres_url is not None
    schema = f"poll_{tmp_path.parent.name}_{tmp_path.name}"[-60:].replace("-", "_").lower()
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
        admin.execute(f'create schema "{schema}"; set search_path = "{schema}", public'.encode())
        admin.execute("create table jobs (id bigint primary key, tick bigint, note text)")
        yield Queue(admin, endpoints.postgres_url, schema, tmp_path)
        admin.execute(f'drop schema "{schema}" cascade'.encode())
