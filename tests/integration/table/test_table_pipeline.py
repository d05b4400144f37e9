"""A pipeline on a real Spark to a table and to Kafka at once."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.destinations.kafka import KafkaDestination, KafkaOptions
from headgate.destinations.table import TableDestination, open_table
from headgate.model import Status
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.random.source import RandomSource
from tests.contract.destinations.cluster import MockCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_every_batch_is_in_the_table_and_in_kafka(tmp_path: Path, spark: SparkSession) -> None:
    with MockCluster() as cluster:
        table = TableDestination("table", str(tmp_path / "table"))
        kafka = KafkaDestination("kafka", KafkaOptions(servers=cluster.servers, delivery_timeout_s=10))
        options = {"rowsPerSecond": "0", "numRows": "250", "maxOffsetsPerTrigger": "100", "minPartitions": "2"}
        spec = PipelineSpec(
            name=f"p{uuid.uuid4().hex[:8]}",
            source=RandomSource("orders", options, "test-orders"),
            destinations=(table, kafka),
            topic="{kind}",
            state_path=tmp_path / "state.json",
            checkpoint=(tmp_path / "checkpoint").as_uri(),
            until_caught_up=True,
        )
        supervisor = Supervisor(spec, spark)
        supervisor.start()
        assert supervisor.join(90)
        assert supervisor.report.status is Status.STOPPED
        rows = open_table(table.path).to_table().to_pylist()
        topics = ("order", "payment", "shipment", "return")
        arrived = {(topic, each.message_id, each.payload) for topic in topics for each in cluster.arrivals(topic)}
    assert sorted(json.loads(row["payload"])["id"] for row in rows) == list(range(250))
    assert {(row["topic"], row["message_id"], row["payload"]) for row in rows} == arrived
    assert sorted(path.name for path in (tmp_path / "table/_batches").iterdir()) == [
        "0000000000.json",
        "0000000001.json",
        "0000000002.json",
    ]
    assert list((tmp_path / "table/_staging").iterdir()) == []
