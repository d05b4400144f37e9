"""What doors are made of: frames that stay one event, requests that keep order and keys, addresses that are public."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.broker.http.options import BrokerServerOptions, StreamLimits
from headgate.broker.http.posting import Endpoint, Item, posts
from headgate.broker.http.streams import Frame, Listener, Place, event_frame
from headgate.model import ConfigError
from headgate.runtime.access import has_token, is_foreign_host, is_foreign_origin, is_loopback, is_public_address

SECRET = "whsec_c2VjcmV0IG9mIGEgdGVzdCE="


@given(
    pos=st.integers(0, 2**62),
    topic=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    payload=st.recursive(st.none() | st.integers() | st.text(), st.lists),
)
def test_whatever_the_topic_a_frame_is_one_event(pos: int, topic: str, payload: Any) -> None:
    text = json.dumps(payload)
    lines = event_frame(Place(pos), topic, text).data.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [line.partition(": ")[0] for line in lines] == ["id", "event", "data", "", ""]
    assert lines[2] == f"data: {text}"


def test_a_listener_is_told_one_thing_at_its_end() -> None:
    """Who was asked to come again learns of a failover then: it must not hear of it twice."""
    listener = Listener(Place(1, "0a1b2c3d4e5f"), StreamLimits())
    listener.end(b": come again\n\n")
    listener.end(b"event: headgate.failover\n\n")
    assert listener.last_words == b": come again\n\n"


@pytest.mark.parametrize(
    ("frames", "too_many"),
    [
        ([Frame(1, b"a"), Frame(1, b"which it has had"), Frame(2, b"b")], False),
        ([Frame(1, b"a"), Frame(2, b"b"), Frame(3, b"c")], True),
        ([Frame(1, b"x" * 11)], True),
    ],
    ids=["room", "events", "bytes"],
)
def test_a_listener_holds_no_more_than_it_may(frames: list[Frame], too_many: bool) -> None:
    listener = Listener(Place(0), StreamLimits(buffer_events=2, buffer_bytes=10))
    for frame in frames:
        listener.offer(frame)
    assert (listener.last_words is not None) is too_many


items = st.lists(
    st.tuples(st.sampled_from(["", "webhook 1", "webhook 2"]), st.integers(1, 3), st.sampled_from([1, 700_000])),
    max_size=20,
)


@given(items)
def test_requests_keep_the_order_and_are_not_too_large(drawn: list[tuple[str, int, int]]) -> None:
    batch = [
        Item(number, number, "t", json.dumps("x" * size), number, attempt, together)
        for number, (together, attempt, size) in enumerate(drawn)
    ]
    made = posts(batch)
    assert [item for post in made for item in post.items] == batch
    assert [post.key for post in made] == [post.key for post in posts(batch)]
    assert len({post.key for post in made}) == len(made)
    for post in made:
        assert len({(item.batch, item.attempt) for item in post.items}) == 1
        assert len(post.items) == 1 or sum(len(item.payload) for item in post.items) <= 1 << 20
        assert [item["id"] for item in json.loads(post.body)["items"]] == [str(item.id) for item in post.items]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("127.0.0.1", False), ("10.1.2.3", False), ("192.168.0.1", False), ("169.254.169.254", False),
        ("100.64.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False), ("255.255.255.255", False), ("8.8.8.8", True),
        ("::1", False), ("fe80::1%eth0", False), ("fd00::1", False), ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False), ("2002:7f00:1::", False), ("2001:4860:4860::8888", True), ("::ffff:8.8.8.8", True),
    ],
)  # fmt: skip
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public_address(address) is public


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.3.2.1", True), ("::1", True), ("0.0.0.0", False), ("127.evil.example", False)],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_who_may_come_in() -> None:
    assert has_token("Bearer x", "x")
    assert not has_token("Bearer y", "x")
    assert not has_token(None, "x")
    assert is_foreign_origin("http://evil.example", "127.0.0.1:1")
    assert is_foreign_origin("null", "127.0.0.1:1")
    assert not is_foreign_origin("http://127.0.0.1:1", "127.0.0.1:1")
    assert not is_foreign_origin(None, "127.0.0.1:1")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1", "127.0.0.1", "[::1]:8710", "localhost", "a.localhost:1", "10.0.0.7", None]
)
def test_addresses_and_localhost_cannot_be_rebound(host: str | None) -> None:
    assert not is_foreign_host(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8710", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::1", "a@b:x"],
)
def test_names_can_be_rebound(host: str) -> None:
    assert is_foreign_host(host)
    with pytest.raises(ConfigError, match="token"):
        BrokerServerOptions(postgres_url="", host="0.0.0.0")


@pytest.mark.parametrize(
    ("url", "secret", "headers"),
    [
        ("ftp://host/", SECRET, {}),
        ("http://", SECRET, {}),
        ("http://host/", "whsec_???", {}),
        ("http://host/", SECRET, {"a": "b\r\nc: d"}),
        ("http://host/", SECRET, {"Host": "other"}),
        ("http://host/", SECRET, {"a": 1}),
    ],
    ids=["scheme", "no-host", "secret", "two-headers", "our-header", "number"],
)
def test_endpoints_that_cannot_be_used(url: str, secret: str, headers: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Endpoint(url, secret, headers)


def test_an_endpoint_hides_what_is_secret() -> None:
    shown = repr(Endpoint("https://host/t0ken", SECRET, {"x": "t0ken"}))
    assert SECRET not in shown
    assert "t0ken" not in shown
