"""A bridge with everything a consumer needs, inside the test's own process and Spark session."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import nats
import psycopg
import pytest
from nats.aio.msg import Msg
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.destinations.nats import Bucket, JetStream, NatsDestination, NatsOptions
from headgate.embedded import Endpoints
from headgate.pipeline.assemble import assemble
from headgate.pipeline.supervisor import Supervisor
from headgate.snapshots import SnapshotService, open_snapshot_services
from tests.streams import read_stream

Admin = psycopg.Connection[tuple[Any, ...]]


@dataclass
class Bridge:
    """One pipeline and its bootstrap, on a schema, slot and streams of its own."""

    name: str
    endpoints: Endpoints
    spark: SparkSession
    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    supervisor: Supervisor | None = None
    served: SnapshotService | None = None
    destination: NatsDestination | None = None

    def start(self, format: str = "msgpack", compression: str = "none", **bootstrap: Any) -> Bridge:  # noqa: A002
        config = Config.model_validate(
            {
                "project": {"name": self.name, "data_dir": self.directory},
                "sources": {
                    "changes": {
                        "type": "postgres-cdc", "slot": self.name, "publication": self.name, "format": format,
                        "subject": f"{self.name}.{{schema}}.{{table}}.{{op}}",
                    }
                },
                "destinations": {
                    "stream": {
                        "type": "nats", "stream": self.name, "subjects": [f"{self.name}.>"], "compression": compression,
                    }
                },
                "pipelines": {
                    "bridge": {
                        "source": "changes", "destinations": ["stream"],
                        "snapshots": {"bucket": f"schemas-{self.name}", "stream": "INIT", **bootstrap},
                    }
                },
            }
        )  # fmt: skip
        specs = assemble(config, nats_url=self.endpoints.nats_url, postgres_url=self.endpoints.postgres_url)
        self.served = open_snapshot_services(config, specs, self.spark)["bridge"]
        spec = replace(specs[0], before_batch=self.served.schemas.publish)
        assert isinstance(spec.destinations[0], NatsDestination)
        self.destination = spec.destinations[0]
        self.supervisor = Supervisor(spec, self.spark)
        self.supervisor.start()
        self.served.start()
        wait_until(lambda: bool(self.served and self.served.schemas.tables))
        assert self.served._listener.listening.wait(10)
        return self

    def stop(self) -> None:
        if self.served is not None:
            self.served.stop()
        if self.supervisor is not None:
            self.supervisor.stop()
            assert self.supervisor.join(90), thread_stacks()  # the first batch of a process may be compiling

    def ask(self, table: str, payload: bytes = b"") -> dict[str, Any]:
        """Over NATS, as a consumer would."""

        async def request() -> Msg:
            client = await nats.connect(self.endpoints.nats_url or "")
            try:
                return await client.request(f"snapshot.request.{table}", payload, timeout=10)
            finally:
                await client.close()

        answer: dict[str, Any] = json.loads(asyncio.run(request()).data)
        return answer

    def jetstream(self) -> JetStream:
        return JetStream.open(NatsOptions(url=self.endpoints.nats_url or "", stream="X", subjects=("x",)))

    def snapshot(self, table: str, payload: bytes = b"") -> tuple[dict[str, Any], list[bytes]]:
        """Ask for one, wait for its end: the end message, and the payloads of its chunks."""
        answer = self.ask(table, payload)
        assert answer["accepted"], answer
        assert self.served is not None
        wait_until(lambda: self.ended(answer["snapshot_id"]))
        with self.jetstream() as jetstream:
            end = jetstream.last_message("INIT", answer["meta_subject"])
        assert end is not None
        messages = read_stream(self.endpoints.nats_url, "INIT", 0)
        chunks = [message.data for message in messages if message.subject.startswith(answer["subject"] + ".")]
        return msgspec.msgpack.decode(end.payload), chunks

    def ended(self, snapshot_id: str) -> bool:
        assert self.served is not None
        return any(job.ended for job in self.served.jobs() if snapshot_id == job.id or snapshot_id in job.replaces)

    def schema(self, key: str) -> dict[str, Any] | None:
        with self.jetstream() as jetstream:
            entry = Bucket(jetstream, f"schemas-{self.name}").get(key)
        return msgspec.msgpack.decode(entry.value) if entry else None

    def messages(self, count: int) -> list[Msg]:
        """The stream, once it has so many."""
        with self.jetstream() as jetstream:
            wait_until(lambda: (i := jetstream.stream_info(self.name)) is not None and i.last_sequence >= count)
        return read_stream(self.endpoints.nats_url, self.name, count)

    def events(self, count: int) -> list[dict[str, Any]]:
        return [msgspec.msgpack.decode(message.data) for message in self.messages(count)]


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


@pytest.fixture
def admin(endpoints: Endpoints) -> Iterator[Admin]:
    assert endpoints.postgres_url is not None
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as connection:
        yield connection


def thread_stacks() -> str:
    """Where every thread is, for a test that waits for one in vain."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames().items()
    return "\n".join(f"{names.get(ident)}:\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames)


@pytest.fixture
def bridge(
    endpoints: Endpoints, spark: SparkSession, admin: Admin, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Bridge]:
    """A schema named like the bridge, published whole; tables that the test creates there are published at once."""
    name = f"boot{abs(hash(request.node.nodeid)) % 10**8}"
    admin.execute(f"create schema {name}; create publication {name} for tables in schema {name}".encode())
    admin.execute(f"set search_path to {name}".encode())
    made = Bridge(name, endpoints, spark, tmp_path)
    yield made
    made.stop()
    drop_slot(admin, name)


def drop_slot(admin: Admin, name: str) -> None:
    """The reader ends a moment after its query."""
    free = "select slot_name from pg_replication_slots where slot_name = %s and not active"
    wait_until(lambda: admin.execute(free, [name]).fetchone() is not None)
    admin.execute("select pg_drop_replication_slot(%s)", [name])
