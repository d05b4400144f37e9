"""A schema, publication and slot of its own for every test, in the shared server, read by a role with few rights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headgate.embedded import Endpoints


@dataclass
class Shop:
    """One test's tables, and the stream of one of them."""

    spark: SparkSession
    url: str
    admin: psycopg.Connection[tuple[Any, ...]]
    name: str
    directory: Path

    def execute(self, statement: LiteralString) -> None:
        self.admin.execute(statement)

    def open(self, **options: str) -> DataFrame:
        """The slot exists from here on, and so do the changes that are made afterwards."""
        known = self.admin.execute("select 1 from pg_replication_slots where slot_name = %s", [self.name]).fetchone()
        if known is None:
            self.admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])
        reader = self.spark.readStream.format("pgcdc").option("url", self.url).option("slot", self.name)
        reader = reader.option("publication", self.name).option("spool", str(self.directory / "spool"))
        return reader.option("table", f"{self.name}.orders").options(**options).load()

    def drain(self, changes: DataFrame) -> list[Row]:
        """Every change up to now that the checkpoint does not have yet."""
        found: list[Row] = []
        writer = changes.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        query = writer.option("checkpointLocation", str(self.directory / "checkpoint")).trigger(availableNow=True)
        started = query.start()
        try:
            assert started.awaitTermination(60)
        finally:
            started.stop()
        return found


@pytest.fixture
def shop(spark: SparkSession, endpoints: Endpoints, tmp_path: Path) -> Iterator[Shop]:
    assert endpoints.postgres_url is not None
    name = f"typed_{tmp_path.parent.name}_{tmp_path.name}"[-60:].replace("-", "_").lower()
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
        if admin.execute("select 1 from pg_roles where rolname = 'typed_bridge'").fetchone() is None:
            admin.execute("create role typed_bridge login replication")
        admin.execute(f'create schema "{name}"; set search_path = "{name}", public'.encode())
        admin.execute(f'create publication "{name}" for tables in schema "{name}"'.encode())
        url = endpoints.postgres_url.replace("user=headgate", "user=typed_bridge")
        yield Shop(spark, url, admin, name, tmp_path)
        _drop_slot(admin, name)
        admin.execute(f'drop publication "{name}"; drop schema "{name}" cascade'.encode())


def _drop_slot(admin: psycopg.Connection[tuple[Any, ...]], slot: str) -> None:
    """The walsender of a slot takes a moment to let go."""
    for _ in range(200):
        try:
            admin.execute(
                "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s and active",
                [slot],
            )
            admin.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [slot]
            )
        except psycopg.errors.ObjectInUse:
            admin.execute("select pg_sleep(0.05)")
        else:
            return
    raise TimeoutError(slot)
