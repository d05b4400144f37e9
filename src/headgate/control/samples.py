"""Sample rows for `headgate explain`: from a table, from the last events, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from headgate.config import Config
from headgate.control.spark import open_spark
from headgate.destinations.nats import JetStream, NatsDestination, StoredMessage
from headgate.embedded import Stack
from headgate.model import ConnectError, UsageError, record
from headgate.pipeline.assemble import assemble
from headgate.pipeline.routing.explain import Explanation
from headgate.pipeline.sampling import explain_samples
from headgate.pipeline.session import close_session
from headgate.pipeline.spec import PipelineSpec
from headgate.postgres import connect

__all__ = ["explain_rows", "last_events", "table_rows"]


def explain_rows(config: Config, pipeline: str, rows: Sequence[dict[str, Any]]) -> tuple[list[Explanation], list[str]]:
    """Where rows would go, as if no pipeline ran; and what to know besides."""
    spec = _spec(config, pipeline)
    if spec.routing is None:
        raise UsageError(
            f"the rows of {pipeline} do not say where they go",
            where=spec.where,
            remedy="add routing to the pipeline; see docs/routing.md",
        )
    spark = open_spark(config, master="local[1]")
    try:
        return explain_samples(spark, spec, rows, spec.routing)
    finally:
        close_session(spark)


def table_rows(config: Config, pipeline: str, table: str, limit: int) -> list[dict[str, Any]]:
    """Some rows of a table, with the names that changes of it carry."""
    schema, _, name = table.rpartition(".")
    schema = schema or "public"
    query = sql.SQL("SELECT * FROM {} LIMIT {}").format(sql.Identifier(schema, name), sql.Literal(limit))
    try:
        with connect(_postgres_url(config, pipeline), "headgate explain") as connection:
            found = connection.execute(query).fetchall()
    except psycopg.Error as error:
        raise UsageError(f"{table} cannot be read: {error}", remedy="name it as SCHEMA.TABLE") from None
    return [{**row, record.SCHEMA: schema, record.TABLE: name} for row in found]


def last_events(config: Config, pipeline: str, count: int) -> list[dict[str, Any]]:
    """The rows of the last events in the streams that the pipeline's NATS destination writes to."""
    spec = _spec(config, pipeline)
    nats = next((each for each in spec.destinations if isinstance(each, NatsDestination)), None)
    if nats is None:
        raise UsageError(f"{pipeline} has no NATS destination to read from", remedy="use --table or --row instead")
    found: list[StoredMessage] = []
    with JetStream.open(nats.options) as jetstream:
        for stream in _streams(spec, nats):
            info = jetstream.stream_info(stream)
            last = info.last_sequence if info else 0
            messages = (jetstream.message(stream, at) for at in range(max(1, last - count + 1), last + 1))
            found += [message for message in messages if message]
    found.sort(key=lambda message: message.time)
    return [row for message in found[-count:] if (row := _row_of(message.payload)) is not None]


def _streams(spec: PipelineSpec, nats: NatsDestination) -> list[str]:
    """The destination's own stream, and those that the routes name."""
    names = {nats.options.stream}
    if spec.routing:
        rules = spec.routing.rules
        targets = [*rules.by_table.values(), *spec.routing.literal]
        targets += [each for lookup in rules.lookups for several in lookup.mapping.values() for each in several]
        names |= {nats.stream_name(target.stream) for target in targets if target.stream}
        names |= {nats.stream_name(rules.default_stream)} if rules.default_stream else set()
    return sorted(names)


def _row_of(payload: bytes) -> dict[str, Any] | None:
    """The row in an event of either form, or in a payload that is a JSON row itself."""
    try:
        event = json.loads(payload) if payload[:1] == b"{" else msgspec.msgpack.decode(payload)
    except (ValueError, msgspec.MsgspecError):
        return None
    if not isinstance(event, dict):
        return None
    if "data" not in event:
        return event
    row = {**(event.get("old") or {}), **(event["data"] or {})}
    return {**row, record.SCHEMA: event.get("schema"), record.TABLE: event.get("table")}


def _spec(config: Config, pipeline: str) -> PipelineSpec:
    endpoints = Stack.attach(config.project.data_dir)
    specs = assemble(
        config,
        nats_url=(endpoints.nats_url if endpoints else None) or config.nats.url.get_secret_value(),
        postgres_url=(endpoints.postgres_url if endpoints else None) or config.postgres.url.get_secret_value(),
    )
    found = next((spec for spec in specs if spec.name == pipeline), None)
    if found is None:
        raise UsageError(f"the pipeline {pipeline} is not enabled", remedy="set enabled = true")
    return found


def _postgres_url(config: Config, pipeline: str) -> str:
    own = getattr(config.sources[config.pipelines[pipeline].source], "url", None)
    if own is not None:
        return str(own.get_secret_value())
    endpoints = Stack.attach(config.project.data_dir)
    if endpoints and endpoints.postgres_url:
        return endpoints.postgres_url
    if config.postgres.embedded:
        raise ConnectError("the embedded PostgreSQL is not running", remedy="start it: headgate up, or headgate run")
    return config.postgres.url.get_secret_value()
