"""Connecting: credentials, TLS, lists of servers, and servers that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.destinations.nats import Connection, JetStream, NatsOptions, Publisher
from headgate.model import (
    AuthError,
    ConfigError,
    ConnectError,
    DeliveryError,
    DependencyError,
    HeadgateError,
    ProtocolError,
)
from headgate.wire.nats import Msg

from .certificates import Authority, Identity
from .messages import columns, publish_and_flush
from .server import Impostor, NatsServer, free_port

MakeServer = Callable[..., NatsServer]

INFO = b'INFO {"server_id":"X","version":"2.15.1","headers":true,"max_payload":1048576}\r\n'


def answers(options: NatsOptions) -> bool:
    with Connection.open(options) as connection:
        connection.ping(options.connect_timeout_s)
    return True


def test_requests_are_answered_or_nobody_is_there(nats: NatsServer) -> None:
    with Connection.open(nats.options()) as connection:
        assert connection.info.jetstream
        assert b'"limits"' in connection.request("$JS.API.INFO").payload
        nobody = connection.request("nobody.listens", b"x")
        assert nobody.headers.status == 503


def test_a_request_without_an_answer_ends_in_time(nats: NatsServer) -> None:
    with Connection.open(nats.options()) as asker:
        started = time.monotonic()
        # The asker's own inbox has a listener, which does not answer.
        with Connection.open(nats.options()) as other, pytest.raises(ConnectError, match="no answer to"):
            other.request(f"{asker.inbox}.x", timeout_s=0.3)
        assert time.monotonic() - started < 5


def test_nobody_at_the_port() -> None:
    with pytest.raises(ConnectError, match="refused"):
        Connection.open(NatsOptions(stream="S", subjects=("s",), url=f"nats://127.0.0.1:{free_port()}"))


def test_names_that_do_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectError):
        Connection.open(NatsOptions(stream="S", subjects=("s",), url="nats://a..b:1"))

    def fail(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(ConnectError, match="resolve"):
        Connection.open(NatsOptions(stream="S", subjects=("s",), url="nats://no.such.host:1"))


def test_the_servers_of_a_list_are_tried_in_turn(nats: NatsServer) -> None:
    options = replace(nats.options(), url=f"nats://127.0.0.1:{free_port()},{nats.url}")
    assert answers(options)


def test_user_and_password(make_server: MakeServer) -> None:
    server = make_server("authorization { user: me, password: secret-word }")
    assert answers(server.options(user="me", password="secret-word"))
    assert answers(replace(server.options(), url=f"nats://me:secret-word@127.0.0.1:{server.port}"))
    for wrong in (server.options(), server.options(user="me", password="secret-guess")):
        with pytest.raises(AuthError, match="Authorization Violation") as caught:
            Connection.open(wrong)
        assert "secret" not in repr(caught.value) + str(caught.value)


def test_token(make_server: MakeServer) -> None:
    server = make_server("authorization { token: abc }")
    assert answers(server.options(token="abc"))
    with pytest.raises(AuthError):
        Connection.open(server.options(token="abd"))


def test_nkey(make_server: MakeServer) -> None:
    user = Identity.new(20)
    server = make_server(f"authorization {{ users: [ {{ nkey: {user.public} }} ] }}")
    assert answers(server.options(nkey_seed=user.seed))
    with pytest.raises(AuthError):
        Connection.open(server.options(nkey_seed=Identity.new(20).seed))


def test_credentials_file(make_server: MakeServer, tmp_path: Path) -> None:
    operator, account, user = Identity.new(14), Identity.new(0), Identity.new(20)
    limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1}
    account_jwt = operator.sign_jwt(account, "account", limits=limits | {"wildcards": True})
    server = make_server(
        f"operator: {operator.sign_jwt(operator, 'operator')}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {account_jwt} }}\n",
        jetstream=False,
    )
    creds = tmp_path / "user.creds"
    user_jwt = account.sign_jwt(user, "user", subs=-1, data=-1, payload=-1)
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    assert answers(server.options(creds_file=str(creds)))
    with pytest.raises(AuthError):
        Connection.open(server.options())


def tls_config(certificate: str, key: str, extra: str = "") -> str:
    return f'tls {{ cert_file: "{certificate}", key_file: "{key}", {extra} }}'


@pytest.mark.parametrize("first", [False, True])
def test_tls_carries_bulk_both_ways(make_server: MakeServer, tmp_path: Path, first: bool) -> None:
    authority = Authority(tmp_path)
    extra = "handshake_first: true" if first else ""
    server = make_server(tls_config(*authority.issue("server", "127.0.0.1", "localhost"), extra))
    options = server.options(tls_ca=authority.path, tls_first=first)
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
    with Publisher(options) as publisher:
        publisher.publish(*columns(["s.a"] * 30_000, payload=b"t" * 300))
        assert publisher.flush().acked == 30_000


def test_tls_trusts_only_the_named_authority_and_host(make_server: MakeServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", "other CA")
    server = make_server(tls_config(*authority.issue("server", "localhost")))
    assert answers(replace(server.options(tls_ca=authority.path), url=f"tls://localhost:{server.port}"))
    with pytest.raises(AuthError, match="certificate"):
        Connection.open(server.options(tls_ca=authority.path))  # the certificate is not for 127.0.0.1
    with pytest.raises(AuthError, match="certificate"):
        Connection.open(replace(server.options(tls_ca=other.path), url=f"tls://localhost:{server.port}"))
    with pytest.raises(AuthError, match="certificate"):
        Connection.open(server.options())  # the server demands TLS, the system's authorities do not know it


def test_tls_client_certificates(make_server: MakeServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    extra = f'ca_file: "{authority.path}", verify: true'
    server = make_server(tls_config(*authority.issue("server", "127.0.0.1"), extra))
    certificate, key = authority.issue("client")
    assert answers(server.options(tls_ca=authority.path, tls_cert=certificate, tls_key=key))
    with pytest.raises((AuthError, ConnectError)):
        Connection.open(server.options(tls_ca=authority.path))


def test_tls_is_not_silently_left_out(nats: NatsServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(ConnectError, match="does not offer TLS"):
        Connection.open(nats.options(tls_ca=authority.path))
    with pytest.raises(ConnectError):
        Connection.open(nats.options(tls_ca=authority.path, tls_first=True))
    with pytest.raises(ConfigError, match="TLS files"):
        Connection.open(nats.options(tls_ca=str(tmp_path / "absent.pem"), tls_first=True))


def test_a_server_without_jetstream(make_server: MakeServer) -> None:
    server = make_server(jetstream=False)
    with JetStream.open(server.options()) as jetstream, pytest.raises(DependencyError, match="not enabled"):
        jetstream.account()
    with Publisher(server.options()) as publisher:
        publisher.publish(*columns(["s.a"]))
        assert publisher.flush().failures[0].code == 503


def greet_then(*rest: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        connection.sendall(INFO)
        _read_until(connection, b"PING\r\n")
        for piece in rest:
            connection.sendall(piece)
        _read_until(connection, b"\x00never\x00")

    return behave


def say(*pieces: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
        _read_until(connection, b"\x00never\x00")

    return behave


def _read_until(connection: socket.socket, mark: bytes) -> bytes:
    """Read until the mark, or until the other side is gone."""
    seen = b""
    while mark not in seen:
        data = connection.recv(65_536)
        if not data:
            break
        seen += data
    return seen


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (say(b"\x16\x03\x01garbage\r\n"), ProtocolError),
        (say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), ProtocolError),
        (say(b'INFO {"server_id":"X"'), ConnectError),
        (say(), ConnectError),
        (lambda connection: None, ConnectError),
        (say(b"INFO " + b"x" * 200_000), ProtocolError),
        (say(b"PING\r\n"), ProtocolError),
        (say(b"MSG a 1 1\r\nx\r\n"), ProtocolError),
        (say(b'INFO {"server_id":"X","headers":false}\r\n'), DependencyError),
        (say(b'INFO {"server_id":"X","headers":true,"tls_required":true}\r\nPING\r\n'), ProtocolError),
        (say(b'INFO {"server_id":"X","headers":true,"tls_required":true}\r\n'), ConnectError),
        (say(INFO), ConnectError),
        (greet_then(b"-ERR 'Authorization Violation'\r\n"), AuthError),
        (greet_then(b"-ERR 'maximum connections exceeded'\r\n"), HeadgateError),
        (greet_then(b"PONG\r\nrubbish\r\n"), ProtocolError),
    ],
)
def test_impostors_are_a_typed_error_in_time(
    behaviour: Callable[[socket.socket], None], expected: type[HeadgateError]
) -> None:
    started = time.monotonic()
    with Impostor(behaviour) as impostor, pytest.raises(expected) as caught:
        answers(impostor.options(connect_timeout_s=0.5))
    assert time.monotonic() - started < 5
    assert "127.0.0.1" in str(caught.value)


class Counting:
    """An impostor that takes messages and acknowledges the first few."""

    def __init__(self, acknowledge: int = 0, between: bytes = b"") -> None:
        self.received = bytearray()
        self._acknowledge = acknowledge
        self._between = between

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(INFO)
        self.received += _read_until(connection, b"PING\r\n")
        connection.sendall(b"PONG\r\n" + self._between)
        answered = 0
        while data := connection.recv(65_536):
            self.received += data
            replies = [line.split(b" ")[2] for line in bytes(self.received).split(b"\r\n") if line.startswith(b"HPUB ")]
            for reply in replies[answered : self._acknowledge]:
                connection.sendall(b'MSG %s 1 22\r\n{"stream":"S","seq":1}\r\n' % reply)
                answered += 1


def test_no_more_than_the_window_is_in_flight() -> None:
    behaviour = Counting(acknowledge=50)
    with Impostor(behaviour) as impostor:
        publisher = Publisher(impostor.options(window=40, ack_timeout_s=0.5))
        publisher.publish(*columns(["s.a"] * 1_000))
        receipt = publisher.flush()
    assert behaviour.received.count(b"HPUB ") == receipt.sent <= 90
    assert receipt.acked == 50
    assert receipt.failed_rows == tuple(range(50, 1_000))
    with pytest.raises(DeliveryError, match=r"no acknowledgement within 0\.5 s"):
        receipt.raise_for_failures()


def test_no_more_bytes_than_the_window_are_in_flight() -> None:
    behaviour = Counting()
    with Impostor(behaviour) as impostor:
        publisher = Publisher(impostor.options(window_bytes=50_000, ack_timeout_s=0.5))
        publisher.publish(*columns(["s.a"] * 100, payload=b"y" * 9_000))
        receipt = publisher.flush()
    assert receipt.sent == behaviour.received.count(b"HPUB ") == 5
    assert len(receipt.failed_rows) == 100


def test_pings_are_answered_between_frames() -> None:
    behaviour = Counting(acknowledge=30, between=b"PING\r\n" * 3)
    with Impostor(behaviour) as impostor:
        publisher = Publisher(impostor.options(window=10, ack_timeout_s=5.0))
        publisher.publish(*columns(["s.a"] * 30))
        assert publisher.flush().acked == 30
        publisher.close()
    assert behaviour.received.count(b"PONG\r\n") == 3
    assert behaviour.received.count(b"\r\nHPUB ") + behaviour.received.count(b"PONG\r\n") >= 30


def test_a_server_that_stops_reading_is_given_up() -> None:
    def deaf(connection: socket.socket) -> None:
        connection.sendall(INFO)
        _read_until(connection, b"PING\r\n")
        connection.sendall(b"PONG\r\n")
        deaf_until.wait(20)

    deaf_until = threading.Event()
    with Impostor(deaf) as impostor:
        publisher = Publisher(impostor.options(window=1_000_000, window_bytes=1 << 30, ack_timeout_s=0.5))
        with pytest.raises(ConnectError, match="took nothing"):
            publisher.publish(*columns(["s.a"] * 2_000, payload=b"y" * 30_000))
        deaf_until.set()


@pytest.mark.parametrize(
    "answer",
    [
        b'MSG {inbox}.00 1 22\r\n{"stream":"S","seq":1}\r\n' * 2,  # twice for one message
        b'MSG {inbox}.07 1 22\r\n{"stream":"S","seq":1}\r\n',  # for a message that was not sent
        b'MSG {inbox}.xx 1 22\r\n{"stream":"S","seq":1}\r\n',
        b"MSG {inbox}.00 1 2\r\nhi\r\n",
        b'MSG {inbox}.00 1 33\r\n{"type":"ack","seq":10,"msgs":15}\r\n',
        b"\xff\xff\xff\xff\r\n",
    ],
)
def test_answers_that_make_no_sense_are_protocol_errors(answer: bytes) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(INFO)
        greeting = _read_until(connection, b"PING\r\n")
        connection.sendall(b"PONG\r\n")
        inbox = (
            next(line for line in greeting.split(b"\r\n") if line.startswith(b"SUB ")).split()[1].removesuffix(b".>")
        )
        _read_until(connection, b"HPUB")
        connection.sendall(answer.replace(b"{inbox}", inbox))
        _read_until(connection, b"\x00never\x00")

    with Impostor(behave) as impostor:
        publisher = Publisher(impostor.options(window=100, ack_timeout_s=2.0))
        with pytest.raises(ProtocolError) as caught:
            publish_and_flush(publisher, columns(["s.a", "s.b"]))
    assert "127.0.0.1" in str(caught.value)


def test_a_custom_inbox_prefix(nats: NatsServer) -> None:
    with Connection.open(nats.options(inbox_prefix="_INBOX.team")) as connection:
        answer = connection.request("$JS.API.INFO")
    assert isinstance(answer, Msg)
    assert answer.subject.startswith("_INBOX.team.")
