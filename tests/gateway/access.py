"""Clients that log in, and ACLs, for tests of what clients may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from confluent_kafka import admin as untyped

from headgate.gateway.access import AclAuthority
from headgate.wire.kafka.messages.session import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread

__all__ = ["TIMEOUT_S", "USERS", "acl", "admin_of", "as_user", "change", "grant", "kafka", "login"]

TIMEOUT_S = 30.0
USERS = {name: f"{name}-s3cret" for name in ("admin", "alice", "bob", "eve")}
kafka: Any = untyped  # its stubs leave out most names


def as_user(gateway: GatewayThread, user: str, **more: Any) -> dict[str, Any]:
    """The settings of librdkafka with which somebody logs in."""
    return {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
        **more,
    }


def admin_of(gateway: GatewayThread, user: str) -> Any:
    return kafka.AdminClient(as_user(gateway, user))


@contextmanager
def login(gateway: GatewayThread, user: str) -> Iterator[RawClient]:
    """A raw connection of somebody."""
    with RawClient(gateway.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        message = f"\0{user}\0{USERS[user]}".encode()
        answer = client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=message))
        assert answer.error_code == 0
        yield client


def acl(kind: str, name: str, who: str, operation: str, *, pattern: str = "LITERAL", permission: str = "ALLOW") -> Any:
    """An ACL of librdkafka's admin client."""
    return kafka.AclBinding(
        getattr(kafka.ResourceType, {"CLUSTER": "BROKER"}.get(kind, kind)),
        name,
        getattr(kafka.ResourcePatternType, pattern),
        f"User:{who}",
        "*",
        getattr(kafka.AclOperation, operation),
        getattr(kafka.AclPermissionType, permission),
    )


def grant(gateway: GatewayThread, *rows: tuple[str, str, str, str, str]) -> None:
    """Write ACLs with SQL: kind, pattern, name, user, operation; a minus before the operation denies it."""
    for kind, pattern, name, user, operation in rows:
        permission = "DENY" if operation.startswith("-") else "ALLOW"
        values = [kind, pattern, name, f"User:{user}", "*", operation.removeprefix("-"), permission]
        change(
            gateway,
            "insert into kafka.acls (resource_type, pattern_type, resource_name, principal, host, operation,"
            " permission) values (%s, %s, %s, %s, %s, %s, %s)",
            *values,
        )


def change(gateway: GatewayThread, statement: LiteralString, *values: str) -> None:
    """Change rights with SQL; when it returns the gateway knows."""
    with psycopg.connect(gateway.gateway.options.postgres_url, autocommit=True) as connection:
        connection.execute(statement, values)
    authority = gateway.gateway.services.authority
    assert isinstance(authority, AclAuthority)
    gateway.call(authority.refresh())
