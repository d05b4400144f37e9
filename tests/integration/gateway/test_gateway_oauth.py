"""Tokens as logins of real clients: keys that change, tokens that end."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError, Producer

from headgate.gateway.options import OAuthOptions
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import METADATA, MetadataRequest
from headgate.wire.kafka.messages.session import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.gateway.raw import RawClient
from tests.gateway.servers import running
from tests.gateway.tokens import AUDIENCE, ISSUER, Issuer, served
from tests.integration.gateway.test_gateway_audit import lines, told  # noqa: F401  a fixture

TIMEOUT_S = 30.0


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def options(jwks: Path | str, **more: Any) -> OAuthOptions:
    return OAuthOptions(jwks=str(jwks), issuer=ISSUER, audience=AUDIENCE, **more)


def bearer(client: RawClient, token: str) -> Any:
    client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    return client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=message))


def is_let_in(port: int, token: str) -> bool:
    with RawClient(port) as client:
        return bool(bearer(client, token).session_lifetime_ms)


def wait_for_login(port: int, issuer: Issuer, *, works: bool = True) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while is_let_in(port, issuer.token()) is not works:
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)


def test_librdkafka_writes_over_many_tokens(
    fresh_database: str,
    tmp_path: Path,
    issuer: Issuer,
    topic: str,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    failures: list[object] = []
    with running(fresh_database, oauth=options(issuer.file(tmp_path))) as gateway:
        producer = Producer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (issuer.token(lifetime_s=3), time.time() + 3),
                "error_cb": failures.append,
            }
        )
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            producer.produce(topic, b"v", on_delivery=lambda error, _: failures.append(error) if error else None)
            assert producer.flush(TIMEOUT_S) == 0
            threading.Event().wait(0.05)
    assert failures == []
    logins = told(lines, "login")
    assert (logins[0]["principal"], logins[0]["mechanism"]) == ("User:alice", "OAUTHBEARER")
    assert any(each["again"] for each in logins)
    assert told(lines, "ended") == []


def test_aiokafka(fresh_database: str, tmp_path: Path, issuer: Issuer, topic: str) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token()

    async def write(bootstrap: str) -> int:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        ) as producer:
            offset: int = (await producer.send_and_wait(topic, b"x")).offset
            return offset

    with running(fresh_database, oauth=options(issuer.file(tmp_path))) as gateway:
        assert asyncio.run(write(gateway.bootstrap)) == 0


def test_librdkafka_hears_why_a_token_is_refused(fresh_database: str, tmp_path: Path, issuer: Issuer) -> None:
    errors: list[KafkaError] = []
    with running(fresh_database, oauth=options(issuer.file(tmp_path))) as gateway:
        producer = Producer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (issuer.token(aud="other"), time.time() + 300),
                "error_cb": errors.append,
            }
        )
        while not errors:
            producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "aud" in errors[0].str()


def test_a_token_that_ends_ends_its_connection_and_a_shorter_rule_counts(
    fresh_database: str, tmp_path: Path, issuer: Issuer
) -> None:
    with running(fresh_database, oauth=options(issuer.file(tmp_path)), max_reauth_s=100) as gateway:
        with RawClient(gateway.port) as client:
            assert 99_000 < bearer(client, issuer.token()).session_lifetime_ms <= 100_000
            assert client.ask(METADATA, 9, MetadataRequest()).brokers
            assert bearer(client, issuer.token(sub="bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with RawClient(gateway.port) as client:
            lifetime_ms = bearer(client, issuer.token(lifetime_s=2)).session_lifetime_ms
            assert 0 < lifetime_ms <= 2000
            threading.Event().wait(lifetime_ms / 1000 + 0.01)
            client.send(METADATA, 9, MetadataRequest())
            assert client.receive_frame() is None


def test_keys_that_change_in_their_file_count_soon(fresh_database: str, tmp_path: Path, issuer: Issuer) -> None:
    second = Issuer("second")
    file = issuer.file(tmp_path)
    with running(fresh_database, oauth=options(file)) as gateway:
        wait_for_login(gateway.port, issuer)
        file.write_bytes(second.key_set())
        wait_for_login(gateway.port, second)
        wait_for_login(gateway.port, issuer, works=False)
        file.write_bytes(b"nonsense")
        while "oauth keys" not in gateway.gateway.told()["troubles"]:
            threading.Event().wait(0.05)
        assert is_let_in(gateway.port, second.token())


def test_an_issuer_that_is_away_is_told_and_stops_nobody_else(fresh_database: str, issuer: Issuer) -> None:
    with served({"/keys": issuer.key_set()}) as (url, _):
        pass
    users = {"bob": "correct horse"}
    with running(fresh_database, users=users, oauth=options(f"{url}/keys", allow_private=True)) as gateway:
        with RawClient(gateway.port) as client:
            answer = bearer(client, issuer.token())
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "oauth keys" in gateway.gateway.told()["troubles"]
        with RawClient(gateway.port) as client:
            client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            login = SaslAuthenticateRequest(auth_bytes=b"\0bob\0correct horse")
            assert client.ask(SASL_AUTHENTICATE, 2, login).error_code == 0


def test_keys_come_from_a_server(fresh_database: str, issuer: Issuer) -> None:
    with (
        served({"/keys": issuer.key_set()}) as (url, _),
        running(fresh_database, oauth=options(f"{url}/keys", allow_private=True)) as gateway,
    ):
        assert is_let_in(gateway.port, issuer.token())
