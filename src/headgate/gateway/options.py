"""What a gateway is told when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from headgate.wire.kafka import MAX_FRAME_BYTES

__all__ = ["Authorization", "GatewayOptions", "HostPort", "OAuthOptions"]

Authorization: TypeAlias = Literal["none", "acls", "roles"]


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host and a port, written as clients write them."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthOptions:
    """Settings of OAUTHBEARER: which tokens are taken as logins, and what must be in them."""

    jwks: str  # a file, or an address
    issuer: str
    audience: str
    principal_claim: str = "sub"
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256")
    clock_skew_s: float = 30.0
    allow_private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The settings of one gateway. The passwords are in `users`, and `repr` does not show them."""

    postgres_url: str = field(repr=False)
    hosts: tuple[str, ...] = ("127.0.0.1",)
    port: int = 9092
    advertised: HostPort | None = None  # none: the first host and the port that was opened
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tls_client_auth: str = "none"  # or "request", or "require"
    tls_principal: str = "DN"  # or "CN"
    allow_anonymous: bool | None = None  # none: if there are no users and no certificates of clients
    authorization: Authorization = "none"
    superusers: tuple[str, ...] = ()  # principals, as `User:alice`
    allow_everyone_if_no_acl: bool = False
    auto_create_topics: bool = True
    default_partitions: int = 1
    max_connections: int = 1000
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_inflight_bytes: int = 256 << 20
    max_fetch_bytes: int = 50 << 20
    idle_timeout_s: float = 600.0
    stall_timeout_s: float = 30.0  # for the rest of a frame, for a reader that takes nothing, and to authenticate
    drain_timeout_s: float = 10.0
    audit: bool = True
    oauth: OAuthOptions | None = None
    max_reauth_s: float | None = None  # how long a login counts; none: as long as its connection lasts

    @property
    def is_guarded(self) -> bool:
        """Whether clients must say who they are."""
        return not self.allow_anonymous and self.knows_clients

    @property
    def knows_clients(self) -> bool:
        """Whether clients can say who they are."""
        has_login = bool(self.users) or self.oauth is not None or self.tls_client_auth != "none"
        return has_login or self.allow_anonymous is not None
