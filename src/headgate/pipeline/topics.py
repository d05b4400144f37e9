"""From the configuration to the sources that read streams: of Kafka, of the log, of the broker and of a relay."""

from __future__ import annotations

import json
from pathlib import Path

from headgate.config.sources import AtprotoSourceSection, BrokerSourceSection, KafkaSourceSection, LogSourceSection
from headgate.sources.atproto.source import AtprotoSource
from headgate.sources.broker.source import BrokerSource
from headgate.sources.kafka.source import KafkaSource
from headgate.sources.log.source import LogSource

__all__ = ["atproto_source", "broker_source", "kafka_source", "log_source"]


def kafka_source(name: str, section: KafkaSourceSection, *, origin: str) -> KafkaSource:
    password = section.password.get_secret_value() if section.password else None
    settings = {
        "bootstrap.servers": section.servers,
        "security.protocol": section.security_protocol,
        "sasl.mechanism": section.sasl_mechanism,
        "sasl.username": section.user,
        "sasl.password": password,
        "ssl.ca.location": section.tls_ca,
        "ssl.certificate.location": section.tls_cert,
        "ssl.key.location": section.tls_key,
        **{key: value.get_secret_value() for key, value in section.settings.items()},
    }
    options = {
        **_reading(section),
        "groupId": section.group,
        "requestTimeout": round(section.request_timeout * 1000),
        **{f"kafka.{key}": value for key, value in settings.items() if value is not None},
    }
    return KafkaSource(name, {key: str(value) for key, value in options.items()}, origin)


def log_source(name: str, section: LogSourceSection, *, url: str, origin: str) -> LogSource:
    options = {**_reading(section), "url": url}
    return LogSource(name, {key: str(value) for key, value in options.items()}, origin)


def broker_source(name: str, section: BrokerSourceSection, *, url: str, origin: str, owner: str) -> BrokerSource:
    options = {
        "url": url,
        "schema": section.broker_schema,
        "group": section.group,
        "owner": owner,
        "subscribe": ",".join(section.topics),
        "condition": section.condition,
        "params": json.dumps(section.params),
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "minPartitions": section.partitions,
        "pollInterval": round(section.poll_interval * 1000),
        "failOnDataLoss": str(section.fail_on_data_loss).lower(),
    }
    return BrokerSource(name, {key: str(value) for key, value in options.items()}, origin)


def atproto_source(name: str, section: AtprotoSourceSection, *, origin: str, spool: Path) -> AtprotoSource:
    place = {"url": section.url, "spool": spool} if section.path is None else {"path": section.path.absolute()}
    options = {
        **place,
        "startingOffsets": section.start_at,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "maxSpoolBytes": section.max_spool_bytes,
        "minPartitions": section.partitions,
        "failOnDataLoss": str(section.fail_on_data_loss).lower(),
    }
    return AtprotoSource(name, {key: str(value) for key, value in options.items()}, origin)


def _reading(section: KafkaSourceSection | LogSourceSection) -> dict[str, object]:
    return {
        "subscribe": ",".join(section.topics),
        "subscribePattern": section.topic_pattern,
        "startingOffsets": section.start_at,
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "minPartitions": section.partitions,
        "pollInterval": round(section.poll_interval * 1000),
        "failOnDataLoss": str(section.fail_on_data_loss).lower(),
    }
