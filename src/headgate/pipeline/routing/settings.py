"""Routing as it will run: the configuration resolved, mappings fetched, defaults filled in by the source's mode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
from pydantic import TypeAdapter, ValidationError

from headgate.config.models import PipelineSection
from headgate.config.routing import DestinationPattern, RouteTransform, RoutingSection, Target, Targets
from headgate.destinations.base import TopicDefaults
from headgate.model import ConfigError, ConnectError, record
from headgate.model.address import Address
from headgate.pipeline.routing.admission import Admission, Patterns
from headgate.pipeline.routing.router import KEY, KEY_STREAM, KEY_TOPIC, lookup_column
from headgate.pipeline.routing.rules import Lookup, Rules
from headgate.sources.base import Mode, Pick

__all__ = ["KeyPaths", "RoutingSettings", "fetch_mapping", "routing_settings"]

Action = Literal["drop", "error", "dlq"]

_FETCH_TIMEOUT_S = 10.0
_MOST_MAPPING_BYTES = 16 << 20
_MAPPING = TypeAdapter(dict[str, Targets])


@dataclass(frozen=True, slots=True)
class KeyPaths:
    """What the plan must read of each row. A change of these needs a new query."""

    stream: str | None = None
    topic: str | None = None
    partition_key: str | None = None
    tables: bool = False
    lookups: tuple[tuple[str, ...], ...] = ()
    strip: bool = False

    def picks(self) -> list[Pick]:
        """Return what the sender must read of each row, for a source whose rows are made by their sender."""
        named = {KEY_STREAM: self.stream, KEY_TOPIC: self.topic, KEY: self.partition_key}
        picks = [Pick(name, (path,)) for name, path in named.items() if path]
        picks += [Pick(name, (name,)) for name in (record.SCHEMA, record.TABLE) if self.tables]
        picks.append(Pick(record.OP, (record.OP,)))
        return picks + [Pick(lookup_column(number), paths) for number, paths in enumerate(self.lookups)]

    @property
    def columns(self) -> list[str]:
        """Columns of the row itself."""
        return [column for column in (self.stream, self.topic, self.partition_key) if column]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Everything about routing that a reload may change, and `paths`, which it may not."""

    paths: KeyPaths
    rules: Rules
    admission: Admission
    on_missing: Action
    on_refusal: Action
    literal: tuple[Address, ...] = ()  # what a prewarm creates
    prewarm_deadline_s: float = 60.0
    defaults: TopicDefaults = field(default_factory=TopicDefaults)
    breaker_threshold: int = 5
    breaker_cool_down_s: float = 30.0


def routing_settings(section: PipelineSection, mode: Mode, *, where: str, epoch: int = 1) -> RoutingSettings:
    """Resolve a pipeline's routing. Fetches mappings, and fails if one cannot be had."""
    routing = section.routing
    admission = routing.admission
    refusal: Action = "error" if mode.kind == "cdc" or mode.destructive else "drop"
    return RoutingSettings(
        paths=_paths(section),
        rules=_rules(section, epoch, where),
        admission=Admission(
            admission.mode,
            _patterns(admission.allowlist),
            _patterns(admission.denylist),
            admission.max_destinations,
            admission.max_concurrent_destinations,
        ),
        on_missing="error" if admission.on_missing_destination == "default" else admission.on_missing_destination,
        on_refusal=admission.on_admission_failure or refusal,
        literal=tuple(Address(e.stream, e.topic) for e in admission.allowlist if e.literal)
        if admission.mode == "allowlist"
        else (),
        prewarm_deadline_s=routing.startup_prewarm_deadline,
        defaults=TopicDefaults(
            routing.topic_defaults.partitions_count,
            routing.topic_defaults.replicas,
            routing.topic_defaults.max_age,
            routing.topic_defaults.max_bytes,
        ),
        breaker_threshold=routing.circuit_breaker.failure_threshold,
        breaker_cool_down_s=routing.circuit_breaker.cool_down,
    )


def _paths(section: PipelineSection) -> KeyPaths:
    routing = section.routing
    return KeyPaths(
        stream=routing.stream_column,
        topic=routing.topic_column,
        partition_key=routing.partition_key_column,
        tables=bool(routing.by_table),
        lookups=tuple(route.field for route in section.routes),
        strip=routing.strip_routing_columns,
    )


def _rules(section: PipelineSection, epoch: int, where: str) -> Rules:
    routing = section.routing
    default_stream, default_topic = _default(section, routing)
    return Rules(
        lookups=tuple(_lookup(route, where) for route in section.routes),
        by_table={_table(name): _destination(target) for name, target in routing.by_table.items()},
        by_stream_column=routing.stream_column,
        by_topic_column=routing.topic_column,
        default_stream=default_stream,
        default_topic=default_topic,
        use_default=routing.admission.on_missing_destination == "default",
        partition_key_column=routing.partition_key_column,
        encoding=routing.partition_key_encoding,
        epoch=epoch,
    )


def _default(section: PipelineSection, routing: RoutingSection) -> tuple[str | None, str | None]:
    """Of several routes, the first default counts."""
    for route in section.routes:
        if route.default_topic:
            return route.stream, route.default_topic
    return routing.default_stream, routing.default_topic


def _lookup(route: RouteTransform, where: str) -> Lookup:
    mapping: Mapping[str, tuple[Target, ...]] = route.mapping
    if route.mapping_url:
        token = route.mapping_token.get_secret_value() if route.mapping_token else None
        mapping = fetch_mapping(route.mapping_url, token, where=f"{where}.transforms (route)")
    destinations = {
        value: tuple(_destination(target, route.stream) for target in targets) for value, targets in mapping.items()
    }
    return Lookup(destinations, route.match == "first", "/".join(route.field))


def fetch_mapping(url: str, token: str | None, *, where: str) -> dict[str, tuple[Target, ...]]:
    """A mapping from an HTTP server. Whatever is wrong with it is an error that says what the server said."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with (
            httpx.Client(timeout=_FETCH_TIMEOUT_S, follow_redirects=False) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            body = b""
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > _MOST_MAPPING_BYTES:
                    raise ConfigError("the mapping is larger than 16 MiB", where=where, remedy=f"look at {url}")
    except httpx.HTTPError as error:
        raise ConnectError(
            f"the mapping cannot be fetched: {type(error).__name__}: {error}", where=where, remedy=f"is {url} up?"
        ) from None
    if answer.status_code != 200:
        said = body[:200].decode(errors="replace").strip()
        raise ConfigError(
            f"the mapping cannot be fetched: {answer.status_code} {answer.reason_phrase}: {said}",
            where=where,
            remedy=f"correct mapping_url, or what answers at {url}",
        )
    return _parse_mapping(body, url, where)


def _parse_mapping(body: bytes, url: str, where: str) -> dict[str, tuple[Target, ...]]:
    try:
        fields: Any = json.loads(body)
        return _MAPPING.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        what = f"it is not JSON: {error}"
    raise ConfigError(
        f"the mapping at {url} cannot be used: {what}",
        where=where,
        remedy='serve an object such as {"order.created": "orders", "order.paid": ["orders", "billing"]}',
    )


def _destination(target: Target, stream: str | None = None) -> Address:
    return Address(target.stream or stream or "", target.topic)


def _table(name: str) -> str:
    return name if "." in name else f"public.{name}"


def _patterns(entries: tuple[DestinationPattern, ...]) -> Patterns:
    return Patterns.of((entry.stream, entry.topic) for entry in entries)
