"""How to reach a Kafka cluster: the keys that the source and the destination share."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from headgate.config.base import SecretText, Section

__all__ = ["KafkaConnection"]


class KafkaConnection(Section):
    """Addresses and credentials."""

    servers: str = Field(min_length=1, description="Brokers to begin with: `host:port`, several separated by commas.")
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        "plaintext", description="Encryption and authentication."
    )
    sasl_mechanism: str | None = Field(None, description="`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and others.")
    user: str | None = Field(None, description="User name for SASL.")
    password: SecretText | None = Field(None, description="Password for `user`.")
    password_file: Path | None = Field(None, description="Read `password` from this file.")
    tls_ca: Path | None = Field(None, description="Certificate authority that signed the brokers' certificates.")
    tls_cert: Path | None = Field(None, description="Client certificate.")
    tls_key: Path | None = Field(None, description="Key of the client certificate.")
    settings: dict[str, SecretText] = Field(
        default_factory=dict, description='Any other setting of librdkafka: `{ "client.rack" = "a" }`.'
    )
