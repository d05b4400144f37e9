"""A mirror as a pipeline on Spark, from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.model import Status
from headgate.pipeline.assemble import assemble
from headgate.pipeline.supervisor import Supervisor
from tests.apache_kafka import ApacheKafka
from tests.gateway.servers import GatewayThread
from tests.integration.shadow.test_shadow_groups import commit, committed, wait_for
from tests.integration.shadow.test_shadow_mirror import assert_mirrored, create, messages, write

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Start = Callable[..., Supervisor]


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:10]}"


@pytest.fixture
def start(spark: SparkSession, url: str, kafka: ApacheKafka, tmp_path: Path) -> Start:
    def assembled(*, once: bool = True, **keys: Any) -> Supervisor:
        config = Config.model_validate(
            {
                "project": {"name": "test", "data_dir": tmp_path},
                "sources": {"log": {"type": "log", "topic_pattern": ".*", "unit": "batches"}},
                "destinations": {"mirror": {"type": "shadow", "servers": kafka.servers, **keys}},
                "pipelines": {"shadow": {"source": "log", "destinations": ["mirror"]}},
            }
        )
        supervisor = Supervisor(assemble(config, nats_url=None, postgres_url=url, until_caught_up=once)[0], spark)
        supervisor.start()
        return supervisor

    return assembled


def test_topics_go_over_with_their_groups(
    start: Start, gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    """While it runs; then once more, from where it was."""
    create(gateway.bootstrap, topic, 3)
    running = start(once=False, groups=["*"], group_interval=0.2)
    try:
        for partition in range(3):
            write(gateway.bootstrap, topic, messages(50, partition))
        commit(gateway.bootstrap, topic, topic, 7, 1)
        wait_for(lambda: committed(kafka.servers, topic).get((topic, 1)) == 7)
        wait_for(lambda: running.report.destination_details["mirror"].get("lag_records") == 0)
    finally:
        running.stop()
        assert running.join(60)
    assert running.report.status is Status.STOPPED
    write(gateway.bootstrap, topic, messages(50, 0))
    again = start()
    assert again.join(120)
    assert again.report.status is Status.STOPPED, again.report.error
    assert_mirrored(url, gateway.bootstrap, kafka.servers, topic, 3)


def test_a_batch_that_is_refused_is_set_aside(
    start: Start, gateway: GatewayThread, url: str, kafka: ApacheKafka, topic: str
) -> None:
    """Others go on; when it is mended, it is sent at the end."""
    create(gateway.bootstrap, topic, 1, max_message_bytes="4000000")
    create(kafka.servers, topic, 1, max_message_bytes="10000")
    big = {"value": b"x" * 20_000, "partition": 0}
    for rows in (messages(3, 0, "a"), [big], messages(3, 0, "b")):
        write(gateway.bootstrap, topic, rows)
    assert start().join(120)
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("select base_offset, end_offset, reason from kafka.shadow_rejected").fetchall()
        assert [row[:2] for row in found] == [(3, 4)]
        assert "MESSAGE_TOO_LARGE" in found[0][2]
        lag = connection.execute("select records, rejected from kafka.shadow_lag").fetchone()
        assert lag == (0, 1)
        offsets = connection.execute(
            "select array_agg(kafka.shadow_offset('mirror', %s, 0, o) order by o) from generate_series(0, 7) as o",
            [topic],
        ).fetchone()
        assert offsets == ([0, 1, 2, 3, 3, 4, 5, 6],)
        raise_limit(kafka.servers, topic, "4000000")
        assert connection.execute("select kafka.shadow_retry('mirror')").fetchone() == (1,)
        write(gateway.bootstrap, topic, messages(1, 0, "c"))
        assert start().join(120)
        assert connection.execute("select count(*) from kafka.shadow_rejected").fetchone() == (0,)
        offsets = connection.execute(
            "select array_agg(kafka.shadow_offset('mirror', %s, 0, o) order by o) from generate_series(0, 8) as o",
            [topic],
        ).fetchone()
        assert offsets == ([0, 1, 2, 3, 3, 4, 5, 6, 8],), "the one that was sent again is at 7, and not in the map"


def raise_limit(servers: str, topic: str, limit: str) -> None:
    entry = ConfigEntry("max.message.bytes", limit, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
