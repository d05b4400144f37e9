"""From the configuration to a `kafka` destination."""

from __future__ import annotations

from headgate.destinations.context import DestinationContext, revealed
from headgate.destinations.kafka.destination import KafkaDestination
from headgate.destinations.kafka.options import KafkaOptions
from headgate.destinations.kafka.section import KafkaDestinationSection

__all__ = ["build"]


def build(section: KafkaDestinationSection, context: DestinationContext) -> KafkaDestination:
    exclusive = context.exclusive(section.exclusive)
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
        password=revealed(section.password),
        tls_ca=str(section.tls_ca or ""),
        tls_cert=str(section.tls_cert or ""),
        tls_key=str(section.tls_key or ""),
        settings=tuple((key, value.get_secret_value()) for key, value in section.settings.items()),
    )
    return KafkaDestination(context.name, options, exclusive)
