"""A pipeline from a relay: every op goes to the topic of its collection."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.demo.network.repository import Repository, create, delete
from headgate.destinations.memory import MemoryDestination
from headgate.pipeline.assemble import assemble
from headgate.pipeline.supervisor import Supervisor
from tests.integration.atproto.relay import small_relay

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

NOW_US = 1_700_000_000_000_000
PIPELINE = """
[sources.network]
type = "atproto"
url = "{url}"
start_at = "earliest"

[destinations.seen]
type = "memory"

[pipelines.posts]
source = "network"
destinations = ["seen"]
topic = "at.{{collection}}"
"""


def test_ops_go_to_the_topic_of_their_collection(tmp_path: Path, spark: SparkSession) -> None:
    repo = Repository("alice", "pds.example")
    with small_relay() as relay:
        text = PIPELINE.format(url=relay.url)
        config = Config.model_validate(tomllib.loads(text) | {"project": {"data_dir": tmp_path}})
        (spec,) = assemble(config, nats_url=None, postgres_url=None)
        (memory,) = spec.destinations
        assert isinstance(memory, MemoryDestination)
        relay.add(
            repo.account(seq=3, now_us=NOW_US),
            repo.commit([create("app.bsky.feed.post/a", {"n": 1}), create("x.y.z/b", {})], seq=4, now_us=NOW_US),
            repo.commit([delete("app.bsky.feed.post/a")], seq=8, now_us=NOW_US + 1),
        )
        supervisor = Supervisor(spec, spark)
        supervisor.start()
        try:
            assert memory.wait_for(4, 90), supervisor.report
        finally:
            supervisor.stop()
    rows = memory.messages
    assert [row.topic for row in rows] == ["at.account", "at.app.bsky.feed.post", "at.x.y.z", "at.app.bsky.feed.post"]
    assert [row.message_id.split("-", 2)[2] for row in rows] == [
        "0000000000000003-00000000",
        "0000000000000004-00000000",
        "0000000000000004-00000001",
        "0000000000000008-00000000",
    ]
    gone = json.loads(rows[3].payload)
    assert (gone["action"], gone["did"], gone.get("record")) == ("delete", repo.did, None)
