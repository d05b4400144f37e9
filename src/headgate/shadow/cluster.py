"""How to reach another Kafka cluster: addresses, encryption, login."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from headgate.model import ConfigError
from headgate.wire.kafka.login import MECHANISMS

__all__ = ["Cluster"]

# Settings of librdkafka's with a meaning for our own client, too.
_ENDPOINT_CHECK = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster as clients reach it. Immutable, picklable, and usable as a cache key."""

    servers: str
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    sasl_mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # librdkafka's, for administration
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.addresses:
            raise _wrong("servers", "name at least one broker, such as 127.0.0.1:9092")
        if self.has_login and self.sasl_mechanism not in MECHANISMS:
            raise _wrong("sasl_mechanism", f"set one of {', '.join(MECHANISMS)}")
        if self.has_login and not self.user:
            raise _wrong("user", "name a user, or use a security_protocol without sasl")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise _wrong("tls_cert", "tls_cert and tls_key go together")

    @classmethod
    def from_librdkafka(cls, settings: Mapping[str, str], timeout_s: float = 10.0) -> Self:
        """Return the cluster that a client of librdkafka's would reach with these settings."""
        own = {
            "bootstrap.servers": "servers",
            "security.protocol": "security_protocol",
            "sasl.mechanism": "sasl_mechanism",
            "sasl.mechanisms": "sasl_mechanism",
            "sasl.username": "user",
            "sasl.password": "password",
            "ssl.ca.location": "tls_ca",
            "ssl.certificate.location": "tls_cert",
            "ssl.key.location": "tls_key",
        }
        given: dict[str, Any] = {own[name]: value for name, value in settings.items() if name in own}
        protocol = str(given.get("security_protocol", "plaintext")).lower()
        more = tuple(sorted((name, value) for name, value in settings.items() if name not in own))
        return cls(**given | {"security_protocol": protocol}, settings=more, timeout_s=timeout_s)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The brokers to begin with."""
        return [_address(text) for part in self.servers.split(",") if (text := part.strip())]

    @property
    def has_login(self) -> bool:
        return self.security_protocol.startswith("sasl")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what connections are encrypted with; None if they are not."""
        if not self.security_protocol.endswith("ssl"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca or None)
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the certificates cannot be used: {error}", where="tls_ca", remedy="correct tls_ca, tls_cert, tls_key"
            ) from None
        context.check_hostname = dict(self.settings).get(_ENDPOINT_CHECK) != "none"
        return context

    def librdkafka_settings(self) -> dict[str, Any]:
        """Return what a client of librdkafka's is started with."""
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
            "client.id": "headgate-shadow",
            "security.protocol": self.security_protocol,
            "socket.timeout.ms": int(self.timeout_s * 1000),
            "log_level": 0,
            **{name: value for name, value in given.items() if value},
            **dict(self.settings),
        }


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise _wrong("servers", f"write host:port, and not {text!r}")
    return host.strip("[]"), int(port)


def _wrong(name: str, remedy: str) -> ConfigError:
    return ConfigError(f"the key {name} does not fit", where=name, remedy=remedy)
