"""The `iggy` destination without a server: options, requests, errors, and nobody at the address."""

from __future__ import annotations

import pickle
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from apache_iggy import TcpConfig

from headgate.destinations.base import Lane, TopicDefaults
from headgate.destinations.iggy import IggyDestination, IggyOptions
from headgate.destinations.iggy.client import Client
from headgate.destinations.iggy.errors import iggy_error
from headgate.destinations.iggy.sender import IggySender, message_number, requests_of
from headgate.model import ConfigError, ConnectError, DataError, DeliveryError, DependencyError, HeadgateError, Kind

SECRET = "pa55-w0rd"


def rows(topics: list[str], **more: pa.Array) -> pa.RecordBatch:
    count = len(topics)
    columns = {
        "_topic": pa.array(topics, pa.string()),
        "_message_id": pa.array([f"db-{number}" for number in range(count)], pa.string()),
        "_payload": pa.array([b"%d" % number for number in range(count)], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def numbers(batch: pa.RecordBatch) -> list[int]:
    return [int(payload) for payload in batch.column("_payload").to_pylist()]


def test_options_become_the_sdks_settings() -> None:
    options = IggyOptions(server="127.0.0.1:9", user="me", password=SECRET, tls=True, tls_domain="iggy.example")
    settings = options.tcp()
    assert isinstance(settings, TcpConfig)
    assert (settings.server_address, settings.tls_enabled, settings.tls_domain) == ("127.0.0.1:9", True, "iggy.example")
    assert (settings.auto_login.enabled, settings.auto_login.username) == (True, "me")
    assert settings.reconnection.enabled is False
    assert IggyOptions(token=SECRET).tcp().auto_login.enabled
    assert not IggyOptions().tcp().auto_login.enabled
    assert SECRET not in repr(options) + repr(IggyDestination("i", options))
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "background"},
        {"server": ""},
        {"token": "t", "user": "u"},
        {"max_rows_per_request": 0},
        {"connect_timeout_s": 0},
        {"send_timeout_s": -1},
    ],
)
def test_options_that_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        IggyOptions(**wrong)
    assert raised.value.remedy


def test_an_address_without_a_port() -> None:
    with pytest.raises(ConfigError, match="host:port"):
        IggyOptions(server="nonsense").tcp()


def test_requests_keep_the_order_of_each_key() -> None:
    keys = pa.array([b"x", None, b"y", b"x", b"x", None], pa.binary())
    batch = rows(["a", "a", "a", "b", "a", "a"], _partition_key=keys)
    found = [(each.topic, each.key, numbers(each.rows)) for each in requests_of(batch, 1000)]
    assert found == [("a", b"x", [0, 4]), ("a", None, [1, 5]), ("a", b"y", [2]), ("b", b"x", [3])]


def test_an_explicit_partition_wins_over_the_key() -> None:
    batch = rows(
        ["a"] * 4,
        _partition_key=pa.array([b"x", b"x", b"y", None], pa.binary()),
        _partition=pa.array([1, None, 1, None], pa.int64()),
    )
    found = [(each.key, each.partition, numbers(each.rows)) for each in requests_of(batch, 1000)]
    assert found == [(None, 1, [0, 2]), (b"x", None, [1]), (None, None, [3])]


def test_requests_are_cut() -> None:
    assert [numbers(each.rows) for each in requests_of(rows(["a"] * 5), 2)] == [[0, 1], [2, 3], [4]]
    assert list(requests_of(rows([]), 2)) == []


@pytest.mark.parametrize(
    "more",
    [
        {"_payload": pa.array([b"x", b""], pa.binary())},
        {"_partition_key": pa.array([None, b""], pa.binary())},
        {"_partition_key": pa.array([b"k", b"k" * 256], pa.binary())},
        {"_partition": pa.array([0, -1], pa.int64())},
        {"_topic": pa.array(["a", ""])},
        {"_topic": pa.array(["a", "ü" * 128])},
    ],
)
def test_rows_that_iggy_does_not_take(more: dict[str, pa.Array]) -> None:
    with pytest.raises(DataError) as raised:
        list(requests_of(rows(["a", "a"], **more), 1000))
    assert raised.value.remedy


def test_message_numbers_are_stable_and_fit() -> None:
    assert message_number("db-1") == message_number("db-1") != message_number("db-2")
    assert 0 <= message_number("db-1") < 1 << 128


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Disconnected", Kind.CONNECT),
        ("Cannot establish connection", Kind.CONNECT),
        ("Unauthenticated", Kind.AUTH),
        ("Invalid credentials", Kind.AUTH),
        ("Invalid username", Kind.AUTH),
        ("Topic with name: x was not found", Kind.STATE),
        ("Too big message payload", Kind.DATA),
        ("Something new", Kind.DELIVERY),
    ],
)
def test_texts_become_kinds(text: str, kind: Kind) -> None:
    error = iggy_error(RuntimeError(text), "127.0.0.1:9")
    assert (error.kind, error.where) == (kind, "127.0.0.1:9")
    assert error.remedy
    assert iggy_error(TimeoutError(), "").kind is Kind.CONNECT


@pytest.mark.parametrize("call", ["ensure", "ensure_topic", "missing", "open"])
def test_nobody_at_the_address(call: str) -> None:
    destination = IggyDestination("i", IggyOptions(server="127.0.0.1:1", connect_timeout_s=2))
    began = time.monotonic()
    with pytest.raises(ConnectError) as raised:
        _call(destination, call)
    assert time.monotonic() - began < 2
    assert raised.value.where == "127.0.0.1:1"


@pytest.fixture
def silence() -> Iterator[str]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_says_nothing(silence: str) -> None:
    options = IggyOptions(server=silence, user="iggy", password=SECRET, connect_timeout_s=0.3)
    with pytest.raises(ConnectError) as raised:
        IggyDestination("i", options).ensure()
    assert SECRET not in str(raised.value)


def _call(destination: IggyDestination, name: str) -> None:
    match name:
        case "ensure":
            destination.ensure()
        case "ensure_topic":
            destination.ensure_topic("s", "t", TopicDefaults())
        case "missing":
            destination.missing("s", "t")
        case _:
            with destination.open():
                pass


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apache_iggy", None)
    with pytest.raises(DependencyError) as raised:
        IggyDestination("i", IggyOptions()).ensure()
    assert raised.value.remedy == "pip install 'headgate[iggy]'"


class _Scripted(Client):
    """Answers as told, each error once. There is no server to be had, and what follows an error is ours."""

    def __init__(self, errors: dict[str, HeadgateError]) -> None:
        self.options = IggyOptions(max_rows_per_request=2)
        self.errors = errors
        self.sent: list[tuple[str, str, int]] = []

    def send(self, stream: str, topic: str, partitioning: Any, messages: list[Any]) -> None:
        if topic in self.errors:
            raise self.errors.pop(topic)
        self.sent.append((stream, topic, len(messages)))


def test_a_topic_that_fails_is_named_and_the_others_arrive() -> None:
    client = _Scripted({"b": DeliveryError("no")})
    sender = IggySender("i", client, Lane("s", epoch=3))
    sender.send(rows(["a", "b", "b", "b", "a", "a"]))
    result = sender.finish()
    assert client.sent == [("s", "a", 2), ("s", "a", 1)]
    assert (result.rows, [(each["topic"], each["rows"]) for each in result.failures]) == (6, [("b", 3)])


def test_a_server_that_goes_away_ends_the_lane() -> None:
    sender = IggySender("i", _Scripted({"a": ConnectError("gone")}), Lane())
    with pytest.raises(ConnectError):
        sender.send(rows(["a"]))
