"""Routed pipelines over the random source: its column `kind` has a few values, `customer` many."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.config.models import PipelineSection
from headgate.destinations.base import Destination
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import NatsDestination, NatsOptions
from headgate.embedded import Endpoints
from headgate.pipeline.routing.settings import routing_settings
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.base import Mode, Source
from headgate.sources.random.source import RandomSource
from headgate.spool.dead_letters import DeadLetters

Serve = Callable[..., str]
Receive = Callable[[], tuple[str, list[tuple[str, Any]], set[str]]]
MakeSpec = Callable[..., PipelineSpec]
Run = Callable[[PipelineSpec], Supervisor]


@pytest.fixture
def memory() -> MemoryDestination:
    return MemoryDestination("memory", max_rows=100_000)


@pytest.fixture
def nats(endpoints: Endpoints) -> NatsDestination:
    """A stream of its own; rows may name others, whose names begin with it."""
    assert endpoints.nats_url is not None
    name = f"R{uuid.uuid4().hex[:8]}"
    return NatsDestination("nats", NatsOptions(url=endpoints.nats_url, stream=name, subjects=(f"{name}.>",)))


@pytest.fixture
def make_spec(tmp_path: Path) -> MakeSpec:
    """A pipeline from a table `[pipelines.x]`, as the configuration has it."""

    def make(
        *destinations: Destination,
        rows: int = 250,
        source: Source | None = None,
        mode: Mode | None = None,
        options: dict[str, str] | None = None,
        until_caught_up: bool = True,
        **section: Any,
    ) -> PipelineSpec:
        texts = {"rowsPerSecond": "0", "numRows": str(rows), "maxOffsetsPerTrigger": "100"} | (options or {})
        source = source or RandomSource("orders", texts, "test-orders")
        parsed = PipelineSection.model_validate({"source": "orders", "destinations": ["x"], **section})
        name = f"p{uuid.uuid4().hex[:8]}"
        return PipelineSpec(
            name=name,
            source=source,
            destinations=destinations,
            state_path=tmp_path / "state.json",
            checkpoint=(tmp_path / "checkpoint").as_uri(),
            transforms=parsed.transforms,
            payload_format=parsed.format or "json",
            payload_column=parsed.payload_column,
            routing=routing_settings(parsed, mode or source.mode(), where=f"pipelines.{name}"),
            dead_letters=DeadLetters(tmp_path / "dead_letters.sqlite"),
            failure_threshold=parsed.failure_threshold,
            stop_grace_s=parsed.stop_grace,
            until_caught_up=until_caught_up,
        )

    return make


@pytest.fixture
def run(spark: SparkSession) -> Iterator[Run]:
    started: list[Supervisor] = []

    def start(spec: PipelineSpec) -> Supervisor:
        supervisor = Supervisor(spec, spark)
        started.append(supervisor)
        supervisor.start()
        return supervisor

    yield start
    for supervisor in started:
        supervisor.stop()
        assert supervisor.join(60)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """One answer to every GET, from a server on loopback; with a token, only to those who have it."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, body: bytes, token: str | None = None) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                allowed = token is None or self.headers["Authorization"] == f"Bearer {token}"
                self.send_response(status if allowed else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/mapping"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def receive() -> Iterator[Receive]:
    """A receiver of webhooks: its address, what it took, and the topics that it refuses."""
    servers: list[ThreadingHTTPServer] = []

    def start() -> tuple[str, list[tuple[str, Any]], set[str]]:
        received: list[tuple[str, Any]] = []
        refused: set[str] = set()

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                topic = self.path.rpartition("/")[2]
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if topic not in refused:
                    received.append((topic, body))
                self.send_response(400 if topic in refused else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # a connection that is not taken up would be tried again, and its row come twice

        server = Server(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/{{topic}}", received, refused

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
