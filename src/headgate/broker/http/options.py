"""What the doors of a broker are told when they open."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headgate.broker.database import Connecting
from headgate.broker.install import DEFAULT_SCHEMA
from headgate.model import ConfigError
from headgate.runtime.access import is_loopback

__all__ = ["BrokerServerOptions", "StreamLimits", "check_origin"]


_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")


def check_origin(origin: str) -> None:
    """Check an allowed origin: scheme and host, lower case, no path; a wildcard is refused."""
    if not _ORIGIN.fullmatch(origin):
        raise ConfigError(
            f"{origin!r} is no origin of a web page", where="broker.origins", remedy='such as "https://shop.example"'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """What listeners may ask for, and how long a stream outlives the last of them."""

    connections: int = 1000
    topics: int = 50
    buffer_events: int = 1000
    buffer_bytes: int = 1 << 20
    heartbeat_s: float = 15.0
    expiry_s: float = 300.0
    retry_ms: int = 1000
    stall_s: float = 30.0  # a connection that takes nothing for so long is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServerOptions:
    """Which doors are open, and to whom. `repr` shows no secrets."""

    postgres_url: str = field(repr=False)
    connecting: Connecting = field(default_factory=Connecting)
    schema: str = DEFAULT_SCHEMA
    host: str = "127.0.0.1"
    port: int = 8720
    token: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()  # web pages that may listen, such as https://shop.example
    sse: bool = True
    webhooks: bool = True
    allow_private: bool = False
    limits: StreamLimits = field(default_factory=StreamLimits)

    def __post_init__(self) -> None:
        for origin in self.origins:
            check_origin(origin)
        if not is_loopback(self.host) and not self.token:
            raise ConfigError(
                f"host {self.host} is not loopback, so a token is required", where="broker.token", remedy="set a token"
            )
