"""From the configuration to pipelines that can run: names resolved, addresses filled in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, assert_never

from headgate.config import Config
from headgate.config.destinations import (
    BrokerDestinationSection,
    ConsoleDestinationSection,
    DestinationSection,
    DiscardDestinationSection,
    EventLogDestinationSection,
    IggyDestinationSection,
    KafkaDestinationSection,
    LogDestinationSection,
    MemoryDestinationSection,
    NatsDestinationSection,
    PluginDestinationSection,
    TableDestinationSection,
    WebhookDestinationSection,
)
from headgate.config.models import NatsSection, PipelineSection
from headgate.config.routing import RouteTransform
from headgate.config.sources import (
    AtprotoSourceSection,
    BrokerSourceSection,
    FilesSourceSection,
    KafkaSourceSection,
    LogSourceSection,
    PluginSourceSection,
    PostgresCdcSourceSection,
    PostgresPollSourceSection,
    RandomSourceSection,
    WebhookSourceSection,
)
from headgate.destinations.base import Destination
from headgate.destinations.console import ConsoleDestination
from headgate.destinations.discard import DiscardDestination
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import NatsDestination, NatsOptions
from headgate.model.position import renewed_origin
from headgate.pipeline.destinations import (
    broker_destination,
    event_log_destination,
    iggy_destination,
    kafka_destination,
    log_destination,
    table_destination,
)
from headgate.pipeline.plugins import PluginContext, plugin_destination, plugin_source
from headgate.pipeline.polled import files_source, poll_source
from headgate.pipeline.resetting import checkpoint_of, resets_of
from headgate.pipeline.routing.settings import routing_settings
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.topics import atproto_source, broker_source, kafka_source, log_source
from headgate.pipeline.webhooks import webhook_destination, webhook_source
from headgate.sources.base import Source
from headgate.sources.postgres_cdc.source import PostgresCdcSource
from headgate.sources.random.source import RandomSource
from headgate.spool.dead_letters import DEAD_LETTERS, DeadLetters

__all__ = ["assemble", "nats_credentials", "nats_options", "pipeline_dir", "source_of"]


def assemble(
    config: Config, *, nats_url: str | None, postgres_url: str | None, until_caught_up: bool = False
) -> list[PipelineSpec]:
    """Every enabled pipeline. The URLs are those behind `[nats]` and `[postgres]`, embedded or not."""
    cdc = _fed_by_cdc(config)
    built = {
        name: _destination(name, section, config, nats_url, postgres_url, exclusive=name in cdc)
        for name, section in config.destinations.items()
    }
    return [
        _pipeline(name, section, config, built, postgres_url, until_caught_up)
        for name, section in config.pipelines.items()
        if section.enabled
    ]


def pipeline_dir(config: Config, pipeline: str) -> Path:
    """Where a pipeline keeps its state, and by default its checkpoint."""
    return config.project.data_dir / "pipelines" / pipeline


def source_of(config: Config, pipeline: str, postgres_url: str | None = None) -> Source:
    """The source of one pipeline, for what it can say without its server."""
    return _source(config.pipelines[pipeline], config, pipeline_dir(config, pipeline), postgres_url)


def _pipeline(
    name: str,
    section: PipelineSection,
    config: Config,
    built: dict[str, Destination],
    postgres_url: str | None,
    until_caught_up: bool,
) -> PipelineSpec:
    directory = pipeline_dir(config, name)
    source = _source(section, config, directory, postgres_url)
    letters = section.dead_letters
    resets = resets_of(directory)
    return PipelineSpec(
        name=name,
        source=source,
        destinations=tuple(built[destination] for destination in section.destinations),
        state_path=directory / "state.json",
        checkpoint=checkpoint_of(name, directory, config.spark.checkpoint_dir, resets),
        topic=section.topic,
        transforms=section.transforms,
        payload_format=section.format or ("envelope" if source.has_envelope else "json"),
        payload_column=section.payload_column,
        trigger_interval_s=section.trigger_interval,
        routing=routing_settings(section, source.mode(), where=f"pipelines.{name}") if section.routed else None,
        dead_letters=DeadLetters(directory / DEAD_LETTERS, max_rows=letters.max_rows, max_bytes=letters.max_bytes),
        failure_threshold=section.failure_threshold,
        stop_grace_s=section.stop_grace,
        resets=resets,
        renews_origin=isinstance(config.sources[section.source], PluginSourceSection),
        until_caught_up=until_caught_up,
    )


def _source(pipeline: PipelineSection, config: Config, directory: Path, postgres_url: str | None) -> Source:
    name = pipeline.source
    section = config.sources[name]
    owner = f"{config.project.name}-{name}"
    origin = renewed_origin(owner, resets_of(directory))
    match section:
        case RandomSourceSection():
            return RandomSource(name, _random_options(section), origin)
        case PostgresCdcSourceSection():
            own = section.url.get_secret_value() if section.url else None
            options = _cdc_options(section, own or postgres_url or "", directory / "spool")
            options |= _set_aside_options(pipeline, directory)
            return PostgresCdcSource(name, options | ({"images": "true"} if _needs_images(pipeline) else {}))
        case PostgresPollSourceSection():
            own = section.url.get_secret_value() if section.url else None
            kept = directory / "poll"
            return poll_source(name, section, url=own or postgres_url or "", origin=origin, directory=kept)
        case FilesSourceSection():
            return files_source(name, section, origin=origin, directory=directory / "files")
        case BrokerSourceSection():
            own = section.url.get_secret_value() if section.url else None
            return broker_source(name, section, url=own or postgres_url or "", origin=origin, owner=owner)
        case AtprotoSourceSection():
            return atproto_source(name, section, origin=origin, spool=directory / "spool")
        case KafkaSourceSection():
            return kafka_source(name, section, origin=origin)
        case LogSourceSection():
            own = section.url.get_secret_value() if section.url else None
            return log_source(name, section, url=own or postgres_url or "", origin=origin)
        case WebhookSourceSection():
            spool = config.project.data_dir / "webhooks" / name
            return webhook_source(name, section, origin=origin, spool=spool)
        case PluginSourceSection():
            return plugin_source(section.plugin, section.options, _plugin_context(name, config, directory / "source"))
        case _:
            assert_never(section)


def _needs_images(pipeline: PipelineSection) -> bool:
    """Routes of a CDC pipeline read columns of the changed rows. Without other transforms their sender picks them."""
    plain = [each for each in pipeline.transforms if not isinstance(each, RouteTransform)]
    return pipeline.routed and bool(plain or pipeline.format not in (None, "envelope"))


def _plugin_context(name: str, config: Config, directory: Path) -> PluginContext:
    directory.mkdir(parents=True, exist_ok=True)
    return PluginContext(name, config.project.name, directory)


def _random_options(section: RandomSourceSection) -> dict[str, str]:
    options = {
        "rowsPerSecond": section.rows_per_second,
        "numRows": section.rows,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "minPartitions": section.partitions,
        "payloadBytes": section.payload_bytes,
        "customers": section.customers,
        "seed": section.seed,
    }
    return {key: str(value) for key, value in options.items()}


def _cdc_options(section: PostgresCdcSourceSection, url: str, spool: Path) -> dict[str, str]:
    options = {
        "url": url,
        "slot": section.slot,
        "publication": section.publication,
        "spool": spool,
        "format": section.format,
        "subject": section.subject,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "maxBytesPerTrigger": section.max_bytes_per_batch,
        "maxSpoolBytes": section.max_spool_bytes,
        "createPublicationFor": ",".join(section.tables),
        "failover": str(section.failover).lower(),
        "images": str(section.images).lower(),
    }
    if section.format == "debezium":
        options["debezium"] = section.debezium.model_dump_json(exclude_none=True)
    return {key: str(value) for key, value in options.items()}


def _set_aside_options(pipeline: PipelineSection, directory: Path) -> dict[str, str]:
    """Rows that cannot become events are kept with the other dead letters."""
    letters = pipeline.dead_letters
    return {
        "deadLetters": str(directory / DEAD_LETTERS),
        "maxDeadLetters": str(letters.max_rows),
        "maxDeadLetterBytes": str(letters.max_bytes),
    }


def _fed_by_cdc(config: Config) -> set[str]:
    """Destinations that a single CDC pipeline, and no other pipeline, writes to."""
    writers = [(d, p.source) for p in config.pipelines.values() if p.enabled for d in p.destinations]
    counts = Counter(destination for destination, _ in writers)
    return {d for d, source in writers if counts[d] == 1 and config.sources[source].type == "postgres-cdc"}


def _destination(
    name: str,
    section: DestinationSection,
    config: Config,
    nats_url: str | None,
    postgres_url: str | None,
    *,
    exclusive: bool,
) -> Destination:
    match section:
        case NatsDestinationSection():
            return _nats_destination(name, section, nats_options(section, config.nats, nats_url), is_alone=exclusive)
        case MemoryDestinationSection() | ConsoleDestinationSection() | DiscardDestinationSection():
            return _plain_destination(name, section)
        case KafkaDestinationSection():
            return kafka_destination(name, section, is_alone=exclusive)
        case BrokerDestinationSection():
            return broker_destination(name, section, url=postgres_url or "", is_alone=exclusive)
        case EventLogDestinationSection():
            return event_log_destination(
                name,
                section,
                data_dir=config.project.data_dir,
                master=config.spark.master,
                is_alone=exclusive,
            )
        case LogDestinationSection():
            return log_destination(name, section, url=postgres_url or "", is_alone=exclusive)
        case TableDestinationSection():
            writers = [each for each in config.pipelines.values() if name in each.destinations]
            has_streams = any(each.names_streams for each in writers)
            return table_destination(name, section, config.project.data_dir, has_streams=has_streams)
        case IggyDestinationSection():
            return iggy_destination(name, section)
        case WebhookDestinationSection():
            return webhook_destination(name, section)
        case PluginDestinationSection():
            directory = config.project.data_dir / "destinations" / name
            return plugin_destination(section.plugin, section.options, _plugin_context(name, config, directory))
        case _:
            assert_never(section)


def _plain_destination(
    name: str, section: MemoryDestinationSection | ConsoleDestinationSection | DiscardDestinationSection
) -> Destination:
    match section:
        case MemoryDestinationSection():
            return MemoryDestination(name, section.max_rows)
        case ConsoleDestinationSection():
            return ConsoleDestination(name, section.max_rows_per_batch)
        case DiscardDestinationSection():
            return DiscardDestination(name)


def _nats_destination(
    name: str, section: NatsDestinationSection, options: NatsOptions, *, is_alone: bool
) -> NatsDestination:
    exclusive = is_alone if section.exclusive is None else section.exclusive
    return NatsDestination(name, options, exclusive, zstd=section.compression == "zstd")


def nats_options(section: NatsDestinationSection, server: NatsSection, nats_url: str | None) -> NatsOptions:
    """The stream from the destination, address and credentials from `[nats]` unless the destination has its own."""
    url = section.url.get_secret_value() if section.url else nats_url
    return NatsOptions(
        url=url or server.url.get_secret_value(),
        stream=section.stream,
        subjects=section.subjects,
        storage=section.storage,
        replicas=section.replicas,
        max_age_s=section.max_age,
        max_bytes=-1 if section.max_bytes == 0 else section.max_bytes,
        discard=section.discard,
        duplicate_window_s=section.duplicate_window,
        window=section.window,
        ack_timeout_s=section.ack_timeout,
        **nats_credentials(server),
    )


def nats_credentials(server: NatsSection) -> dict[str, Any]:
    """The part of `NatsOptions` that says who we are."""
    secrets = {"password": server.password, "token": server.token, "nkey_seed": server.nkey_seed}
    files = {
        "creds_file": server.credentials,
        "tls_ca": server.tls_ca,
        "tls_cert": server.tls_cert,
        "tls_key": server.tls_key,
    }
    return {
        "user": server.user or "",
        "tls_first": server.tls_first,
        **{name: secret.get_secret_value() for name, secret in secrets.items() if secret},
        **{name: str(path) for name, path in files.items() if path},
    }
