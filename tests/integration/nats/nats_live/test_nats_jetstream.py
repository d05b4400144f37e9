"""Streams, accounts, single messages and buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from headgate.destinations.nats import Bucket, JetStream, NatsOptions, Publisher
from headgate.model import CapacityError, ConfigError, DataError, StateError

from .messages import columns, publish_and_flush
from .server import NatsServer

MakeStream = Callable[..., NatsOptions]
MakeServer = Callable[..., NatsServer]


@pytest.fixture
def jetstream(nats: NatsServer) -> Iterator[JetStream]:
    with JetStream.open(nats.options()) as opened:
        yield opened


def test_ensuring_twice_changes_nothing(jetstream: JetStream, make_stream: MakeStream) -> None:
    options = make_stream(max_age_s=3600, max_bytes=10_000_000, max_msgs=9_999)
    again = jetstream.ensure_stream(options)
    info = jetstream.stream_info(options.stream)
    assert info == again
    assert info
    assert (info.subjects, info.storage, info.discard, info.replicas) == (options.subjects, "file", "new", 1)
    assert (info.max_age_s, info.max_bytes, info.max_msgs, info.duplicate_window_s) == (3600, 10_000_000, 9_999, 120)


def test_subjects_and_windows_are_added(jetstream: JetStream, make_stream: MakeStream) -> None:
    options = make_stream()
    more = f"{options.stream}.more.>"
    wanted = replace(options, subjects=(*options.subjects, more), duplicate_window_s=300)
    info = jetstream.ensure_stream(wanted)
    assert info.subjects == (*options.subjects, more)
    assert info.duplicate_window_s == 300
    # What others added stays.
    assert jetstream.ensure_stream(options).subjects == (*options.subjects, more)


@pytest.mark.parametrize(
    "change", [{"storage": "memory"}, {"max_bytes": 5_000}, {"max_age_s": 60.0}, {"discard": "old"}, {"max_msgs": 3}]
)
def test_drift_is_refused_and_named(jetstream: JetStream, make_stream: MakeStream, change: dict[str, object]) -> None:
    options = make_stream()
    before = jetstream.stream_info(options.stream)
    with pytest.raises(StateError) as caught:
        jetstream.ensure_stream(replace(options, **change))  # type: ignore[arg-type]
    assert next(iter(change)).removesuffix("_s") in caught.value.message
    assert options.stream in caught.value.remedy
    assert jetstream.stream_info(options.stream) == before


def test_settings_of_an_own_stream_are_applied(jetstream: JetStream, make_stream: MakeStream) -> None:
    options = make_stream()
    wanted = replace(options, max_age_s=60.0, max_bytes=5_000_000, max_msgs=30, discard="old", duplicate_window_s=10.0)
    info = jetstream.ensure_stream(wanted, exclusive=True)
    assert (info.max_age_s, info.max_bytes, info.max_msgs, info.discard) == (60, 5_000_000, 30, "old")
    assert info.duplicate_window_s == 10
    unset = replace(options, discard="old", duplicate_window_s=10.0)
    assert jetstream.ensure_stream(unset, exclusive=True) == info  # what is not set stays
    unlimited = replace(options, max_age_s=0.0, max_bytes=-1, max_msgs=-1, discard="new", duplicate_window_s=300.0)
    info = jetstream.ensure_stream(unlimited, exclusive=True)
    assert (info.max_age_s, info.max_bytes, info.max_msgs, info.discard) == (0, -1, -1, "new")
    assert info.duplicate_window_s == 300
    shorter = jetstream.ensure_stream(replace(options, max_age_s=60.0), exclusive=True)
    assert (shorter.max_age_s, shorter.duplicate_window_s) == (60, 60)


@pytest.mark.parametrize(
    "setting",
    [
        {"max_msgs_per_subject": 1},
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
        {"allow_rollup_hdrs": True},
        {"subject_transform": {"src": ">", "dest": "moved.>"}},
        {"sources": [{"name": "OTHERS"}]},
        {"max_msg_size": 1000},
    ],
)
def test_an_own_stream_that_breaks_promises_is_refused(
    jetstream: JetStream, make_stream: MakeStream, setting: dict[str, object]
) -> None:
    options = make_stream()
    info = jetstream.stream_info(options.stream)
    assert info
    before = jetstream.update_stream({**info.config, **setting})
    with pytest.raises(StateError, match=next(iter(setting))) as caught:
        jetstream.ensure_stream(options, exclusive=True)
    assert options.stream in caught.value.remedy
    assert jetstream.stream_info(options.stream) == before
    assert jetstream.ensure_stream(options) == before  # several writers may want just that


def test_overlapping_subjects_and_missing_replicas(jetstream: JetStream, make_stream: MakeStream) -> None:
    options = make_stream()
    with pytest.raises(ConfigError, match="overlap"):
        jetstream.ensure_stream(replace(options, stream=f"{options.stream}-other"))
    with pytest.raises(ConfigError, match="replicas"):
        jetstream.ensure_stream(replace(options, stream="R3", subjects=("r3.>",), replicas=3))
    assert jetstream.stream_info("R3") is None


def test_the_account(make_server: MakeServer) -> None:
    server = make_server(
        "accounts { A { jetstream { max_file: 2000000, max_streams: 1 }, users: [ {user: u, password: p} ] } }"
    )
    options = server.options(user="u", password="p")
    with JetStream.open(options) as limited:
        account = limited.account()
        assert (account.storage_limit_bytes, account.streams, account.streams_limit) == (2_000_000, 0, 1)
        assert account.storage_left_bytes == 2_000_000
        assert account.api_level >= 2
        assert account.max_payload == 1024 * 1024
        limited.ensure_stream(options)
        limited.publish("s.a", b"x" * 100_000)
        left = limited.account().storage_left_bytes
        assert left is not None
        assert 1_800_000 < left < 1_900_000
        with pytest.raises(CapacityError, match="streams"):
            limited.ensure_stream(server.options("OTHER", ("other.>",), user="u", password="p"))
        with pytest.raises(CapacityError):
            limited.ensure_stream(replace(options, stream="BIG", subjects=("b",), max_bytes=10**9))


def test_no_limit_means_none(jetstream: JetStream) -> None:
    account = jetstream.account()
    assert account.storage_limit_bytes == -1
    assert account.storage_left_bytes is None


def test_single_messages(jetstream: JetStream, make_stream: MakeStream) -> None:
    options = make_stream()
    base = options.subjects[0].removesuffix(">")
    assert jetstream.last_message(options.stream) is None
    ack = jetstream.publish(f"{base}a", b"\x00\xff", (("Nats-Msg-Id", "one"), ("K", "v")))
    assert (ack.stream, ack.seq, ack.duplicate) == (options.stream, 1, False)
    assert jetstream.publish(f"{base}a", b"", (("Nats-Msg-Id", "one"),)).duplicate
    jetstream.publish(f"{base}b", b"")
    last, last_a, first = (
        jetstream.last_message(options.stream),
        jetstream.last_message(options.stream, f"{base}a"),
        jetstream.message(options.stream, 1),
    )
    assert last
    assert (last.subject, last.sequence, last.payload, last.message_id) == (f"{base}b", 2, b"", "")
    assert last_a == first
    assert last_a
    assert (last_a.payload, last_a.message_id, last_a.headers.get("K")) == (b"\x00\xff", "one", "v")
    assert last_a.time.endswith("Z")
    assert jetstream.message(options.stream, 99) is None
    assert jetstream.last_message(options.stream, f"{base}none") is None
    assert jetstream.purge_stream(options.stream, f"{base}a") == 1
    assert jetstream.purge_stream(options.stream) == 1
    assert jetstream.last_message(options.stream) is None


def test_streams_that_do_not_exist(jetstream: JetStream) -> None:
    assert jetstream.stream_info("ABSENT") is None
    assert not jetstream.delete_stream("ABSENT")
    for ask in (lambda: jetstream.last_message("ABSENT"), lambda: jetstream.purge_stream("ABSENT")):
        with pytest.raises(StateError, match="not found"):
            ask()
    with pytest.raises(StateError, match="no stream takes"):
        jetstream.publish("nobody.listens", b"")
    with pytest.raises(ConfigError):
        jetstream.stream_info("a.b")


def test_a_bucket(jetstream: JetStream) -> None:
    bucket = Bucket(jetstream, "schemas")
    bucket.ensure(history=3)
    bucket.ensure(history=3)
    assert bucket.get("public.orders") is None
    assert bucket.put("public.orders", b"v1") == 1
    assert bucket.put("public.orders", b"v2") == 2
    bucket.put("other", b"x")
    assert bucket.get("public.orders") == (b"v2", 2)
    bucket.delete("public.orders")
    assert bucket.get("public.orders") is None
    assert jetstream.delete_stream(bucket.stream)


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "a*", "é", ">"])
def test_keys_are_checked(jetstream: JetStream, key: str) -> None:
    with pytest.raises(DataError):
        Bucket(jetstream, "keys").get(key)
    with pytest.raises(ConfigError):
        Bucket(jetstream, "no dots.please")


def test_a_domain_has_its_own_api(make_server: MakeServer) -> None:
    server = make_server("")
    server.kill()
    server.config = f'jetstream {{ domain: hub, store_dir: "{server.directory}/hub" }}'
    server.jetstream = False
    server.start()
    options = server.options(domain="hub")
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
        assert jetstream.publish("s.a", b"").domain == "hub"
    with Publisher(options) as publisher:
        assert publish_and_flush(publisher, columns(["s.a"] * 1_000)).acked == 1_000


def test_a_store_that_is_briefly_in_the_way(make_server: MakeServer) -> None:
    """As after a deletion, whose directory nats-server clears behind its answer."""
    server = make_server()
    options = server.options()
    obstacle = server.directory / "store" / "jetstream" / "$G" / "streams"
    with JetStream.open(options) as jetstream:
        obstacle.parent.mkdir()
        obstacle.touch()
        # The failed attempt clears the way.
        assert jetstream.ensure_stream(options).name == options.stream
