"""How to reach a Kafka cluster and how to write to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from headgate.model import ConfigError, DataError

__all__ = ["KafkaOptions"]

# What the promises of this destination rest on is not for others to set.
_OURS = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "delivery.report.only.error",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "message.timeout.ms",
        "partitioner",
        "request.required.acks",
        "transactional.id",
    }
)
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACEHOLDER = re.compile(r"\{(stream|topic)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Connection and publishing settings. Immutable, picklable, and usable as a cache key.

    `settings` are any of librdkafka's. They may hold secrets, so only their names are ever shown.
    """

    servers: str
    topic: str = "{stream}.{topic}"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "zstd"
    linger_s: float = 0.005
    max_message_bytes: int = 1_000_000
    queue_bytes: int = 64 << 20
    delivery_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    sasl_mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        _require(bool(self.servers.strip()), "servers", "name at least one broker, such as 127.0.0.1:9092")
        _require("{topic}" in self.topic, "topic", "the template must contain {topic}")
        _require(self.delivery_timeout_s > 0, "delivery_timeout_s", "must be positive")
        _require(0 <= self.linger_s < self.delivery_timeout_s, "linger_s", "shorter than delivery_timeout_s")
        _require(self.connect_timeout_s > 0, "connect_timeout_s", "must be positive")
        _require(1000 <= self.max_message_bytes <= 1_000_000_000, "max_message_bytes", "from 1000 to 1000000000")
        _require(self.queue_bytes >= 1024, "queue_bytes", "at least 1024")
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_cert", "tls_cert and tls_key go together")
        for name, _ in self.settings:
            _require(name not in _OURS, f"settings.{name}", "headgate sets this itself; remove it")

    def __repr__(self) -> str:
        shown = [f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr]
        return f"KafkaOptions({', '.join(shown)}, settings={[name for name, _ in self.settings]})"

    def topic_name(self, stream: str | None, topic: str) -> str:
        """The topic in Kafka for a row's topic in a stream."""
        values = {"stream": stream or "", "topic": topic}
        name = _PLACEHOLDER.sub(lambda match: values[match[1]], self.topic) if stream else topic
        if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise DataError(
                f"not a name for a topic in Kafka: {name[:200]!r}",
                remedy="use letters, digits, dots, dashes and underscores, at most 249; correct the routes or filter",
            )
        return name

    def client_settings(self) -> dict[str, Any]:
        """What every client of the cluster is started with."""
        given = {
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.tls_ca,
            "ssl.certificate.location": self.tls_cert,
            "ssl.key.location": self.tls_key,
        }
        return {
            "bootstrap.servers": self.servers,
            "client.id": "headgate",
            "security.protocol": self.security_protocol,
            "socket.connection.setup.timeout.ms": max(1000, int(self.connect_timeout_s * 1000)),
            **{name: value for name, value in given.items() if value},
            **dict(self.settings),
        }

    def producer_settings(self, *, gapless: bool) -> dict[str, Any]:
        """What a producer is started with.

        `gapless`: nothing is stored behind a message that could not be. A message that is too old to be sent would
        be such a gap, so then none ever is, and the sender keeps the deadline.
        """
        return {
            **self.client_settings(),
            "acks": "all",
            "compression.type": self.compression,
            "delivery.report.only.error": True,
            **({"enable.gapless.guarantee": True} if gapless else {}),
            "enable.idempotence": True,
            "linger.ms": self.linger_s * 1000,
            "message.max.bytes": self.max_message_bytes,
            "message.timeout.ms": 0 if gapless else int(self.delivery_timeout_s * 1000),
            "partitioner": "murmur2_random",
            "queue.buffering.max.kbytes": self.queue_bytes >> 10,
            # How long a topic may be unknown before its messages fail.
            "topic.metadata.propagation.max.ms": int(self.connect_timeout_s * 1000),
        }

    def without_secrets(self, text: str) -> str:
        """A text of librdkafka's, which quotes what it was given."""
        for secret in (self.password, *(value for _, value in self.settings)):
            if len(secret) > 3:
                text = text.replace(secret, "********")
        return text


def _require(condition: bool, name: str, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"invalid Kafka option {name}", where=name, remedy=remedy)
