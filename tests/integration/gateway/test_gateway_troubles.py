"""A part of a gateway that does not work is seen, clients are sent elsewhere, and a success ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg

from headgate.commitlog.topics import ensure_topic
from headgate.gateway.store import StoreSettings
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import METADATA, AskedTopic, MetadataRequest
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, running
from tests.integration.gateway.test_gateway_commands import config, headgate  # noqa: F401  a fixture

TIMEOUT_S = 60.0
HASTY = replace(StoreSettings(), append_timeout_s=0.5)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)


def writers(url: str) -> set[int]:
    """The server processes that gateways write with."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select pid from pg_stat_activity where datname = current_database() and application_name = %s",
            ["headgate gateway writer"],
        )
        return {pid for (pid,) in rows}


@contextmanager
def no_writing(url: str) -> Iterator[None]:
    """Nobody can append: somebody holds the log."""
    with psycopg.connect(url) as holder:
        holder.execute("select from kafka.head for update")
        yield
        holder.rollback()


def leaders(gateway: GatewayThread, topic: str) -> set[int]:
    with RawClient(gateway.port) as client:
        answer = client.ask(METADATA, 9, MetadataRequest(topics=(AskedTopic(name=topic),)))
    assert {each.node_id for each in answer.brokers} >= {each.leader_id for each in answer.topics[0].partitions}
    return {each.leader_id for each in answer.topics[0].partitions}


def test_a_writer_that_cannot_write_is_told_and_recovers_by_itself(fresh_database: str, topic: str) -> None:
    """Also if nobody writes any more, because clients have been sent elsewhere."""
    with running(fresh_database, store_settings=HASTY) as gateway, RawClient(gateway.port) as client:
        client.create(topic)
        assert gateway.gateway.told()["troubles"] == {}
        with no_writing(fresh_database):
            answer = client.produce(topic, b"v").responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert "writer" in gateway.gateway.told()["troubles"]
        wait_for(lambda: gateway.gateway.told()["troubles"] == {}, "the trouble did not end")
        assert gateway.gateway.told()["failures"]["writer"] >= 1


def test_clients_are_sent_to_a_gateway_that_can_write(fresh_database: str, topic: str) -> None:
    with running(fresh_database, store_settings=HASTY, default_partitions=16) as first:
        paused = writers(fresh_database)
        with running(fresh_database, store_settings=HASTY) as second, RawClient(first.port) as client:
            client.create(topic)
            ids = {gateway.gateway.services.cluster.node_id for gateway in (first, second)}
            wait_for(lambda: leaders(first, topic) == ids == leaders(second, topic), "they do not know each other")
            other = second.gateway.services.cluster.node_id
            for pid in paused:
                os.kill(pid, signal.SIGSTOP)
            try:
                with no_writing_through(first):
                    client.produce(topic, b"v")
                    wait_for(lambda: leaders(first, topic) == {other} == leaders(second, topic), "it leads for ever")
            finally:
                for pid in paused:
                    os.kill(pid, signal.SIGCONT)
            wait_for(lambda: leaders(first, topic) == ids == leaders(second, topic), "it never leads again")


@contextmanager
def no_writing_through(gateway: GatewayThread) -> Iterator[None]:
    """New connections of its writer go nowhere."""
    writer = gateway.gateway.services.store._writer
    url, writer._url = writer._url, "host=127.0.0.1 port=1 user=nobody"
    yield
    writer._url = url


def test_trouble_is_seen_from_outside(config: Path, fresh_database: str, topic: str) -> None:  # noqa: F811
    """In `/ready`, `/status`, the metrics and the page of a running service."""
    run_file = config.parent / "data" / "run" / "control.json"
    with headgate("run", config=config):
        wait_for(run_file.exists, "it did not start")
        url = json.loads(run_file.read_text())["url"]
        wait_for(lambda: httpx.get(f"{url}/ready").status_code == 200, "it was never ready")
        with psycopg.connect(fresh_database, autocommit=True) as admin:
            ensure_topic(admin, topic, 1)
            admin.execute("alter function kafka.take_inbox(int, bigint, bigint) rename to take_inbox_away")
            admin.execute("select kafka.produce(%s, 'k', 'waits')", [topic])  # an idle outbox has no need of it
            wait_for(lambda: httpx.get(f"{url}/ready").status_code == 503, "nobody was told")
            told = httpx.get(f"{url}/status").json()["gateway"]
            assert told["status"] == "degraded"
            assert "take_inbox" in told["troubles"]["inbox"]
            assert 'headgate_gateway_trouble{part="inbox"} 1.0' in httpx.get(f"{url}/metrics").text
            page = httpx.get(f"{url}/").text
            assert re.search(r'<span class="pill warn"><span aria-hidden="true">.</span> degraded</span>', page)
            assert re.search(r'<p class="bad">inbox does not work: [^<]*take_inbox', page)
            admin.execute("alter function kafka.take_inbox_away rename to take_inbox")
        wait_for(lambda: httpx.get(f"{url}/ready").status_code == 200, "it never recovered")
        assert 'headgate_gateway_trouble{part="inbox"} 0.0' in httpx.get(f"{url}/metrics").text
        wait_for(lambda: "does not work" not in httpx.get(f"{url}/").text, "the page still says so")
