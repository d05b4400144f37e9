"""The table `[broker]`: the doors of the message broker that is in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from headgate.config.base import Duration, SecretText, Section, Size
from headgate.runtime.access import is_loopback

if TYPE_CHECKING:
    from headgate.broker.http.options import BrokerServerOptions

__all__ = ["BrokerSection"]


class BrokerSection(Section):
    """The broker: its events moved on, over HTTP as they come, and to webhooks."""

    enabled: bool = Field(False, description="Whether `headgate run` starts it, in a process of its own.")
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    listen_url: SecretText | None = Field(None, description="A direct address, if `url` is that of a pooler.")
    listen_url_file: Path | None = Field(None, description="Read `listen_url` from this file.")
    listen: bool = Field(True, description="False: look for events again and again, as behind a pooler alone.")
    broker_schema: str = Field("headgate", pattern=r"^[a-z_][a-z0-9_]{0,39}$", description="The broker's schema.")
    host: str = Field("127.0.0.1", description="Address to listen on. Other than loopback, `token` is required.")
    port: int = Field(8720, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: SecretText | None = Field(None, min_length=1, description="Bearer token that every request must carry.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    origins: list[str] = Field([], description="Web pages that may listen from a browser: `https://shop.example`.")
    sse: bool = Field(True, description="Serve `GET /events`.")
    webhooks: bool = Field(True, description="Deliver to webhooks.")
    allow_private: bool = Field(False, description="Webhooks may go to private and loopback addresses.")
    max_connections: int = Field(1000, ge=1, description="Listeners at a time; further ones are refused.")
    max_buffer: Size = Field(1 << 20, ge=1 << 10, description="What may wait for one listener; then it is cut off.")
    expiry: Duration = Field(300.0, ge=1, description="How long events are kept for listeners that have all gone.")

    @model_validator(mode="after")
    def _public_needs_token(self) -> BrokerSection:
        if not is_loopback(self.host) and self.token is None:
            raise ValueError(f"host {self.host} is not loopback, so a token is required: set token or token_file")
        return self

    def options(self, postgres_url: str) -> BrokerServerOptions:
        """What the process is told; the database is that of `[postgres]` unless there is another one."""
        # Every command reads the configuration, and most have no use for the broker's 20 MB.
        from headgate.broker.database import Connecting
        from headgate.broker.http.options import BrokerServerOptions, StreamLimits

        return BrokerServerOptions(
            postgres_url=self.url.get_secret_value() if self.url else postgres_url,
            connecting=Connecting(
                listen=self.listen, listen_url=self.listen_url.get_secret_value() if self.listen_url else None
            ),
            schema=self.broker_schema,
            host=self.host,
            port=self.port,
            token=self.token.get_secret_value() if self.token else None,
            origins=tuple(self.origins),
            sse=self.sse,
            webhooks=self.webhooks,
            allow_private=self.allow_private,
            limits=StreamLimits(connections=self.max_connections, buffer_bytes=self.max_buffer, expiry_s=self.expiry),
        )
