"""The table `[gateway]`: a Kafka broker whose log is PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from headgate.config.base import Duration, SecretText, Section, Size
from headgate.runtime.access import is_loopback

__all__ = ["GatewaySection", "OAuthSection", "long_enough"]

_ADVERTISED = r"^([^:\s\[\]]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}$"
_PRINCIPAL = r"^[^:]+:.+$"
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104  named, not bound


def long_enough(secret: SecretStr) -> SecretStr:
    """An environment variable that happens to be empty must not open the door."""
    if len(secret.get_secret_value()) < 8:
        raise ValueError("a password has at least 8 characters")
    return secret


_ALGORITHMS = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # none that signs with a secret, or not at all


class OAuthSection(Section):
    """Tokens as logins (SASL OAUTHBEARER): JSON web tokens of one issuer."""

    jwks: str = Field(description="The issuer's public keys: an https address, or a file with a JWK set.", min_length=1)
    issuer: str = Field(description="What `iss` of a token must be.", min_length=1)
    audience: str = Field(description="What `aud` of a token must be, or contain.", min_length=1)
    principal_claim: str = Field("sub", description="The claim that has the client's name.", min_length=1)
    algorithms: tuple[_ALGORITHMS, ...] = Field(
        ("RS256", "PS256", "ES256"), description="How tokens may be signed.", min_length=1
    )
    clock_skew: Duration = Field(30.0, le=600.0, description="How far the issuer's clock may be off.")
    allow_private: bool = Field(False, description="Whether `jwks` may be http, or at an address that is not public.")


class GatewaySection(Section):
    """The Kafka gateway: clients of Kafka write to and read from PostgreSQL."""

    enabled: bool = Field(False, description="Whether `headgate run` starts it, in a process of its own.")
    host: str | tuple[str, ...] = Field(
        "127.0.0.1",
        description='Address to listen on, or several; `"::"` is all of IPv4 and IPv6. All but loopback need users.',
    )
    port: int = Field(9092, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    advertised: str | None = Field(
        None,
        pattern=_ADVERTISED,
        description="`host:port` that clients are told to connect to; as a rule the address that they reach it by.",
    )
    users: dict[str, Annotated[SecretText, AfterValidator(long_enough)]] = Field(
        default_factory=dict,
        description="Names and passwords, for SASL PLAIN and SCRAM; others are made with `headgate gateway users`.",
    )
    allow_anonymous: bool | None = Field(
        None,
        description="Whether clients may come without a login. Unset: if there are no users and no certificates of"
        " clients, and on loopback only. `true` opens any address; `false` asks for a login in any case.",
    )
    connections_max_reauth: Duration | None = Field(
        None, gt=0, description="How long a login counts; clients repeat it on their connections (KIP-368)."
    )
    tls_cert: Path | None = Field(None, description="Certificate (PEM). With it the port speaks TLS only.")
    tls_key: Path | None = Field(None, description="Key of the certificate (PEM).")
    tls_client_ca: Path | None = Field(None, description="Certificates of those who sign clients' certificates (PEM).")
    tls_client_auth: Literal["none", "request", "require"] = Field(
        "none",
        description="Whether clients show a certificate, which is a login: no, if they have one, or all of them.",
    )
    tls_principal: Literal["DN", "CN"] = Field(
        "DN", description="Name of a client with a certificate: its subject as RFC 2253 has it, or its common name."
    )
    authorization: Literal["none", "acls", "roles"] = Field(
        "none",
        description="What clients may do: everything, what ACLs allow them, or what PostgreSQL's roles are granted.",
    )
    superusers: tuple[Annotated[str, Field(pattern=_PRINCIPAL)], ...] = Field(
        (), description="Principals that may do everything, as `User:alice`."
    )
    allow_everyone_if_no_acl: bool = Field(
        False, description="With ACLs: allow everybody what no ACL is about, which is nothing else."
    )
    auto_create_topics: bool = Field(True, description="Make a topic when a client asks for one that is missing.")
    default_partitions: int = Field(1, ge=1, le=10_000, description="Partitions of a topic that says no number.")
    max_connections: int = Field(1000, ge=1, description="Further ones are closed at once.")
    max_request_bytes: Size = Field(100 << 20, ge=1 << 10, le=1 << 30, description="The largest request.")
    max_memory: Size = Field(
        256 << 20, ge=1 << 20, description="Requests and answers in memory; when they are more, nothing more is read."
    )
    max_fetch_bytes: Size = Field(50 << 20, ge=1 << 10, le=1 << 30, description="The largest answer to a Fetch.")
    idle_timeout: Duration = Field(600.0, gt=0, description="Close connections that are silent for so long.")
    stop_grace: Duration = Field(10.0, description="How long a stop waits for requests that were accepted.")

    oauth: OAuthSection | None = Field(None, description="Tokens as logins; none unless the table is there.")
    audit: bool = Field(True, description="Log logins, refusals and administrative changes as `headgate.audit`.")

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.host,) if isinstance(self.host, str) else self.host

    @property
    def advertised_address(self) -> tuple[str, int] | None:
        """The host without brackets, and the port."""
        if self.advertised is None:
            return None
        host, _, port = self.advertised.rpartition(":")
        return re.sub(r"[\[\]]", "", host), int(port)

    @property
    def is_open(self) -> bool:
        """Whether anybody who can connect may do so without a login."""
        has_login = bool(self.users) or self.oauth is not None or self.tls_client_auth != "none"
        return self.allow_anonymous is True or (self.allow_anonymous is None and not has_login)

    @property
    def public_hosts(self) -> list[str]:
        """Return the addresses to listen on that others can reach."""
        return [host for host in self.hosts if not is_loopback(host)]

    @model_validator(mode="after")
    def _public_needs_users(self) -> GatewaySection:
        if not self.hosts:
            raise ValueError("host is empty: name at least one address")
        if self.public_hosts and self.is_open and not self.allow_anonymous:
            raise ValueError(
                f"host {self.public_hosts[0]} is not loopback, so users are required: add a table [gateway.users] with"
                " passwords, or allow_anonymous = false for users of the database alone, or tls_client_auth, or oauth"
            )
        return self

    @model_validator(mode="after")
    def _rights_count(self) -> GatewaySection:
        """A setting that would do nothing looks as if somebody were kept out."""
        if self.superusers and self.authorization == "none":
            raise ValueError('superusers count with authorization = "acls" or "roles" only: set it, or remove them')
        if self.allow_everyone_if_no_acl and self.authorization != "acls":
            raise ValueError('allow_everyone_if_no_acl counts with authorization = "acls" only')
        return self

    @model_validator(mode="after")
    def _clients_need_an_address(self) -> GatewaySection:
        if self.hosts[0] in _WILDCARDS and self.advertised is None:
            raise ValueError(
                f"host {self.hosts[0]} is no address that a client can connect to: set advertised to host:port"
            )
        return self

    @model_validator(mode="after")
    def _whole_certificate(self) -> GatewaySection:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both or neither")
        if self.tls_client_auth != "none" and (self.tls_cert is None or self.tls_client_ca is None):
            raise ValueError("tls_client_auth needs tls_client_ca, and a certificate of the gateway's own: tls_cert")
        if self.max_memory < self.max_request_bytes:
            raise ValueError("max_memory must have room for one request of max_request_bytes")
        return self
