"""What the server of a registry is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headgate.model import ConfigError
from headgate.runtime.access import is_loopback

__all__ = ["RegistryOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Where to listen, and who may come in. `repr` shows no secrets."""

    postgres_url: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8081
    users: dict[str, str] = field(default_factory=dict, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    max_connections: int = 1000

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.users:
            raise ConfigError(
                f"host {self.host} is not loopback, so users are required", where="registry.users", remedy="name some"
            )
