"""The publisher against a real server: order, completeness, duplicates, refusals, lost connections."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from headgate.destinations.nats import (
    JetStream,
    NatsOptions,
    Publisher,
    borrow_publisher,
    close_idle_publishers,
)
from headgate.model import AuthError, CapacityError, ConnectError, DataError, DeliveryError, StateError, UsageError

from .messages import Columns, columns, publish_and_flush, read_stream
from .server import NatsServer

MakeStream = Callable[..., NatsOptions]
MakeServer = Callable[..., NatsServer]


def topic(options: NatsOptions, rest: str = "a") -> str:
    return options.subjects[0].replace(">", rest)


def stored(options: NatsOptions) -> int:
    with JetStream.open(options) as jetstream:
        info = jetstream.stream_info(options.stream)
    assert info
    return info.messages


def test_200_000_messages_arrive_in_order(make_stream: MakeStream) -> None:
    options = make_stream()
    topics = [topic(options, f"{number % 7}.x") for number in range(200_000)]
    data = columns(topics, payload=b"payload ")
    with Publisher(options) as publisher:
        publisher.publish(*data)
        receipt = publisher.flush()
    assert (receipt.sent, receipt.acked, receipt.last_sequence) == (200_000, 200_000, {options.stream: 200_000})
    assert receipt.complete
    assert stored(options) == 200_000
    expected = list(zip(*(column.to_pylist() for column in data), strict=True))
    assert read_stream(options, 200_000) == expected


def test_several_publishers_keep_their_own_order(make_stream: MakeStream) -> None:
    options = make_stream()
    everything = [columns([topic(options, f"p{number}")] * 5_000, prefix=f"p{number}") for number in range(4)]

    def work(data: Columns) -> int:
        with Publisher(options) as publisher:
            return publish_and_flush(publisher, data).acked

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, everything)) == [5_000] * 4
    found = read_stream(options, 20_000)
    for number, (_, ids, _) in enumerate(everything):
        assert [row[1] for row in found if row[0] == topic(options, f"p{number}")] == ids.to_pylist()


def test_a_second_delivery_is_dropped_and_counted(make_stream: MakeStream) -> None:
    options = make_stream()
    data = columns([topic(options)] * 20_000)
    with Publisher(options) as publisher:
        publisher.publish(*data)
        assert publisher.flush().duplicates == 0
        publisher.publish(*(column.slice(15_000) for column in data))
        publisher.publish(*columns([topic(options)] * 5_000, prefix="new"))
        receipt = publisher.flush()
    assert (receipt.sent, receipt.acked, receipt.duplicates) == (10_000, 10_000, 5_000)
    assert stored(options) == 25_000


def test_flushing_nothing_and_publishing_nothing(make_stream: MakeStream) -> None:
    options = make_stream()
    with Publisher(options) as publisher:
        assert publisher.flush().sent == 0
        publisher.publish(*columns([]))
        receipt = publisher.flush()
    assert (receipt.sent, receipt.acked, receipt.complete) == (0, 0, True)


def test_small_windows_and_large_messages(make_stream: MakeStream) -> None:
    options = make_stream(window=3, window_bytes=100_000)
    data = columns([topic(options)] * 40, payload=b"z" * 60_000)
    with Publisher(options) as publisher:
        publisher.publish(*data)
        assert publisher.flush().acked == 40
        publisher.publish(*columns([topic(options)], prefix="large", payload=b"z" * 500_000))
        assert publisher.flush().acked == 1
    assert stored(options) == 41


def test_chunked_large_and_dictionary_columns(make_stream: MakeStream) -> None:
    options = make_stream()
    topics, ids, payloads = columns([topic(options)] * 10)
    with Publisher(options) as publisher:
        publisher.publish(
            pa.chunked_array([topics.slice(0, 3), topics.slice(3)]).dictionary_encode(),
            ids.cast(pa.large_string()),
            pa.chunked_array([payloads.slice(0, 8), payloads.slice(8)]).cast(pa.large_binary()),
        )
        assert publisher.flush().acked == 10
    assert [row[1] for row in read_stream(options, 10)] == ids.to_pylist()


def test_a_full_stream_refuses_and_says_which_rows(make_stream: MakeStream) -> None:
    options = make_stream(max_msgs=100)
    with Publisher(options) as publisher:
        publisher.publish(*columns([topic(options)] * 150))
        receipt = publisher.flush()
        assert (receipt.acked, receipt.failed_rows) == (100, tuple(range(100, 150)))
        (failure,) = receipt.failures
        assert (type(failure.error), failure.code) == (CapacityError, 10077)
        assert "maximum messages" in failure.error.message
        # The same publisher goes on once there is room.
        with JetStream.open(options) as jetstream:
            jetstream.purge_stream(options.stream)
        publisher.publish(*columns([topic(options)] * 50, prefix="again"))
        assert publisher.flush().complete


def test_rows_behind_a_failure_are_held_back(make_stream: MakeStream) -> None:
    options = make_stream(max_msgs=1_000, window=100)
    with Publisher(options) as publisher:
        publisher.publish(*columns([topic(options)] * 30_000))
        receipt = publisher.flush()
    assert receipt.acked == 1_000
    assert receipt.failed_rows == tuple(range(1_000, 30_000))
    assert receipt.sent <= 1_200
    reasons = {type(failure.error) for failure in receipt.failures}
    assert reasons == {CapacityError, DeliveryError}


def test_a_subject_nobody_listens_to_fails_its_rows_only(make_stream: MakeStream) -> None:
    options = make_stream()
    topics = [topic(options), "nobody.there", topic(options, "b"), "nobody.here"] * 500
    with Publisher(options) as publisher:
        publisher.publish(*columns(topics))
        receipt = publisher.flush()
    assert receipt.acked == 1_000
    assert receipt.failed_rows == tuple(row for row, name in enumerate(topics) if name.startswith("nobody"))
    first = next(failure for failure in receipt.failures if 1 in failure.rows)
    assert (type(first.error), first.code) == (StateError, 503)
    assert "nobody.there" in first.error.message
    assert all(topics[row] == "nobody.there" for row in first.rows)


def test_what_cannot_be_sent_is_refused_before_anything_is(make_stream: MakeStream) -> None:
    options = make_stream()
    topics, ids, payloads = columns([topic(options)] * 10)
    with Publisher(options) as publisher:
        large = pa.array([*payloads.to_pylist()[:9], b"x" * publisher.max_payload], pa.binary())
        with pytest.raises(DataError, match=r"'id-9' has .* more than the server's max_payload"):
            publisher.publish(topics, ids, large)
        wrong = pa.array([*topics.to_pylist()[:9], "$JS.API.STREAM.DELETE.S"])
        with pytest.raises(DataError, match=r"'id-9'.*server's own"):
            publisher.publish(wrong, ids, payloads)
        injected = pa.array([*ids.to_pylist()[:9], "x\r\nEvil: 1"])
        with pytest.raises(DataError, match="control character"):
            publisher.publish(topics, injected, payloads)
        with pytest.raises(UsageError, match="length"):
            publisher.publish(topics, ids.slice(1), payloads)
        with pytest.raises(UsageError, match="int64"):
            publisher.publish(topics, ids, pa.array(range(10)))
        assert publisher.flush().sent == 0
        publisher.publish(topics, ids, payloads)
        assert publisher.flush().acked == 10
    assert stored(options) == 10


def test_a_payload_of_exactly_the_limit_passes(make_stream: MakeStream) -> None:
    options = make_stream()
    with Publisher(options) as publisher:
        header = len(b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n")
        for size, good in ((publisher.max_payload - header, True), (publisher.max_payload - header + 1, False)):
            data = pa.array([topic(options)]), pa.array(["a"]), pa.array([b"x" * size])
            if good:
                publisher.publish(*data)
                assert publisher.flush().acked == 1
            else:
                with pytest.raises(DataError):
                    publisher.publish(*data)


def test_another_writer_is_fenced_off(make_stream: MakeStream) -> None:
    options = make_stream()
    with Publisher(options) as publisher, JetStream.open(options) as jetstream:
        publisher.publish(*columns([topic(options)] * 10_000), expected_last_sequence=0)
        assert publisher.flush().last_sequence == {options.stream: 10_000}
        jetstream.publish(topic(options), b"intruder")
        publisher.publish(*columns([topic(options)] * 10_000, prefix="more"), expected_last_sequence=10_000)
        receipt = publisher.flush()
        assert receipt.acked == 0
        assert receipt.failed_rows == tuple(range(10_000))
        with pytest.raises(StateError, match="wrong last sequence"):
            receipt.raise_for_failures()
    assert stored(options) == 10_001


def test_the_chain_is_whole_from_flush_to_flush(make_stream: MakeStream) -> None:
    options = make_stream()
    with Publisher(options) as publisher:
        for number, expected in enumerate((0, 2)):
            publisher.publish(*columns([topic(options)] * 2, prefix=f"p{number}"), expected_last_sequence=expected)
        with pytest.raises(UsageError, match="busy"):
            publisher.jetstream()
        assert publisher.flush().acked == 4
        publisher.publish(*columns([topic(options)], prefix="next"), expected_last_sequence=4)
        assert publisher.flush().acked == 1
        messages = [publisher.jetstream().message(options.stream, sequence) for sequence in range(1, 6)]
    fields = [message.headers.fields[1] for message in messages if message]
    assert fields == [
        ("Nats-Expected-Last-Sequence", "0"),
        ("Nats-Expected-Last-Msg-Id", "p0-0"),
        ("Nats-Expected-Last-Msg-Id", "p0-1"),
        ("Nats-Expected-Last-Msg-Id", "p1-0"),
        ("Nats-Expected-Last-Sequence", "4"),
    ]


def test_further_headers_arrive(make_stream: MakeStream) -> None:
    options = make_stream()
    with Publisher(options) as publisher, JetStream.open(options) as jetstream:
        publisher.publish(*columns([topic(options)] * 2), headers=pa.array([b"", b"A: 1\r\nB: 2\r\n"]))
        publisher.publish(*columns([topic(options)], prefix="all"), headers=b"C: 3\r\n")
        assert publisher.flush().acked == 3
        messages = [jetstream.message(options.stream, sequence) for sequence in (1, 2, 3)]
        fields = [message.headers.fields for message in messages if message]
        with pytest.raises(DataError, match="malformed headers"):
            publisher.publish(*columns([topic(options)]), headers=b"no line end")
    assert fields == [
        (("Nats-Msg-Id", "id-0"),),
        (("Nats-Msg-Id", "id-1"), ("A", "1"), ("B", "2")),
        (("Nats-Msg-Id", "all-0"), ("C", "3")),
    ]


def test_rows_that_end_up_in_another_stream_are_failures(make_stream: MakeStream) -> None:
    options, other = make_stream(), make_stream()
    with Publisher(options) as publisher:
        publisher.publish(*columns([topic(other), topic(other)]))
        receipt = publisher.flush()
    assert (receipt.acked, receipt.failed_rows) == (0, (0, 1))
    with pytest.raises(StateError, match=f"stored in stream '{other.stream}'"):
        receipt.raise_for_failures()


def test_a_killed_server_loses_and_doubles_nothing(make_server: MakeServer) -> None:
    server = make_server()
    options = server.options()
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
    data = columns(["s.a"] * 100_000)
    killer = threading.Thread(target=_kill_when_filled, args=(server, options, 5_000))
    killer.start()
    with Publisher(options) as publisher:
        with pytest.raises(ConnectError):
            publish_and_flush(publisher, data)
        killer.join()
        with pytest.raises(ConnectError, match="refused"):
            publish_and_flush(publisher, data)
        server.start()
        before = stored(options)
        assert 5_000 <= before < 100_000
        receipt = publish_and_flush(publisher, data)
    assert receipt.acked == 100_000
    assert receipt.duplicates in (before, None)
    assert stored(options) == 100_000
    assert [row[1] for row in read_stream(options, 100_000)] == data[1].to_pylist()


def _kill_when_filled(server: NatsServer, options: NatsOptions, count: int) -> None:
    with JetStream.open(options) as jetstream:
        while True:
            info = jetstream.stream_info(options.stream)
            if info and info.messages >= count:
                break
    server.kill()


def test_missing_rights_are_an_auth_error(make_server: MakeServer) -> None:
    rights = 'publish: ["s.allowed", "$JS.API.>"]'
    server = make_server(f"authorization {{ users = [ {{ user: u, password: p, permissions: {{ {rights} }} }} ] }}")
    options = server.options(user="u", password="p", ack_timeout_s=5.0)
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
    with Publisher(options) as publisher:
        publisher.publish(*columns(["s.allowed"] * 10))
        assert publisher.flush().acked == 10
        with pytest.raises(AuthError, match=r"Permissions Violation for Publish to .*s\.forbidden"):
            publish_and_flush(publisher, columns(["s.allowed", "s.forbidden"]))


def test_borrowed_publishers_are_reused_and_repaired(make_server: MakeServer) -> None:
    server = make_server()
    options = server.options()
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
    with borrow_publisher(options) as first:
        first.publish(*columns(["s.a"] * 10))
        assert first.flush().acked == 10
        with borrow_publisher(options) as second:
            assert second is not first
    with borrow_publisher(replace(options, window=7)) as other:
        assert other is not first
    server.kill()
    server.start()
    with borrow_publisher(options) as again:
        assert again is first
        again.publish(*columns(["s.a"] * 10, prefix="new"))
        assert again.flush().acked == 10
        again.publish(*columns(["s.a"], prefix="unflushed"))
    with borrow_publisher(options) as fresh:
        assert fresh is not again
    kept: list[Publisher] = []
    with pytest.raises(ValueError, match="mine"):
        _borrow_and_fail(options, kept)
    with borrow_publisher(options) as fresh:
        assert fresh not in kept
    close_idle_publishers()


def _borrow_and_fail(options: NatsOptions, kept: list[Publisher]) -> None:
    with borrow_publisher(options) as publisher:
        kept.append(publisher)
        raise ValueError("mine")


def test_a_forked_worker_gets_its_own_connection(make_stream: MakeStream) -> None:
    """In a process of its own: a fork inside the test runner would inherit its threads."""
    options = make_stream()
    script = textwrap.dedent(
        """
        import os, pickle, sys
        import pyarrow as pa
        from headgate.destinations.nats import borrow_publisher
        options = pickle.loads(bytes.fromhex(sys.argv[1]))
        topic = options.subjects[0].replace(">", "a")
        def publish(name):
            with borrow_publisher(options) as publisher:
                ids = pa.array([f"{name}-{n}" for n in range(5000)])
                publisher.publish(pa.array([topic] * 5000), ids, pa.array([b"x"] * 5000))
                assert publisher.flush().acked == 5000
                return id(publisher)
        before = publish("before")
        child = os.fork()
        name = "parent" if child else "child"
        assert (publish(name) == before) == bool(child)
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    command = [sys.executable, "-c", script, pickle.dumps(options).hex()]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert stored(options) == 15_000
