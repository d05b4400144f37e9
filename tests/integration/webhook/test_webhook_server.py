"""The webhook server over real sockets: what it accepts, what it refuses, and what it survives."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from headgate.model import ConfigError, OccupiedError
from headgate.sources.webhook.options import ServerOptions
from headgate.sources.webhook.server import WebhookServer
from headgate.wire.webhook import SCHEMES, Scheme, Signing
from tests.integration.webhook.server import bodies, everything, process, raw, rows, serving

JSON = {"content-type": "application/json"}
KEYS = {"shop": "shop-secret", "crm": "crm-secret"}


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20) as made:
        yield made


def test_an_accepted_request_is_rows_with_all_about_it(tmp_path: Path, client: httpx.Client) -> None:
    with serving(tmp_path, keys=KEYS, origin="o") as server:
        headers = {"X-Api-Key": "crm-secret", "X-Kind": "k", "Cookie": "c=1", "X-Hub-Signature": "s"}
        answer = client.post(f"{server.url}/orders", json=[{"n": 1}, {"n": 2}], headers=headers)
        assert (answer.status_code, answer.json()) == (
            202,
            {"ids": ["o-0000000000000000-00000000", "o-0000000000000001-00000000"]},
        )
        text = client.post(server.url, content="ÿ", headers={"authorization": "bearer shop-secret"})
        assert text.status_code == 202
    first, second, third = rows(tmp_path)
    assert [first["body"], second["body"], third["body"]] == ['{"n":1}', '{"n":2}', "ÿ"]
    assert (first["client"], third["client"], first["path"], third["path"]) == (
        "crm",
        "shop",
        "/hooks/orders",
        "/hooks",
    )
    assert (first["content_type"], third["content_type"]) == ("application/json", None)
    assert abs(first["received_at"].timestamp() - time.time()) < 60
    assert [row["_position"] for row in (first, second)] == ["0000000000000000-00000000", "0000000000000001-00000000"]
    kept = dict(first["headers"])
    assert kept["x-kind"] == "k"
    assert "secret" not in str(kept)
    assert not {"x-api-key", "cookie", "x-hub-signature", "authorization"} & set(kept)


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic shop-secret"}, {"x-api-key": "ä"}]
)
def test_without_a_key_there_is_no_answer_but_no(tmp_path: Path, client: httpx.Client, headers: dict[str, str]) -> None:
    with serving(tmp_path, keys=KEYS) as server:
        encoded = {name.encode(): value.encode() for name, value in headers.items()}
        answer = client.post(server.url, content=b"x", headers=encoded)
        assert (answer.status_code, answer.json()) == (401, {"error": "unauthorized"})
    assert rows(tmp_path) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_signatures(tmp_path: Path, client: httpx.Client, scheme: Scheme) -> None:
    signing = Signing(scheme, ("new-secret", "old-secret"))
    body = b'{"a": 1}'
    with serving(tmp_path, signing=signing) as server:

        def post(secret: str, sent: bytes, now_s: float) -> int:
            signed = Signing(scheme, (secret,)).sign(body, message_id=secret, now_s=int(now_s))
            return client.post(server.url, content=sent, headers=signed | JSON).status_code

        assert post("old-secret", body, time.time()) == 202
        assert post("new-secret", body, time.time()) == 202
        assert post("bad-secret", body, time.time()) == 401
        assert post("new-secret", b'{"a": 2}', time.time()) == 401
        assert client.post(server.url, content=body, headers=JSON).status_code == 401
        if scheme != "github":
            assert post("new-secret", body, time.time() - 400) == 401
    assert bodies(tmp_path) == [body.decode()] * 2
    assert "signature" not in str(rows(tmp_path)[0]["headers"])


def test_a_repeat_is_known_also_after_a_restart(tmp_path: Path, client: httpx.Client) -> None:
    with serving(tmp_path, keys=KEYS) as server:

        def post(url: str, name: str, value: str, key: str = "shop-secret") -> tuple[int, list[str]]:
            answer = client.post(url, json={"v": value}, headers={name: value, "x-api-key": key})
            return answer.status_code, answer.json()["ids"]

        status, ids = post(server.url, "Idempotency-Key", "a")
        assert status == 202
        assert post(server.url, "Idempotency-Key", "a") == (200, ids)
        assert post(server.url, "webhook-id", "b")[0] == 202
        assert post(server.url, "X-GitHub-Delivery", "b")[0] == 200
        assert post(server.url, "Idempotency-Key", "a", "crm-secret")[0] == 202  # a key is its client's own
        assert post(f"{server.url}/other", "Idempotency-Key", "a")[0] == 202
    with serving(tmp_path, keys=KEYS) as server:
        assert post(server.url, "Idempotency-Key", "a") == (200, ids)
    assert len(rows(tmp_path)) == 4


def test_a_signed_id_cannot_be_replaced(tmp_path: Path, client: httpx.Client) -> None:
    signing = Signing("standard", ("the-secret",))
    with serving(tmp_path, signing=signing) as server:
        headers = signing.sign(b"{}", message_id="m", now_s=int(time.time()))
        assert client.post(server.url, content=b"{}", headers=headers).status_code == 202
        replay = headers | {"Idempotency-Key": "another"}
        assert client.post(server.url, content=b"{}", headers=replay).status_code == 200
    assert len(rows(tmp_path)) == 1


def test_many_at_once_share_syncs_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    real = os.fdatasync

    def slow_disk(file: int) -> None:
        syncs.append(file)
        time.sleep(0.02)
        real(file)

    monkeypatch.setattr(os, "fdatasync", slow_disk)
    with serving(tmp_path) as server, httpx.Client(timeout=20) as client:

        def post(number: int) -> tuple[int, str]:
            answer = client.post(server.url, json=number, headers={"Idempotency-Key": str(number % 20)})
            return answer.status_code, answer.json()["ids"][0]

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(post, range(100)))
    by_key = [{ids for status, ids in answers[key::20]} for key in range(20)]
    assert all(len(ids) == 1 for ids in by_key)
    assert sorted(status for status, _ in answers) == [200] * 80 + [202] * 20
    assert len(rows(tmp_path)) == 20
    assert 0 < len(syncs) < 20


def test_bodies_are_limited_however_they_come(tmp_path: Path, client: httpx.Client) -> None:
    with serving(tmp_path, max_body=1000) as server:
        assert client.post(server.url, content=b"x" * 1000).status_code == 202
        assert client.post(server.url, content=b"x" * 1001).status_code == 413
        assert client.post(server.url, content=(b"x" * 100 for _ in range(11))).status_code == 413
        assert client.post(server.url, content=(b"x" * 100 for _ in range(10))).status_code == 202
        head = b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        huge = head + b"Content-Length: 99999999999999999999\r\nExpect: 100-continue\r\n\r\n"
        assert b"413" in everything(raw(server.url, huge)).splitlines()[0]
    assert [len(body) for body in bodies(tmp_path)] == [1000, 1000]


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/hooks", {}, b"", 405),
        ("PUT", "/hooks", {}, b"x", 405),
        ("POST", "/hookshot", {}, b"x", 404),
        ("POST", "/", {}, b"x", 404),
        ("POST", "/hooks", JSON, b"{", 400),
        ("POST", "/hooks", {}, b"\xff", 400),
        ("POST", "/hooks", {"content-encoding": "gzip"}, b"x", 415),
        ("POST", "/hooks", {"origin": "http://evil.example"}, b"x", 403),
        ("POST", "/hooks", {"host": "evil.example"}, b"x", 403),
    ],
)
def test_what_is_refused(
    tmp_path: Path, client: httpx.Client, method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    with serving(tmp_path) as server:
        url = server.url.removesuffix("/hooks") + path
        answer = client.request(method, url, content=body, headers=headers)
        assert answer.status_code == status
        assert server.app.counts.refused == 1
    assert rows(tmp_path) == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\x16\x03\x01",
        b"POST /hooks HTTP/1.1\r\n\r\n",  # no host
        b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n",
        b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
def test_hostile_http_harms_nobody_else(tmp_path: Path, client: httpx.Client, data: bytes) -> None:
    with serving(tmp_path, request_timeout_s=0.5) as server:
        connection = raw(server.url)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
        answer = everything(connection)
        assert not answer.startswith(b"HTTP/1.1 20")
        assert client.post(server.url, content=b"fine").status_code == 202
    assert bodies(tmp_path) == ["fine"]


def test_slow_clients_are_let_go(tmp_path: Path, client: httpx.Client) -> None:
    with serving(tmp_path, request_timeout_s=0.4) as server:
        silent = raw(server.url)
        half_a_head = raw(server.url, b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        half_a_body = raw(server.url, b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nhalf")
        began = time.monotonic()
        assert everything(half_a_body).startswith(b"HTTP/1.1 408 ")
        assert everything(silent) == everything(half_a_head) == b""
        assert time.monotonic() - began < 5
        after_one = raw(server.url, b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\n1POST /hooks")
        assert everything(after_one).count(b"HTTP/1.1 ") == 1
    assert bodies(tmp_path) == ["1"]


def test_requests_and_connections_are_bounded(tmp_path: Path, client: httpx.Client) -> None:
    with serving(tmp_path, max_requests=1, max_connections=2) as server:
        head = b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        first = raw(server.url, head + b"a")
        while server.app.counts.requests < 1:
            threading.Event().wait(0.005)
        (accepted,) = server._server.server_state.connections
        option = accepted.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert option  # or every answer would take 40 ms
        busy = client.post(server.url, content=b"b")
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "2")
        third = everything(raw(server.url))  # it need not even ask
        assert third.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in third
        first.sendall(b"z")
        assert everything(first).startswith(b"HTTP/1.1 202 ")
    assert bodies(tmp_path) == ["az"]


def test_a_full_spool_asks_to_wait(tmp_path: Path, client: httpx.Client) -> None:
    with serving(tmp_path, max_spool_bytes=70_000) as server:
        statuses = [client.post(server.url, content=b"x" * 20_000).status_code for _ in range(4)]
        assert statuses == [202, 202, 202, 503]
        refused = client.post(server.url, content=b"x" * 20_000)
        assert (refused.json(), refused.headers["retry-after"]) == ({"error": "the spool is full"}, "2")
        server.spool.marks.deliver(3)
        assert client.post(server.url, content=b"again").status_code == 202


def test_a_stop_answers_what_was_begun_and_takes_nothing_new(tmp_path: Path) -> None:
    server = WebhookServer(ServerOptions(spool=tmp_path, path="/hooks"))
    begun = raw(server.url, b"POST /hooks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\nbe")
    idle = raw(server.url)
    while server.app.counts.requests < 1:
        threading.Event().wait(0.005)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert everything(idle) == b""  # closed: the server has begun to stop
    with pytest.raises(ConnectionRefusedError):
        raw(server.url)
    begun.sendall(b"gun"[:2])
    assert everything(begun).startswith(b"HTTP/1.1 202 ")
    stopping.join(20)
    assert not stopping.is_alive()
    assert bodies(tmp_path) == ["begu"]


def test_killed_between_sync_and_answer(tmp_path: Path, client: httpx.Client) -> None:
    """The client cannot know, and sends again: one row."""
    headers = {"Idempotency-Key": "pay-1"}
    with process(tmp_path, failpoint="webhook.synced") as (child, url):
        with pytest.raises(httpx.TransportError):
            client.post(url, content=b"pay", headers=headers)
        assert child.wait(20) == -9
    with process(tmp_path) as (_, url):
        answer = client.post(url, content=b"pay", headers=headers)
        assert (answer.status_code, answer.json()["duplicate"]) == (200, True)
        assert client.post(url, content=b"next").json()["ids"][0].endswith("-0000000000000001-00000000")
    assert bodies(tmp_path) == ["pay", "next"]


def test_a_disk_that_is_full(tmp_path: Path, client: httpx.Client) -> None:
    """The system refuses in the middle of a write: nothing is half there, and smaller requests still fit."""
    with process(tmp_path, file_bytes=50_000) as (_, url):
        statuses = [client.post(url, content=b"%d" % n + b"x" * 12_000).status_code for n in range(6)]
        assert statuses == [202, 202, 202, 202, 503, 503]
        assert "cannot be written" in client.post(url, content=b"y" * 12_000).json()["error"]
        assert client.post(url, content=b"small").status_code == 202
    assert [body[:5] for body in bodies(tmp_path)] == ["0xxxx", "1xxxx", "2xxxx", "3xxxx", "small"]


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not loopback"):
        ServerOptions(spool=tmp_path, host="0.0.0.0")
    with pytest.raises(ConfigError, match="not a path"):
        ServerOptions(spool=tmp_path, path="hooks?x")
    with pytest.raises(ConfigError, match="a key is empty"):
        ServerOptions(spool=tmp_path, keys={"a": ""})
    assert "shop-secret" not in repr(ServerOptions(spool=tmp_path, keys=KEYS))
    with serving(tmp_path) as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        with pytest.raises(OccupiedError, match="cannot listen"):
            WebhookServer(ServerOptions(spool=tmp_path / "b", port=int(port)))
        with pytest.raises(OccupiedError, match="another server"):
            WebhookServer(ServerOptions(spool=tmp_path))
    with process(tmp_path, hst="x") as (child, url):
        assert (url, child.wait(20)) == ("", 3)


def test_a_server_of_its_own_stops_in_good_order(tmp_path: Path, client: httpx.Client) -> None:
    options = tmp_path / "options.json"
    options.write_text(
        json.dumps({"spool": str(tmp_path / "spool"), "signing": {"scheme": "github", "secrets": ["s"]}})
    )
    command = [sys.executable, "-m", "headgate.sources.webhook.server", str(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        url = child.stdout.readline().decode().strip()
        assert client.post(url, content=b"x").status_code == 401
        child.terminate()
        assert child.wait(20) == 0
    options.unlink()
    gone = subprocess.run(command, capture_output=True, timeout=30, check=False)
    assert (gone.returncode, b"options.json" in gone.stderr) == (3, True)
