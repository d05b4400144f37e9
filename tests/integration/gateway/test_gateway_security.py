"""Who may speak to the gateway: SASL, TLS, and no way around them."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaProducer

from headgate.embedded import Endpoints
from headgate.gateway.handlers import HANDLERS
from headgate.model import ConfigError
from headgate.wire.kafka import APIS, encode_request
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
from tests.gateway.certificates import write_certificate
from tests.gateway.raw import RawClient
from tests.gateway.servers import GatewayThread, new_database, running

USERS = {"alice": "correct horse", "böb,=": "päss,=word"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BEFORE_LOGIN = {API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE}
TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def guarded(endpoints: Endpoints) -> Iterator[GatewayThread]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url, running(url, users=USERS) as gateway:
        yield gateway


def sasl(bootstrap: str, mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": USERS.get(user, "") if password is None else password,
    }


def round_trip(settings: dict[str, Any], topic: str) -> list[bytes | None]:
    errors: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce(topic, b"secret", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]
    consumer = Consumer(settings | {"group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(1, TIMEOUT_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("user", USERS, ids=["ascii", "odd"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(guarded: GatewayThread, topic: str, mechanism: str, user: str) -> None:
    assert round_trip(sasl(guarded.bootstrap, mechanism, user), topic) == [b"secret"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(guarded: GatewayThread, topic: str, mechanism: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=guarded.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=USERS["alice"],
    )
    with closing(producer):
        assert producer.send(topic, b"x").get(TIMEOUT_S).offset == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(guarded: GatewayThread, topic: str, mechanism: str) -> None:
    async def write() -> int:
        async with AIOKafkaProducer(
            bootstrap_servers=guarded.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=USERS["alice"],
        ) as producer:
            offset: int = (await producer.send_and_wait(topic, b"x")).offset
            return offset

    assert asyncio.run(write()) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong horse"), ("mallory", "correct horse")])
def test_wrong_passwords_are_refused(guarded: GatewayThread, mechanism: str, user: str, password: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(sasl(guarded.bootstrap, mechanism, user, password) | {"error_cb": errors.append})
    while not errors:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


@pytest.mark.parametrize(
    "api",
    [api for api in APIS.values() if api.request in HANDLERS and api not in BEFORE_LOGIN],
    ids=lambda api: api.name,
)
def test_nothing_is_answered_before_the_login(guarded: GatewayThread, api: Any) -> None:
    with RawClient(guarded.port) as client:
        client.send(api, api.last, api.request())
        assert client.receive_frame() is None


def test_a_chosen_mechanism_is_no_login(guarded: GatewayThread) -> None:
    with RawClient(guarded.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        client.send(METADATA, 9, MetadataRequest())
        assert client.receive_frame() is None


def test_half_a_scram_exchange_is_no_login(guarded: GatewayThread) -> None:
    with RawClient(guarded.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        first = client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"))
        assert first.error_code == 0
        client.send(METADATA, 9, MetadataRequest())
        assert client.receive_frame() is None


def test_a_request_behind_a_failing_login_is_not_served(guarded: GatewayThread) -> None:
    with RawClient(guarded.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        login = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
        frames = encode_request(SASL_AUTHENTICATE, 2, 1, "x", login) + encode_request(
            METADATA, 9, 2, "x", MetadataRequest()
        )
        client.socket.sendall(b"".join(frames))
        answers = []
        while (frame := client.receive_frame()) is not None:
            answers.append(struct.unpack(">i", frame[:4])[0])
        assert 2 not in answers


def test_one_try_a_connection(guarded: GatewayThread) -> None:
    with RawClient(guarded.port) as client:
        client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        answer = client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.receive_frame() is None


@pytest.mark.parametrize("mechanism", ["GSSAPI", "", "plain"], ids=["gssapi", "empty", "lower"])
def test_unknown_mechanisms(guarded: GatewayThread, mechanism: str) -> None:
    with RawClient(guarded.port) as client:
        answer = client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == MECHANISMS


def test_authenticate_without_a_handshake(guarded: GatewayThread) -> None:
    with RawClient(guarded.port) as client:
        login = SaslAuthenticateRequest(auth_bytes=b"\0alice\0correct horse")
        assert client.ask(SASL_AUTHENTICATE, 2, login).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.receive_frame() is None


def test_strangers_may_not_send_much(guarded: GatewayThread) -> None:
    with RawClient(guarded.port) as client:
        client.socket.sendall(struct.pack(">i", 1 << 20))
        assert client.receive_frame() is None


def test_strangers_may_not_stay(fresh_database: str) -> None:
    with running(fresh_database, users=USERS, stall_timeout_s=0.5) as gateway, RawClient(gateway.port) as client:
        versions = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        assert client.ask(API_VERSIONS, 3, versions).error_code == 0
        assert client.receive_frame() is None


def test_an_open_gateway_knows_no_login(gateway: GatewayThread) -> None:
    with RawClient(gateway.port) as client:
        answer = client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("users", [{}, USERS], ids=["ssl", "sasl_ssl"])
def test_tls(fresh_database: str, certificate: tuple[Path, Path], topic: str, users: dict[str, str]) -> None:
    cert, key = certificate
    with running(fresh_database, users=users, tls_cert=cert, tls_key=key) as gateway:
        settings = sasl(gateway.bootstrap, "SCRAM-SHA-512") if users else {"bootstrap.servers": gateway.bootstrap}
        secure = {"security.protocol": "sasl_ssl" if users else "ssl", "ssl.ca.location": str(cert)}
        assert round_trip(settings | secure, topic) == [b"secret"]
        with RawClient(gateway.port) as client:  # without TLS
            client.socket.sendall(struct.pack(">ihhih", 10, API_VERSIONS.key, 0, 7, -1))
            assert client.receive_frame() is None


def test_a_certificate_that_is_none(fresh_database: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with (
        pytest.raises(ConfigError, match="certificate cannot be used"),
        running(fresh_database, tls_cert=missing, tls_key=missing),
    ):
        pass


def test_an_old_handshake_is_offered_and_refused(guarded: GatewayThread) -> None:
    """Older librdkafkas log in only where version 0 is offered, and then use 1."""
    with RawClient(guarded.port) as client:
        versions = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        offered = {each.api_key: each.min_version for each in client.ask(API_VERSIONS, 3, versions).api_keys}
        assert offered[SASL_HANDSHAKE.key] == 0
        answer = client.ask(SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.receive_frame() is None


def test_an_open_gateway_that_others_can_reach_says_so_and_lets_in_whoever_logs_in(
    fresh_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The name is one of loopback, which does not look like it."""
    with running(fresh_database, hosts=("LOCALHOST",), users=USERS, allow_anonymous=True) as gateway:
        assert "ANYBODY" in caplog.text
        with RawClient(gateway.port) as client:
            assert client.ask(METADATA, 9, MetadataRequest()).brokers
            client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            login = SaslAuthenticateRequest(auth_bytes=b"\0alice\0correct horse")
            assert client.ask(SASL_AUTHENTICATE, 2, login).error_code == 0
            assert client.ask(METADATA, 9, MetadataRequest()).brokers


def test_without_anonymous_clients_users_of_the_database_suffice(fresh_database: str) -> None:
    with running(fresh_database, allow_anonymous=False) as gateway, RawClient(gateway.port) as client:
        client.send(METADATA, 9, MetadataRequest())
        assert client.receive_frame() is None


def test_the_command_opens_a_gateway_only_when_told_to(tmp_path: Path, fresh_database: str) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text(
        f'[project]\ndata_dir = "{tmp_path}/data"\n[postgres]\nurl = "{fresh_database}"\n[gateway]\nport = 0\n'
    )
    command = [sys.executable, "-m", "headgate", "gateway", "--host", "LOCALHOST", "--config", str(config)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "users are required" in " ".join(refused.stderr.split())
    command += ["--advertised", "LOCALHOST:1", "--allow-anonymous"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any("WARNING: anybody" in line for line in process.stderr)
        finally:
            process.terminate()
            process.communicate(timeout=60)
