"""From the configuration to the destinations `broker`, `eventlog`, `kafka`, `log`, `table` and `iggy`."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from headgate.config.destinations import (
    BrokerDestinationSection,
    EventLogDestinationSection,
    IggyDestinationSection,
    KafkaDestinationSection,
    LogDestinationSection,
    TableDestinationSection,
)
from headgate.destinations.broker import BrokerDestination
from headgate.destinations.eventlog import EventLogDestination
from headgate.destinations.iggy import IggyDestination, IggyOptions
from headgate.destinations.kafka import KafkaDestination, KafkaOptions
from headgate.destinations.log import LogDestination
from headgate.destinations.table import TableDestination
from headgate.eventlog import LogOptions
from headgate.model import ConfigError

__all__ = [
    "broker_destination",
    "event_log_destination",
    "event_log_path",
    "iggy_destination",
    "kafka_destination",
    "log_destination",
    "table_destination",
]


def kafka_destination(name: str, section: KafkaDestinationSection, *, is_alone: bool) -> KafkaDestination:
    """`is_alone`: one CDC pipeline writes to it, and nobody else; only then is there one order of all rows."""
    exclusive = _exclusive(name, section.exclusive, is_alone)
    options = KafkaOptions(
        servers=section.servers,
        topic=section.topic,
        compression=section.compression,
        linger_s=section.linger,
        max_message_bytes=section.max_message_bytes,
        queue_bytes=section.queue_bytes,
        delivery_timeout_s=section.delivery_timeout,
        connect_timeout_s=section.connect_timeout,
        security_protocol=section.security_protocol,
        sasl_mechanism=section.sasl_mechanism or "",
        user=section.user or "",
        password=_revealed(section.password),
        tls_ca=str(section.tls_ca or ""),
        tls_cert=str(section.tls_cert or ""),
        tls_key=str(section.tls_key or ""),
        settings=tuple((key, value.get_secret_value()) for key, value in section.settings.items()),
    )
    return KafkaDestination(name, options, exclusive)


def log_destination(name: str, section: LogDestinationSection, *, url: str, is_alone: bool) -> LogDestination:
    own = _revealed(section.url) or url
    exclusive = _exclusive(name, section.exclusive, is_alone)
    return LogDestination(name, own, section.topic, section.partitions, exclusive)


def broker_destination(name: str, section: BrokerDestinationSection, *, url: str, is_alone: bool) -> BrokerDestination:
    own = _revealed(section.url) or url
    exclusive = _exclusive(name, section.exclusive, is_alone)
    return BrokerDestination(name, own, section.broker_schema, section.topic, section.payload, exclusive)


def event_log_destination(
    name: str, section: EventLogDestinationSection, *, data_dir: Path, master: str, is_alone: bool
) -> EventLogDestination:
    if not master.startswith("local"):
        raise ConfigError(
            "an event log is written by tasks on the machine that has its files",
            where=f"destinations.{name}",
            remedy='set spark.master to "local[N]", or choose another destination, such as kafka or nats',
        )
    options = LogOptions(section.segment_events, section.segment_bytes, section.max_age, section.max_bytes)
    path = event_log_path(name, section, data_dir)
    return EventLogDestination(name, str(path), section.topic, options, _exclusive(name, section.exclusive, is_alone))


def event_log_path(name: str, section: EventLogDestinationSection, data_dir: Path) -> Path:
    return data_dir / (section.path or Path("eventlogs") / name)


def _exclusive(name: str, wanted: bool | None, is_alone: bool) -> bool:
    if wanted and not is_alone:
        raise ConfigError(
            "exclusive needs rows in one order, and no other writer",
            where=f"destinations.{name}.exclusive",
            remedy="feed the destination by one postgres-cdc pipeline, or remove exclusive",
        )
    return is_alone if wanted is None else wanted


def table_destination(
    name: str, section: TableDestinationSection, data_dir: Path, *, has_streams: bool
) -> TableDestination:
    path = _revealed(section.path) or f"tables/{name}"
    return TableDestination(name, path if "://" in path else str(data_dir / path), section.compression, has_streams)


def iggy_destination(name: str, section: IggyDestinationSection) -> IggyDestination:
    options = IggyOptions(
        server=section.server,
        stream=section.stream,
        mode=section.mode,
        user=section.user or "",
        password=_revealed(section.password),
        token=_revealed(section.token),
        tls=section.tls,
        tls_domain=section.tls_domain or "",
        tls_ca=str(section.tls_ca or ""),
        max_rows_per_request=section.max_rows_per_request,
        connect_timeout_s=section.connect_timeout,
        send_timeout_s=section.send_timeout,
    )
    return IggyDestination(name, options)


def _revealed(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""
