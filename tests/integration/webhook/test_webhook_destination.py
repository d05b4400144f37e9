"""The webhook destination against a receiver that answers as receivers do: well, late, wrongly or not at all."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.destinations.base import Lane, SendResult
from headgate.destinations.webhook import WebhookDestination, WebhookOptions
from headgate.model import ConfigError, DataError, record
from headgate.wire.webhook import SCHEMES, Scheme, Signing
from tests.integration.webhook.receiver import Receiver, receiving
from tests.integration.webhook.server import bodies, serving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def batch(rows: list[tuple[str, str]], first: int = 0, keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    columns = {
        record.TOPIC: pa.array([topic for topic, _ in rows], pa.string()),
        record.MESSAGE_ID: pa.array([f"o-{number}" for number in range(first, first + len(rows))], pa.string()),
        record.PAYLOAD: pa.array([payload.encode() for _, payload in rows], pa.binary()),
    }
    if keys:
        columns[record.PARTITION_KEY] = pa.array(keys, pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def send(url: str, *batches: pa.RecordBatch, lane: Lane | None = None, **options: Any) -> SendResult:
    settings = {"timeout_s": 5.0, "retry_for_s": 5.0, **options}
    destination = WebhookDestination("hook", WebhookOptions(url=url, **settings))
    destination.ensure()
    travelled: WebhookDestination = pickle.loads(pickle.dumps(destination))
    with travelled.open(lane or Lane(stream="s", epoch=7)) as sender:
        for each in batches:
            sender.send(each)
        return sender.finish()


def errors(result: SendResult) -> dict[str, tuple[int, str, str]]:
    return {f["topic"]: (f["rows"], f["error"]["kind"], f["error"]["message"]) for f in result.failures}


def test_each_row_is_a_request_in_order(receiver: Receiver) -> None:
    rows = [("a", "1"), ("b", "2"), ("a", "3")]
    url = receiver.url + "/in/{stream}/{topic}?from={topic}"
    result = send(url, batch(rows), batch([("a", "4")], first=3), headers={"X-Mine": "my-token"})
    assert (result.rows, result.payload_bytes, result.failures) == (4, 4, ())
    of_a = [got for got in receiver.got if got.path == "/in/s/a?from=a"]
    assert [got.body for got in of_a] == [b"1", b"3", b"4"]
    assert [got.headers["idempotency-key"] for got in of_a] == ["o-0", "o-2", "o-3"]
    first = of_a[0].headers
    assert (first["webhook-id"], first["headgate-epoch"], first["x-mine"]) == ("o-0", "7", "my-token")
    assert (first["content-type"], first["user-agent"]) == ("application/json", "headgate")
    assert not any("cookie" in got.headers for got in receiver.got)


@pytest.mark.parametrize("trouble", [500, 503, 408, 429, "close", (429, {"retry-after": "0"})])
def test_what_passes_is_tried_again_in_order(receiver: Receiver, trouble: Any) -> None:
    receiver.script["*"] = [200, trouble, trouble]
    result = send(receiver.url, batch([("a", str(n)) for n in range(4)]))
    assert (result.rows, result.failures) == (4, ())
    assert receiver.bodies == [b"0", b"1", b"1", b"1", b"2", b"3"]
    assert {got.headers["idempotency-key"] for got in receiver.got if got.body == b"1"} == {"o-1"}


def test_a_receiver_may_say_when(receiver: Receiver) -> None:
    receiver.script["*"] = [(429, {"retry-after": "1"})]
    began = time.monotonic()
    assert send(receiver.url, batch([("a", "1")])).failures == ()
    assert 1.0 <= time.monotonic() - began < 4
    receiver.script["*"] = [(503, {"retry-after": "3600"})]
    began = time.monotonic()
    assert errors(send(receiver.url, batch([("a", "1")])))["a"][0] == 1
    assert time.monotonic() - began < 3  # more than the patience: given up at once


def test_patience_ends(receiver: Receiver) -> None:
    receiver.script["/bad"] = [500] * 1000
    rows = [("bad", "1"), ("good", "2"), ("bad", "3"), ("good", "4")]
    result = send(receiver.url + "/{topic}", batch(rows), batch([("bad", "5")], first=4), retry_for_s=0.5)
    rows_unsafe, kind, message = errors(result)["bad"]
    assert (rows_unsafe, kind, result.rows) == (3, "delivery", 2)
    assert message.startswith("status 500: it is   wrong")
    assert len(message) <= 220
    assert {got.body for got in receiver.got if got.path == "/bad"} == {b"1"}  # nothing overtakes a row that failed


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refusal_is_not_repeated(receiver: Receiver, status: int) -> None:
    receiver.script["*"] = [status]
    result = send(receiver.url, batch([("a", "1"), ("a", "2")]))
    assert len(receiver.got) == 1
    assert errors(result)["a"][:2] == (2, "delivery")
    assert f"status {status}" in errors(result)["a"][2]
    assert result.failures[0]["error"]["remedy"]


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    with receiving() as elsewhere:
        receiver.script["*"] = [(307, {"location": elsewhere.url})]
        assert "redirect" in errors(send(receiver.url, batch([("a", "1")])))["a"][2]
        assert elsewhere.got == []


def test_a_receiver_that_hangs(receiver: Receiver) -> None:
    receiver.script["*"] = ["hang"]
    assert send(receiver.url, batch([("a", "1")]), timeout_s=0.3).failures == ()  # the second time it answered
    receiver.script["*"] = ["hang", "hang"]
    result = send(receiver.url, batch([("a", "2")]), timeout_s=0.3, retry_for_s=0.2)
    assert errors(result)["a"] == (1, "delivery", "no answer within 0.3 s")


def test_an_endless_answer_is_not_read(receiver: Receiver) -> None:
    receiver.script["*"] = ["huge"]
    began = time.monotonic()
    assert errors(send(receiver.url, batch([("a", "1")])))["a"][2].startswith("status 400: much much")
    assert time.monotonic() - began < 4


def test_a_good_status_counts_even_if_the_rest_is_lost(receiver: Receiver) -> None:
    receiver.script["*"] = ["cut"]
    assert send(receiver.url, batch([("a", "1")])).rows == 1
    assert len(receiver.got) == 1


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/secret-path?token=hidden"
        result = send(url, batch([("a", "1"), ("b", "2")]))
    assert {topic: error[:2] for topic, error in errors(result).items()} == {"a": (1, "connect"), "b": (1, "connect")}
    assert "hidden" not in str(result)
    assert "secret-path" not in str(result)


def test_not_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shout() -> None:
            connection, _ = listener.accept()
            with connection:
                heard = b""
                while not heard.endswith(b"\r\n\r\n1"):
                    heard += connection.recv(65536)
                connection.sendall(b"220 mail.example ESMTP\r\n\r\n")

        thread = threading.Thread(target=shout)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        result = send(url, batch([("a", "1")]), retry_for_s=0.0)
        thread.join()
    assert errors(result)["a"] == (1, "delivery", "the connection broke: RemoteProtocolError")


def test_topics_go_side_by_side(receiver: Receiver) -> None:
    receiver.meet = threading.Barrier(3)  # each waits for the other two
    assert send(receiver.url, batch([("a", "1"), ("b", "2"), ("c", "3")])).rows == 3


def test_rows_of_a_topic_overtake_only_if_they_may(receiver: Receiver) -> None:
    rows = [("a", str(n)) for n in range(8)]
    send(receiver.url, batch(rows))
    send(receiver.url, batch(rows, keys=[b"k", *[None] * 7]), concurrency=4)
    assert receiver.most_in_flight == 1
    assert receiver.bodies == [b"%d" % n for n in range(8)] * 2
    receiver.meet = threading.Barrier(4)
    assert send(receiver.url, batch(rows), concurrency=4).rows == 8
    assert receiver.most_in_flight == 4


@pytest.mark.parametrize("batch_format", ["json", "ndjson"])
def test_several_rows_in_a_request(receiver: Receiver, batch_format: str) -> None:
    rows = [("a", json.dumps({"n": n, "s": "x\n"}, indent=1)) for n in range(7)] + [("b", "1")]
    result = send(receiver.url + "/{topic}", batch(rows), batch_rows=3, batch_format=batch_format)
    assert result.rows == 8
    of_a = [got for got in receiver.got if got.path == "/a"]
    split = json.loads if batch_format == "json" else lambda text: [json.loads(line) for line in text.splitlines()]
    assert [[event["n"] for event in split(got.body)] for got in of_a] == [[0, 1, 2], [3, 4, 5], [6]]
    ids = [got.headers["idempotency-key"] for got in of_a]
    assert ids[0].startswith("o-0+3.")
    assert len(set(ids)) == 3
    again = send(receiver.url + "/{topic}", batch(rows), batch_rows=3, batch_format=batch_format)
    assert again.rows == 8
    assert [got.headers["idempotency-key"] for got in receiver.got if got.path == "/a"] == ids * 2


def test_what_is_no_json_cannot_share_a_request(receiver: Receiver) -> None:
    with pytest.raises(DataError, match="no JSON"):
        send(receiver.url, batch([("a", "1"), ("a", "{")]), batch_rows=2)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_our_own_source_takes_it_once(tmp_path: Path, scheme: Scheme) -> None:
    signing = Signing(scheme, ("one-secret",))
    with serving(tmp_path, signing=signing, keys={"me": "my-key-1"}) as server:
        for _ in range(2):  # a replay
            result = send(
                server.url + "/{topic}",
                batch([("a", '{"n":1}'), ("a", '{"n":2}')]),
                signing=signing,
                headers={"Authorization": "Bearer my-key-1"},
            )
            assert result.rows == 2
        assert server.app.counts.duplicates == 2
    assert bodies(tmp_path) == ['{"n":1}', '{"n":2}']


@pytest.mark.parametrize("topic", ["..", ".", ""])
def test_a_topic_that_would_change_the_path_is_refused_before_anything_is_sent(receiver: Receiver, topic: str) -> None:
    with pytest.raises(DataError, match="cannot be part of a path"):
        send(receiver.url + "/in/{topic}", batch([("good", "1"), (topic, "2")]))
    assert receiver.got == []


def test_a_stream_must_be_known() -> None:
    with pytest.raises(ConfigError, match="asks for a stream"):
        send("http://127.0.0.1:9/{stream}", batch([("a", "1")]), lane=Lane())
