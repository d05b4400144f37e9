"""The table `[registry]`: a schema registry stored in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from headgate.config.base import SecretText, Section
from headgate.config.gateway import long_enough
from headgate.runtime.access import is_loopback

__all__ = ["RegistrySection"]


class RegistrySection(Section):
    """The schema registry: Confluent's clients keep Avro, JSON and Protobuf schemas in PostgreSQL."""

    enabled: bool = Field(False, description="Whether `headgate run` starts it, in a process of its own.")
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    host: str = Field("127.0.0.1", description="Address to listen on. Other than loopback, `users` are required.")
    port: int = Field(8081, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    users: dict[str, Annotated[SecretText, AfterValidator(long_enough)]] = Field(
        default_factory=dict, description="Names and passwords, for HTTP's basic authentication. None: anybody may ask."
    )
    tls_cert: Path | None = Field(None, description="Certificate (PEM). With it the port speaks HTTPS only.")
    tls_key: Path | None = Field(None, description="Key of the certificate (PEM).")
    max_connections: int = Field(1000, ge=1, description="Further ones are refused.")

    @model_validator(mode="after")
    def _public_needs_users(self) -> RegistrySection:
        if not is_loopback(self.host) and not self.users:
            raise ValueError(
                f"host {self.host} is not loopback, so users are required: add a table [registry.users] with passwords"
            )
        if any(":" in name for name in self.users):
            raise ValueError("a name in users has a colon in it, which basic authentication cannot send")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both or neither")
        return self
