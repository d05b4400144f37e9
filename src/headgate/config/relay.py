"""The table `[relay]`: a relay of the AT Protocol."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from headgate.config.base import Duration, SecretText, Section, Size

__all__ = ["RelaySection"]


# An address, or a range of them; kept as it is written.
Network = Annotated[str, AfterValidator(lambda text: str(ip_network(text)))]


class RelaySection(Section):
    """The relay: hosts in, one verified stream out."""

    enabled: bool = Field(False, description="Whether `headgate run` starts it, in a process of its own.")
    data_dir: Path | None = Field(None, description="Log, store and index; `relay` in the project's unless given.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(2470, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    token: SecretText | None = Field(None, min_length=8, description="Bearer token of operators; none: no operators.")
    token_file: Path | None = Field(None, description="Read `token` from this file.")
    store: SecretText | None = Field(None, description="A `postgresql://` URL; SQLite in `data_dir` unless given.")
    store_file: Path | None = Field(None, description="Read `store` from this file.")
    crawl: tuple[str, ...] = Field((), description='Hosts to follow: `["pds.example"]`. Others ask by themselves.')
    bootstrap: str = Field("", pattern=r"^(https?://.+)?$", description="A relay whose hosts to follow, too.")
    trusted_domains: tuple[str, ...] = Field((), description="Hosts in these may have many accounts.")
    plc_url: str = Field("https://plc.directory", pattern=r"^https?://.+$", description="The directory of did:plc.")
    policy: Literal["strict", "lenient"] = Field(
        "strict", description="`lenient` lets hosts of before Sync 1.1 through; signatures are checked all the same."
    )
    workers: int = Field(0, ge=0, le=64, description="Processes that validate; 0: the relay's own.")
    retention: Duration = Field(72 * 3600.0, description="How long events are kept for those who come back.")
    max_log_bytes: Size = Field(0, description="How much of them at most; 0: no limit.")
    max_connections: int = Field(1000, ge=1, description="Consumers at a time; further ones are refused.")
    max_per_address: int = Field(100, ge=0, description="Of them, from one address; 0: no limit.")
    proxies: tuple[Network, ...] = Field(
        ("127.0.0.0/8", "::1/128"), description="Addresses of proxies, whose `X-Forwarded-For` is believed."
    )
    max_buffer: Size = Field(16 << 20, ge=1 << 16, description="What may wait for a consumer; then it is cut off.")
    backlog: bool = Field(False, description="Follow new hosts from their oldest event, not from now on.")
    allow_private: bool = Field(False, description="Hosts on private addresses, without TLS: for trying.")
