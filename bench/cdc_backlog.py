"""Rows that wait in a slot when a bridge starts: how fast it brings them, in each format."""

from __future__ import annotations

import time
import tomllib

from bench.cdc_load import Admin, fill
from bench.harness import Bench
from headgate.config import Config
from headgate.control import Service
from headgate.destinations.nats import JetStream, NatsOptions
from headgate.embedded import Endpoints

__all__ = ["FIRST", "backlog_rate", "measure_backlog"]

FIRST = 20_000  # rows that are not counted: processes start, and Java compiles what runs often
_CONFIGURATION = """
project = {{ name = "backlog", data_dir = "{data_dir}" }}
postgres = {{ url = "{postgres}" }}
nats = {{ url = "{nats}" }}
control = {{ port = 0 }}
sources.changes = {{ type = "postgres-cdc", slot = "{name}", publication = "bench", subject = "{subject}"{more} }}
destinations.stream = {{ type = "nats", stream = "{name}", subjects = ["{name}.>"] }}
pipelines.backlog = {{ source = "changes", destinations = ["stream"] }}
"""
_FORMATS = {
    "msgpack": "",
    "json": ', format = "json"',
    "debezium": ', format = "debezium", debezium = { snapshot_mode = "no_data" }',
}


def measure_backlog(bench: Bench, endpoints: Endpoints, admin: Admin, rows: int) -> None:
    for name, more in _FORMATS.items():
        slot = f"backlog_{name}"
        admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        fill(admin, FIRST + rows)
        text = _CONFIGURATION.format(
            data_dir=bench.directory / slot,
            postgres=endpoints.postgres_url,
            nats=endpoints.nats_url,
            name=slot,
            subject=f"{slot}.{{table}}",
            more=more,
        )
        bench.figure(f"backlog_{name}_rows_per_second", backlog_rate(text, endpoints, slot, FIRST + rows))
        admin.execute("select pg_drop_replication_slot(%s)", [slot])


def backlog_rate(configuration: str, endpoints: Endpoints, stream: str, rows: int) -> float:
    """Rows in a second that a service brings into a stream, once the first ones are there."""
    options = NatsOptions(url=endpoints.nats_url or "", stream=stream, subjects=(f"{stream}.>",))
    service = Service(Config.model_validate(tomllib.loads(configuration)))
    with JetStream.open(options) as jetstream:
        service.start()
        try:
            first = _await(jetstream, stream, FIRST)
            began = time.perf_counter()
            last = _await(jetstream, stream, rows)
            assert service.first_error() is None
            return (last - first) / (time.perf_counter() - began)
        finally:
            service.stop()


def _await(jetstream: JetStream, stream: str, count: int) -> int:
    """How many messages there are, once there are so many."""
    while (info := jetstream.stream_info(stream)) is None or info.last_sequence < count:
        time.sleep(0.005)
    return info.last_sequence
