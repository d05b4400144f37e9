"""From the configuration to a `kafka` source."""

from __future__ import annotations

from headgate.config.options import spark_options
from headgate.sources.context import SourceContext
from headgate.sources.kafka.section import KafkaSourceSection
from headgate.sources.kafka.source import KafkaSource

__all__ = ["build"]


def build(section: KafkaSourceSection, context: SourceContext) -> KafkaSource:
    settings = {f"kafka.{key}": str(value) for key, value in _client_settings(section).items() if value is not None}
    return KafkaSource(context.name, spark_options(section) | settings, context.origin)


def _client_settings(section: KafkaSourceSection) -> dict[str, object]:
    """What librdkafka calls the keys of a connection."""
    return {
        "bootstrap.servers": section.servers,
        "security.protocol": section.security_protocol,
        "sasl.mechanism": section.sasl_mechanism,
        "sasl.username": section.user,
        "sasl.password": section.password.get_secret_value() if section.password else None,
        "ssl.ca.location": section.tls_ca,
        "ssl.certificate.location": section.tls_cert,
        "ssl.key.location": section.tls_key,
        **{key: value.get_secret_value() for key, value in section.settings.items()},
    }
