"""TLS: certificates that change, certificates of clients, and handshakes that go nowhere."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, Producer

from headgate.model import ConfigError
from headgate.wire.kafka import decode_response, encode_request
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import METADATA, MetadataRequest
from headgate.wire.kafka.messages.session import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.gateway.certificates import Authority, part, write_certificate
from tests.gateway.servers import GatewayThread, running
from tests.integration.gateway.test_gateway_audit import lines, told  # noqa: F401  a fixture
from tests.integration.gateway.test_gateway_security import USERS, round_trip, sasl

TIMEOUT_S = 30.0
Files = tuple[Path, Path]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)


@pytest.fixture
def own(tmp_path: Path) -> Files:
    return write_certificate(tmp_path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def alice(authority: Authority) -> Files:
    return authority.client(part(organization_name="Example"), part(common_name="alice"), file="alice")


@pytest.fixture
def mutual(fresh_database: str, own: Files, authority: Authority) -> Iterator[GatewayThread]:
    with running(
        fresh_database, tls_cert=own[0], tls_key=own[1], tls_client_ca=authority.file, tls_client_auth="require"
    ) as gateway:
        yield gateway


class Client:
    """A TLS connection that speaks Kafka's protocol."""

    def __init__(self, port: int, trusted: Path, shown: Files | None = None) -> None:
        context = ssl.create_default_context(cafile=str(trusted))
        if shown:
            context.load_cert_chain(*shown)
        raw = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        try:
            self.socket = context.wrap_socket(raw, server_hostname="127.0.0.1")
        except BaseException:
            raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, api: Any, version: int, request: Any) -> Any:
        self.socket.sendall(b"".join(encode_request(api, version, 1, "raw", request)))
        size = struct.unpack(">i", self._exactly(4))[0]
        return decode_response(api, version, self._exactly(size))[1]

    def serial(self) -> str:
        shown: Any = self.socket.getpeercert()
        return str(shown["serialNumber"])

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self.socket.recv(size - len(data))
            if not got:
                raise ConnectionResetError
            data += got
        return data


def is_let_in(port: int, trusted: Path, shown: Files | None = None) -> bool:
    """Whether a request is answered: with TLS 1.3 a client hears of a refusal after its own handshake."""
    try:
        with Client(port, trusted, shown) as client:
            return bool(client.ask(METADATA, 9, MetadataRequest()).brokers)
    except OSError:
        return False


def is_over(connection: socket.socket) -> bool:
    """Whether the gateway has closed it; waits for that."""
    with connection:
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


def replace(files: Files, by: Files) -> None:
    """Key first: between the two the pair does not fit."""
    for old, new in ((files[1], by[1]), (files[0], by[0])):
        shutil.copy(new, old.with_suffix(".new"))
        old.with_suffix(".new").replace(old)


