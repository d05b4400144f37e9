"""Webhooks through Spark: a routed pipeline with its restart, a schema, and a spool that is read alone."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.config import Config
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.webhook import WebhookDestination, WebhookOptions
from headgate.model import StateError
from headgate.pipeline.assemble import assemble
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.random.generator import KINDS
from headgate.sources.random.source import RandomSource
from headgate.sources.webhook.datasource import WebhookStreamReader
from headgate.sources.webhook.options import ReaderOptions, ServerOptions
from headgate.sources.webhook.source import WebhookSource
from tests.integration.webhook.receiver import receiving
from tests.integration.webhook.server import serving

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

# A value that is in no mapping must still arrive somewhere.
ROUTED = """
[sources.hooks]
type = "webhook"
port = 0
keys = { shop = "shop-secret" }

[destinations.seen]
type = "memory"

[pipelines.events]
source = "hooks"
destinations = ["seen"]
format = "raw"
payload_column = "body"
transforms = [
  { type = "route", field = "event.type", default_topic = "other", mapping = { order = "orders", refund = "refunds" } },
]
"""

NDJSON = {"content-type": "application/x-ndjson"}


def build(text: str, directory: Path) -> tuple[PipelineSpec, WebhookSource, MemoryDestination]:
    config = Config.model_validate(tomllib.loads(text) | {"project": {"data_dir": directory}})
    (spec,) = assemble(config, nats_url=None, postgres_url=None)
    (memory,) = spec.destinations
    assert isinstance(spec.source, WebhookSource)
    assert isinstance(memory, MemoryDestination)
    return spec, spec.source, memory


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20, headers={"X-Api-Key": "shop-secret"}) as made:
        yield made


def test_events_are_routed_by_a_path_into_their_body(tmp_path: Path, spark: SparkSession, client: httpx.Client) -> None:
    spec, source, memory = build(ROUTED, tmp_path)
    source.start()
    assert source.url is not None
    events = [{"event": {"type": kind}, "n": n} for n, kind in enumerate(["order", "refund", "ping", "order"])]
    events += [{"no": "event"}]
    ids = [client.post(source.url, json=event).json()["ids"][0] for event in events]
    supervisor = Supervisor(spec, spark)
    supervisor.start()
    assert memory.wait_for(5, 90), supervisor.report
    more = client.post(source.url, content=b'{"event":{"type":"refund"}}\n{"event":5}', headers=NDJSON)
    assert memory.wait_for(7, 60)
    ids += more.json()["ids"]
    topics = ["orders", "refunds", "other", "orders", "other", "refunds", "other"]
    arrived = sorted(memory.messages, key=lambda message: message.message_id)
    assert [(message.message_id, message.topic) for message in arrived] == list(zip(ids, topics, strict=True))
    assert [json.loads(message.payload) for message in arrived[:5]] == events
    described = source.describe()
    assert (described["requests_total"], described["rows_total"], described["server"]) == (6, 7, "listening")
    supervisor.stop()
    assert supervisor.join(60)
    assert source.describe() == {"server": "stopped"}

    # What a new run would do: begin behind what was delivered, and not look for what may be gone.
    reader = WebhookStreamReader(ReaderOptions.from_spark(source.options()))
    assert reader.initialOffset() == {"row": 7}
    assert reader.partitions({"row": 0}, {"row": 7}) == []


def test_a_spool_is_read_alone_and_parsed(tmp_path: Path, spark: SparkSession, client: httpx.Client) -> None:
    spool = tmp_path / "spool"
    schema = "type string, amount double, `it's` string"

    def read() -> list[tuple[str, str | None, float | None]]:
        rows: list[tuple[str, str | None, float | None]] = []

        def take(batch: DataFrame, _: int) -> None:
            rows.extend((row.body, row.event.type, row.event.amount) for row in batch.collect())

        source = WebhookSource("alone", ServerOptions(spool=spool), max_rows_per_batch=3, event_schema=schema)
        stream = source.load(spark.readStream.option("confirm", "commit"))
        assert stream.columns[:3] == ["body", "event", "path"]
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return rows

    with serving(spool, segment_bytes=1) as server:
        client.post(server.url, json=[{"type": "a", "amount": 1.5, "more": 1}, {"type": "b", "amount": "much"}, {}])
        client.post(server.url, json={"type": "last"})
        arrived = [(kind, amount) for _, kind, amount in read()]
        assert arrived == [("a", 1.5), ("b", None), (None, None), ("last", None)]
        client.post(server.url, json={"type": "more"})
        assert read() == [('{"type":"more"}', "more", None)]


def test_a_pipeline_sends_webhooks(tmp_path: Path, spark: SparkSession) -> None:
    """From the executors; and a receiver that is in trouble for a while costs nothing but time."""
    with receiving() as receiver:
        receiver.script["*"] = [500, "close"]
        spec = PipelineSpec(
            name="out",
            source=RandomSource("orders", {"rowsPerSecond": "0", "numRows": "40"}, "o"),
            destinations=(WebhookDestination("hook", WebhookOptions(url=receiver.url + "/{topic}")),),
            topic="{kind}",
            state_path=tmp_path / "state.json",
            checkpoint=(tmp_path / "checkpoint").as_uri(),
            until_caught_up=True,
        )
        supervisor = Supervisor(spec, spark)
        supervisor.start()
        assert supervisor.join(90)
    assert supervisor.report.rows_total == 40
    by_id = {got.headers["webhook-id"]: json.loads(got.body)["id"] for got in receiver.got}
    assert sorted(by_id.values()) == list(range(40))
    assert len(receiver.got) == 42
    assert {got.path for got in receiver.got} == {f"/{kind}" for kind in KINDS}


def test_a_checkpoint_ahead_of_the_spool_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path):
        reader = WebhookStreamReader(ReaderOptions(str(tmp_path)))
        limit = reader.getDefaultReadLimit()
        assert reader.latestOffset({"row": 0}, limit) == {"row": 0}
        with pytest.raises(StateError, match="the spool ends at row 0"):
            reader.latestOffset({"row": 5}, limit)
