"""How to reach an Iggy server and how to write to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headgate.model import ConfigError, DataError, DependencyError

__all__ = ["IggyOptions", "check_name", "sdk"]

_MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class IggyOptions:
    """Connection and sending settings. Immutable, picklable, and usable as a cache key."""

    server: str = "127.0.0.1:8090"
    stream: str = "headgate"  # for rows that name none
    mode: str = "direct"
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)  # a personal access token, in place of user and password
    tls: bool = False
    tls_domain: str = ""
    tls_ca: str = ""
    max_rows_per_request: int = 1000
    connect_timeout_s: float = 5.0
    send_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        _require(self.mode == "direct", "mode", "use direct: in the background, an acknowledgement is a promise")
        _require(bool(self.server), "server", "name the server, such as 127.0.0.1:8090")
        _require(not (self.token and self.user), "token", "set a token or a user, not both")
        _require(self.max_rows_per_request > 0, "max_rows_per_request", "must be positive")
        _require(self.connect_timeout_s > 0, "connect_timeout_s", "must be positive")
        _require(self.send_timeout_s > 0, "send_timeout_s", "must be positive")
        check_name(self.stream, "stream")

    def tcp(self) -> Any:
        """The SDK's settings. It would reconnect for ever, so it must not: a new client is made instead."""
        iggy = sdk()
        try:
            return iggy.TcpConfig(
                server_address=self.server,
                auto_login=self._login(iggy),
                reconnection=iggy.TcpReconnectionConfig(enabled=False),
                tls_enabled=self.tls,
                tls_domain=self.tls_domain or None,
                tls_ca_file=self.tls_ca or None,
                nodelay=True,
            )
        except ValueError as error:
            raise ConfigError(
                f"Iggy: {error}", where="server", remedy="write the address as host:port, such as 127.0.0.1:8090"
            ) from None

    def _login(self, iggy: Any) -> Any:
        if self.token:
            return iggy.AutoLogin.personal_access_token(self.token)
        if self.user:
            return iggy.AutoLogin.username_password(self.user, self.password)
        return iggy.AutoLogin.disabled()


def sdk() -> Any:
    """The package `apache_iggy`, which is an extra."""
    try:
        import apache_iggy
    except ImportError:
        raise DependencyError(
            "the package apache-iggy is not installed", remedy="pip install 'headgate[iggy]'"
        ) from None
    return apache_iggy


def check_name(name: str, what: str) -> str:
    """Iggy counts a name's bytes."""
    if not 1 <= len(name.encode()) <= _MAX_NAME_BYTES:
        raise DataError(f"not a name for a {what} in Iggy: {name[:80]!r}", remedy=f"use 1 to {_MAX_NAME_BYTES} bytes")
    return name


def _require(condition: bool, name: str, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"invalid Iggy option {name}", where=name, remedy=remedy)
