"""A gateway's options from the configuration file."""

from __future__ import annotations

from headgate.config.gateway import GatewaySection, OAuthSection
from headgate.gateway.options import GatewayOptions, HostPort, OAuthOptions

__all__ = ["options_from"]


def options_from(section: GatewaySection, postgres_url: str) -> GatewayOptions:
    """What `[gateway]` says, with the database to use."""
    advertised = section.advertised_address
    return GatewayOptions(
        postgres_url=postgres_url,
        hosts=section.hosts,
        port=section.port,
        advertised=HostPort(*advertised) if advertised else None,
        users={name: password.get_secret_value() for name, password in section.users.items()},
        tls_cert=section.tls_cert,
        tls_key=section.tls_key,
        tls_client_ca=section.tls_client_ca,
        tls_client_auth=section.tls_client_auth,
        tls_principal=section.tls_principal,
        allow_anonymous=section.allow_anonymous,
        authorization=section.authorization,
        superusers=section.superusers,
        allow_everyone_if_no_acl=section.allow_everyone_if_no_acl,
        auto_create_topics=section.auto_create_topics,
        default_partitions=section.default_partitions,
        max_connections=section.max_connections,
        max_frame_bytes=section.max_request_bytes,
        max_inflight_bytes=section.max_memory,
        max_fetch_bytes=section.max_fetch_bytes,
        idle_timeout_s=section.idle_timeout,
        drain_timeout_s=section.stop_grace,
        audit=section.audit,
        oauth=_oauth(section.oauth),
        max_reauth_s=section.connections_max_reauth,
    )


def _oauth(section: OAuthSection | None) -> OAuthOptions | None:
    if section is None:
        return None
    return OAuthOptions(
        jwks=section.jwks,
        issuer=section.issuer,
        audience=section.audience,
        principal_claim=section.principal_claim,
        algorithms=section.algorithms,
        clock_skew_s=section.clock_skew,
        allow_private=section.allow_private,
    )
