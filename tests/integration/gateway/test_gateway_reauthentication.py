"""Logins that count for a while (KIP-368): clients log in again on their connections, or lose them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import METADATA, MetadataRequest
from headgate.wire.kafka.messages.session import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, running
from tests.integration.gateway.test_gateway_audit import lines, told  # noqa: F401  a fixture
from tests.integration.gateway.test_gateway_security import sasl

TIMEOUT_S = 30.0
USERS = {"alice": "correct horse", "bob": "battery staple"}
LIFETIME_S = 2.0


@pytest.fixture
def gateway(fresh_database: str) -> Iterator[GatewayThread]:
    with running(fresh_database, users=USERS, max_reauth_s=LIFETIME_S) as started:
        yield started


def login(
    client: RawClient, user: str = "alice", *, password: str = "", version: int = 2, mechanism: str = "PLAIN"
) -> Any:
    chosen = client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
    if chosen.error_code:
        return chosen
    message = f"\0{user}\0{password or USERS[user]}".encode()
    return client.ask(SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=message))


def expire(gateway: GatewayThread) -> None:
    """Wait until the login of the one connection counts no more."""

    async def wait() -> None:
        (connection,) = gateway.gateway._connections
        expires_at = connection._context.session.expires_at
        assert expires_at is not None
        await asyncio.sleep(expires_at - asyncio.get_running_loop().time() + 0.001)

    gateway.call(wait())


def test_a_client_is_told_how_long_its_login_counts_and_may_repeat_it(
    gateway: GatewayThread,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    with RawClient(gateway.port) as client:
        for _ in range(3):
            assert login(client).session_lifetime_ms == LIFETIME_S * 1000
            assert client.ask(METADATA, 9, MetadataRequest()).brokers
        expire(gateway)
        assert client.ask(API_VERSIONS, 3, ApiVersionsRequest("raw", "1")).api_keys
        assert login(client).error_code == 0
        assert client.ask(METADATA, 9, MetadataRequest()).brokers
    assert [each["again"] for each in told(lines, "login")] == [False, True, True, True]


def test_a_connection_that_goes_on_without_is_closed(
    gateway: GatewayThread,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    with RawClient(gateway.port) as client:
        assert login(client, version=0).error_code == 0  # which cannot say how long
        expire(gateway)
        client.send(METADATA, 9, MetadataRequest())
        assert client.receive_frame() is None
    assert "expired" in told(lines, "ended")[0]["why"]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"user": "bob"}, ErrorCode.SASL_AUTHENTICATION_FAILED),
        ({"password": "wrong horse"}, ErrorCode.SASL_AUTHENTICATION_FAILED),
        ({"mechanism": "SCRAM-SHA-256"}, ErrorCode.ILLEGAL_SASL_STATE),
    ],
    ids=["user", "password", "mechanism"],
)
def test_who_logs_in_again_is_the_same(gateway: GatewayThread, settings: dict[str, Any], code: ErrorCode) -> None:
    with RawClient(gateway.port) as client:
        login(client)
        assert login(client, **settings).error_code == code
        assert client.receive_frame() is None


def test_a_login_that_counts_for_ever_is_not_repeated(fresh_database: str) -> None:
    with running(fresh_database, users=USERS) as gateway, RawClient(gateway.port) as client:
        assert login(client).session_lifetime_ms == 0
        assert login(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.receive_frame() is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_writes_on_over_many_lifetimes(
    gateway: GatewayThread,
    topic: str,
    mechanism: str,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    failures: list[object] = []
    producer = Producer(sasl(gateway.bootstrap, mechanism) | {"error_cb": failures.append})
    deadline = time.monotonic() + 3 * LIFETIME_S
    while time.monotonic() < deadline:
        producer.produce(topic, b"v", on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(TIMEOUT_S) == 0
        threading.Event().wait(0.05)
    assert failures == []
    assert [each for each in told(lines, "login") if each["again"]]
    assert told(lines, "ended") == []
