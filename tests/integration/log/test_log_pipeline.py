"""Rows through Spark into the log, and out of it: from its tables, and through a gateway as any Kafka client would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.destinations.memory import MemoryDestination
from headgate.embedded import Endpoints
from headgate.model import Status
from headgate.pipeline.assemble import assemble
from headgate.pipeline.supervisor import Supervisor
from tests.gateway.servers import new_database, running

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ROWS = 3000
Run = Callable[[str, dict[str, Any], dict[str, Any], dict[str, Any]], Supervisor]


@pytest.fixture
def url(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as made:
        yield made


@pytest.fixture
def run(spark: SparkSession, url: str, tmp_path: Path) -> Run:
    def run_once(
        name: str, source: dict[str, Any], destination: dict[str, Any], pipeline: dict[str, Any]
    ) -> Supervisor:
        config = Config.model_validate(
            {
                "project": {"name": "test", "data_dir": tmp_path},
                "sources": {"from": source},
                "destinations": {"to": destination},
                "pipelines": {name: {"source": "from", "destinations": ["to"], **pipeline}},
            }
        )
        spec = assemble(config, nats_url=None, postgres_url=url, until_caught_up=True)[0]
        supervisor = Supervisor(spec, spark)
        supervisor.start()
        assert supervisor.join(120)
        assert supervisor.report.status is Status.STOPPED, supervisor.report.error
        return supervisor

    return run_once


def received(supervisor: Supervisor) -> list[dict[str, Any]]:
    memory = supervisor.spec.destinations[0]
    assert isinstance(memory, MemoryDestination)
    return [json.loads(message.payload) for message in memory.messages]


def test_rows_into_the_log_and_out_of_it(run: Run, url: str) -> None:
    made = {"type": "random", "rows_per_second": 0, "rows": ROWS, "max_rows_per_batch": 1000, "partitions": 2}
    routing = {"topic_column": "kind", "default_topic": "other", "partition_key_column": "customer"}
    into = run("into", made, {"type": "log", "partitions": 3}, {"routing": routing})
    assert into.report.rows_total == ROWS
    with psycopg.connect(url) as connection:
        rows = connection.execute("select topic, value from kafka.messages").fetchall()
    assert len(rows) == ROWS
    written = sorted(json.loads(value)["id"] for _, value in rows)
    assert written == list(range(ROWS))
    topics = sorted({topic for topic, _ in rows})
    assert len(topics) > 1
    memory = {"type": "memory", "max_rows": 10 * ROWS}
    raw = {"format": "raw", "payload_column": "value", "topic": "{topic}"}
    read = run("tables", {"type": "log", "topic_pattern": ".*", "max_rows_per_batch": 1000}, memory, raw)
    assert sorted(row["id"] for row in received(read)) == written
    assert read.report.batches_total >= 3
    with running(url) as gateway:
        source = {"type": "kafka", "servers": gateway.bootstrap, "topics": topics, "group": "watchers"}
        through = run("gateway", source, memory, raw)
        assert sorted(row["id"] for row in received(through)) == written
    with psycopg.connect(url) as connection:
        lag = connection.execute("select sum(lag) from kafka.lag('watchers')").fetchone()
    assert lag == (0,)