def test_a_new_certificate_is_used_and_connections_go_on(fresh_database: str, own: Files, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = write_certificate(tmp_path / "second")
    with running(fresh_database, tls_cert=own[0], tls_key=own[1]) as gateway, ExitStack() as stack:
        before = stack.enter_context(Client(gateway.port, own[0]))
        replace(own, second)
        wait_for(lambda: _serial(gateway.port, second[0]) not in (None, before.serial()), "the new one is not used")
        assert before.ask(METADATA, 9, MetadataRequest()).brokers
        wait_for(lambda: gateway.gateway.told()["troubles"] == {}, "the trouble does not end")


def _serial(port: int, trusted: Path) -> str | None:
    try:
        with Client(port, trusted) as client:
            return client.serial()
    except ssl.SSLError:
        return None


def test_files_that_cannot_be_used_leave_the_old_ones_and_are_told(fresh_database: str, own: Files) -> None:
    good = own[0].read_bytes()
    with running(fresh_database, tls_cert=own[0], tls_key=own[1]) as gateway:
        serial = _serial(gateway.port, own[0])
        trusted = own[0].with_name("trusted.crt")
        trusted.write_bytes(good)
        for broken in (b"", b"not a certificate", good[: len(good) // 2], None):
            if broken is None:
                own[0].unlink()
            else:
                own[0].write_bytes(broken)
            gateway.gateway.reload()
            wait_for(lambda: "certificates" in gateway.gateway.told()["troubles"], "nobody is told")
            assert "stays in use" in gateway.gateway.told()["troubles"]["certificates"]["why"]
            assert _serial(gateway.port, trusted) == serial
            own[0].write_bytes(good)
            wait_for(lambda: gateway.gateway.told()["troubles"] == {}, "the trouble does not end")
        assert _serial(gateway.port, trusted) == serial


def test_a_signal_loads_them_at_once(fresh_database: str, own: Files, tmp_path: Path) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text(
        f'[project]\ndata_dir = "{tmp_path}/data"\n[postgres]\nurl = "{fresh_database}"\n[gateway]\nport = 0\n'
        f'tls_cert = "{own[0]}"\ntls_key = "{own[1]}"\n'
    )
    command = [sys.executable, "-m", "headgate", "gateway", "--config", str(config)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdout.readline()
            process.send_signal(signal.SIGHUP)
            assert any("certificates loaded anew" in line for line in process.stderr)
            assert process.poll() is None
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)


def test_the_subject_is_who_a_client_is(
    mutual: GatewayThread,
    own: Files,
    alice: Files,
    topic: str,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    secure = {"security.protocol": "ssl", "ssl.ca.location": str(own[0])}
    shown = {"ssl.certificate.location": str(alice[0]), "ssl.key.location": str(alice[1])}
    assert round_trip({"bootstrap.servers": mutual.bootstrap} | secure | shown, topic) == [b"secret"]
    login = told(lines, "login")[0]
    assert (login["principal"], login["mechanism"]) == ("User:CN=alice,O=Example", "TLS")


def test_kcat_shows_a_certificate(mutual: GatewayThread, own: Files, alice: Files) -> None:
    options = {
        "security.protocol": "ssl",
        "ssl.ca.location": own[0],
        "ssl.certificate.location": alice[0],
        "ssl.key.location": alice[1],
    }
    more = [word for name, value in options.items() for word in ("-X", f"{name}={value}")]
    done = subprocess.run(
        ["kcat", "-b", mutual.bootstrap, "-L", *more], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert "1 brokers" in done.stdout, done.stderr


def test_without_a_certificate_or_with_one_of_somebody_else_nobody_comes_in(
    mutual: GatewayThread,
    own: Files,
    tmp_path: Path,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "other authority").client(part(common_name="alice"))
    assert not is_let_in(mutual.port, own[0])
    assert not is_let_in(mutual.port, own[0], stranger)
    wait_for(lambda: len(told(lines, "login failed")) >= 2, "nobody is told")
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in told(lines, "login failed")[0]["why"]
    assert "CERTIFICATE_VERIFY_FAILED" in told(lines, "login failed")[1]["why"]


def test_who_shows_none_may_log_in_otherwise_and_a_password_wins(
    fresh_database: str,
    own: Files,
    authority: Authority,
    alice: Files,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    with (
        running(
            fresh_database,
            users={"bob": "correct horse"},
            tls_cert=own[0],
            tls_key=own[1],
            tls_client_ca=authority.file,
            tls_client_auth="request",
            tls_principal="CN",
        ) as gateway,
        ExitStack() as stack,
    ):
        assert not is_let_in(gateway.port, own[0])
        for shown in (None, alice):
            client = stack.enter_context(Client(gateway.port, own[0], shown))
            assert client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
            answer = client.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0bob\0correct horse"))
            assert answer.error_code == 0
            assert client.ask(METADATA, 9, MetadataRequest()).brokers
            again = client.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
            assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert [each["principal"] for each in told(lines, "login")] == ["User:bob", "User:alice", "User:bob"]


def test_a_certificate_that_names_nobody_is_no_login(
    fresh_database: str,
    own: Files,
    authority: Authority,
    lines: pytest.LogCaptureFixture,  # noqa: F811
) -> None:
    two = authority.client(part(common_name="alice"), part(common_name="root"), file="two")
    settings: dict[str, Any] = {"tls_client_ca": authority.file, "tls_client_auth": "require", "tls_principal": "CN"}
    with running(fresh_database, tls_cert=own[0], tls_key=own[1], **settings) as gateway:
        assert not is_let_in(gateway.port, own[0], two)
    assert "names nobody" in told(lines, "login failed")[0]["why"]


def test_an_authority_that_is_taken_away_lets_in_nobody_new(
    mutual: GatewayThread, own: Files, authority: Authority, alice: Files, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with Client(mutual.port, own[0], alice) as before:
        shutil.copy(Authority(tmp_path / "other", "other authority").file, authority.file)
        wait_for(lambda: not is_let_in(mutual.port, own[0], alice), "the old authority is trusted")
        assert before.ask(METADATA, 9, MetadataRequest()).brokers


def test_an_authority_that_is_none(fresh_database: str, own: Files, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"tls_client_ca": tmp_path / "missing", "tls_client_auth": "require"}
    with (
        pytest.raises(ConfigError, match="certificates of clients"),
        running(fresh_database, tls_cert=own[0], tls_key=own[1], **settings),
    ):
        pass


def test_handshakes_that_go_nowhere_are_few_and_end(fresh_database: str, own: Files, topic: str) -> None:
    """Sixty sockets of one address that never say a word, of forty places that there are; others get in."""
    with running(
        fresh_database, tls_cert=own[0], tls_key=own[1], users=USERS, max_connections=40, stall_timeout_s=4
    ) as gateway:
        silent = [socket.create_connection(("127.0.0.1", gateway.port), TIMEOUT_S) for _ in range(60)]
        metrics = gateway.gateway.metrics
        wait_for(lambda: metrics.refused_connections_total >= 60 - 20, "more than half of the places were given away")
        assert metrics.refused_connections_total <= 60 - 20
        for each in silent:
            each.settimeout(TIMEOUT_S)
            assert is_over(each)  # at once, or when its time is over
        settings = sasl(gateway.bootstrap, "SCRAM-SHA-512") | {"security.protocol": "sasl_ssl"}
        assert round_trip(settings | {"ssl.ca.location": str(own[0])}, topic) == [b"secret"]


def test_strangers_leave_room_for_others(fresh_database: str) -> None:
    with running(fresh_database, users=USERS, max_connections=40, stall_timeout_s=60) as gateway:
        silent = [socket.create_connection(("127.0.0.1", gateway.port), TIMEOUT_S) for _ in range(60)]
        wait_for(lambda: gateway.gateway.metrics.refused_connections_total == 40, "there is no limit")
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.settimeout(TIMEOUT_S)
        other.connect(("127.0.0.1", gateway.port))
        other.sendall(b"".join(encode_request(SASL_HANDSHAKE, 1, 1, "raw", SaslHandshakeRequest(mechanism="PLAIN"))))
        assert other.recv(4)
        other.close()
        for each in silent:
            each.close()


def test_handshakes_do_not_hold_up_the_end(fresh_database: str, own: Files) -> None:
    with running(fresh_database, tls_cert=own[0], tls_key=own[1]) as gateway:
        silent = socket.create_connection(("127.0.0.1", gateway.port), TIMEOUT_S)
        silent.settimeout(TIMEOUT_S)
        wait_for(lambda: bool(gateway.gateway._acceptor and gateway.gateway._acceptor._greeting), "no handshake begins")
        began = time.monotonic()
        gateway.stop()
        assert time.monotonic() - began < 5
        assert is_over(silent)


def test_a_client_that_does_not_speak_tls_is_told_nothing(mutual: GatewayThread) -> None:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": mutual.bootstrap, "error_cb": errors.append})
    while not errors:
        producer.poll(0.1)
    assert errors[0].code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
