"""The server, with real clients: cursors, filters, slow and hostile ones."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import psutil
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headgate.eventlog import LogOptions
from headgate.eventlog.fanout import FanOutOptions
from tests.gateway.certificates import write_certificate
from tests.integration.eventlog.served_log import Live, in_loop, live, seqs

HANDSHAKE = (
    b"GET /subscribe%b HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def until(condition: Callable[[], bool], within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - the server tells nobody what it counts
            await asyncio.sleep(0.002)


async def closed(client: ClientConnection) -> tuple[list[dict[str, object]], int, str]:
    """What came until the server closed, and how it did."""
    found = []
    try:
        async with asyncio.timeout(10):
            while True:
                found.append(json.loads(await client.recv()))
    except ConnectionClosed:
        return found, client.close_code or 0, client.close_reason or ""


@in_loop
async def test_who_comes_without_a_cursor_gets_what_is_new(tmp_path: Path) -> None:
    async with live(tmp_path) as served:
        await served.publish(5)
        await until(lambda: served.fan_out.tail.position == 5)
        async with served.connect() as client:
            await served.publish(3)
            assert await seqs(client, 3) == [6, 7, 8]


@pytest.mark.parametrize(("cursor", "first"), [(0, 1), (-7, 1), (1, 1), (120, 120), (200, 200)])
@pytest.mark.parametrize("ring", [0, 32 << 20], ids=["disk", "memory"])
@in_loop
async def test_a_cursor_is_inclusive_and_joins_what_is_new(tmp_path: Path, cursor: int, first: int, ring: int) -> None:
    async with live(tmp_path, FanOutOptions(ring=ring, chunk=2000)) as served:
        await served.publish(200)
        async with served.connect(f"?cursor={cursor}") as client:
            writing = asyncio.create_task(served.publish(200))
            assert await seqs(client, 401 - first) == list(range(first, 401))
            await writing


@in_loop
async def test_an_outdated_cursor_is_told_first(tmp_path: Path) -> None:
    async with live(tmp_path, log_options=LogOptions(segment_events=10, max_bytes=1500)) as served:
        await served.publish(1)  # after which old events are removed only when a segment ends
        await served.publish(99)
        oldest = served.fan_out.tail.reader.oldest_seq
        assert 1 < oldest < 100
        async with served.connect("?cursor=1") as client:
            info = json.loads(await client.recv())
            assert info["info"] == "OutdatedCursor"
            assert await seqs(client, 101 - oldest) == list(range(oldest, 101))
        async with served.connect("?cursor=0") as client:
            assert await seqs(client, 101 - oldest) == list(range(oldest, 101))


@pytest.mark.parametrize(("query", "name"), [("?cursor=6", "FutureCursor"), ("?cursor=x", "InvalidRequest")])
@in_loop
async def test_a_cursor_that_cannot_be(tmp_path: Path, query: str, name: str) -> None:
    async with live(tmp_path) as served:
        await served.publish(5)
        async with served.connect(query) as client:
            found, code, reason = await closed(client)
        assert [each["error"] for each in found] == [name]
        assert (code, reason) == (1008, name)


@in_loop
async def test_filters_choose_and_equal_ones_share(tmp_path: Path) -> None:
    async with live(tmp_path) as served:
        async with (
            served.connect("?topic=a") as one,
            served.connect("?topic=a&topic=b") as both,
            served.connect("?topic=b&topic=a") as same,
            served.connect() as everything,
        ):
            await until(lambda: served.fan_out.stats()["listeners"] == 4)
            assert served.fan_out.stats()["groups"] == 3
            for topic in "abc":
                await served.publish(2, topic)
            assert await seqs(one, 2) == [1, 2]
            assert await seqs(both, 4) == await seqs(same, 4) == [1, 2, 3, 4]
            assert await seqs(everything, 6) == [1, 2, 3, 4, 5, 6]
        await until(lambda: served.fan_out.stats()["groups"] == 0)


@in_loop
async def test_who_says_twice_what_it_has_seen_is_believed_once(tmp_path: Path) -> None:
    async with live(tmp_path) as served:
        await served.publish(5)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 1\r\nLast-Event-ID: 4\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)) == b"id: 5\n"
        writer.close()


@in_loop
async def test_a_stream_resumes_behind_the_last_event(tmp_path: Path) -> None:
    async with live(tmp_path) as served:
        await served.publish(10)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /events?topic=t HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 7\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream")
        for expected in (8, 9, 10, 11):
            if expected == 11:
                await served.publish(1)
            block = (await asyncio.wait_for(reader.readuntil(b"\n\n"), 10)).decode()
            identity, data = block.splitlines()[:2]
            assert identity == f"id: {expected}"
            assert json.loads(data.removeprefix("data: "))["seq"] == expected
        writer.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 404),
        (b"POST /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 405),
        (b"GET /subscribe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 426),
        (b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://elsewhere\r\n\r\n", 403),
        (b"GET /events HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n", 403),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 4000, 431),
        (b"GET " + b"/" * 9000 + b" HTTP/1.1\r\n\r\n", 400),
    ],
    ids=["path", "method", "no upgrade", "origin", "rebound", "TLS", "endless", "long"],
)
@in_loop
async def test_requests_that_are_refused(tmp_path: Path, request_bytes: bytes, status: int) -> None:
    async with live(tmp_path) as served:
        answer = await served.get(request_bytes)
        assert answer.startswith(b"HTTP/1.1 %d " % status)


@in_loop
async def test_a_token_is_asked_for(tmp_path: Path) -> None:
    async with live(tmp_path, FanOutOptions(token="right")) as served:
        with pytest.raises(InvalidStatus, match="401"):
            async with served.connect():
                pass
        with pytest.raises(InvalidStatus, match="401"):
            async with served.connect(additional_headers={"Authorization": "Bearer wrong"}):
                pass
        async with served.connect(additional_headers={"Authorization": "Bearer right"}) as client:
            await served.publish(1)
            assert await seqs(client, 1) == [1]


@in_loop
async def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    async with live(tmp_path, FanOutOptions(connections=2)) as served:
        async with served.connect(), served.connect():
            with pytest.raises(InvalidStatus, match="503"):
                async with served.connect():
                    pass
        await until(lambda: served.fan_out.stats()["connections"] == 0)
        async with served.connect():
            pass


@in_loop
async def test_whoever_asks_for_nothing_keeps_nobody_out(tmp_path: Path) -> None:
    async with live(tmp_path, FanOutOptions(connections=2, handshake_s=3600.0)) as served:
        halves = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(5)]
        for _, writer in halves:
            writer.write(b"GET /subscribe HTTP/1.1\r\n")
        async with served.connect(), served.connect():
            pass
        for _, writer in halves:
            writer.close()


@in_loop
async def test_pings_are_answered_and_sent(tmp_path: Path) -> None:
    async with live(tmp_path, FanOutOptions(ping_s=0.0)) as served, served.connect() as client:
        await asyncio.wait_for(await client.ping(b"there?"), 10)
        connection = next(iter(served.fan_out._connections))
        await until(lambda: not connection.heard)  # asked
        await until(lambda: connection.heard)  # and answered


@in_loop
async def test_who_is_silent_for_too_long_is_let_go(tmp_path: Path) -> None:
    async with live(tmp_path, FanOutOptions(ping_s=0.0)) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as silent:
            silent.sendall(HANDSHAKE % b"")
            await until(lambda: served.fan_out.stats()["listeners"] == 1)
            await until(lambda: served.fan_out.stats()["connections"] == 0)


HOSTILE = {
    "noise": bytes(range(256)) * 50,
    "unmasked": b"\x81\x05hello",
    "reserved bits": b"\xf1\x80\x00\x00\x00\x00",
    "huge length": b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff" + bytes(4),
    "large message": b"\x82\xfe\xff\xff" + bytes(4) + bytes(65_535),
    "endless fragments": (b"\x02\x80" + bytes(4)) + (b"\x00\xfe\x03\xe8" + bytes(4) + bytes(1000)) * 40,
    "long ping": b"\x89\xfe\x00\x7e" + bytes(4) + bytes(126),
    "close and more": b"\x88\x80" + bytes(4) + bytes(5000),
    "bad close code": b"\x88\x82" + bytes(4) + b"\x00\x01",
}


@pytest.mark.parametrize("name", HOSTILE)
@in_loop
async def test_hostile_bytes_end_one_connection_only(tmp_path: Path, name: str) -> None:
    async with live(tmp_path) as served, served.connect() as good:
        answer = await served.get(HANDSHAKE % b"" + HOSTILE[name])
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert answer.partition(b"\r\n\r\n")[2][:1] == b"\x88"  # a close frame
        await served.publish(2)
        assert await seqs(good, 2) == [1, 2]


@in_loop
async def test_messages_of_clients_are_ignored(tmp_path: Path) -> None:
    async with live(tmp_path) as served, served.connect() as client:
        for _ in range(50):
            await client.send("x" * 1000)
            await client.send(b"y" * 1000)
        await served.publish(1)
        assert await seqs(client, 1) == [1]


@in_loop
async def test_a_flood_of_pings_does_not_fill_memory(tmp_path: Path) -> None:
    async with live(tmp_path, FanOutOptions(write=64 << 10)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
        writer.write(HANDSHAKE % b"")
        await reader.readuntil(b"\r\n\r\n")
        ping = (b"\x89\xfd" + bytes(4) + bytes(125)) * 1000
        (connection,) = served.fan_out._connections

        async def ask() -> None:
            while True:
                writer.write(ping)
                await writer.drain()

        asking = asyncio.create_task(ask())
        await until(lambda: connection.is_paused)  # answers are not read, so questions are no longer taken
        await asyncio.wait([asking], timeout=0.2)
        asking.cancel()
        assert connection.transport.get_write_buffer_size() < 1 << 20
        writer.transport.abort()


def raw_client(served: Live, query: bytes = b"") -> socket.socket:
    """A listener that does not read, with little room in the kernel."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", served.port))
    client.sendall(HANDSHAKE % query)
    return client


@in_loop
async def test_who_does_not_keep_up_is_cut_off_and_nobody_else_notices(tmp_path: Path) -> None:
    options = FanOutOptions(write=256 << 10, chunk=64 << 10, buffer=2 << 20, close_s=0.2, ring=1 << 20)
    async with live(tmp_path, options) as served, AsyncExitStack() as stack:
        with ExitStack() as slow:
            for _ in range(10):
                slow.enter_context(raw_client(served))
            good = await stack.enter_async_context(served.connect())
            await until(lambda: served.fan_out.stats()["listeners"] == 11)
            before, most_kept, delays = psutil.Process(os.getpid()).memory_info().rss, 0, []
            for number in range(300):
                began = time.perf_counter()
                await served.publish(10, size=5000)
                assert await seqs(good, 10) == list(range(10 * number + 1, 10 * number + 11))
                delays.append(time.perf_counter() - began)
                most_kept = max(most_kept, served.fan_out.stats()["kept_bytes"])
            await until(lambda: served.fan_out.stats()["connections"] == 1)
            assert served.fan_out.too_slow == 10
            assert 0 < most_kept <= (2 << 20) + (64 << 10) + 60_000  # shared by all ten
            assert psutil.Process(os.getpid()).memory_info().rss - before < 64 << 20
            assert sorted(delays)[len(delays) * 99 // 100] < 0.5


@in_loop
async def test_who_is_cut_off_is_told_why(tmp_path: Path) -> None:
    options = FanOutOptions(write=64 << 10, chunk=32 << 10, buffer=256 << 10, close_s=10)
    async with live(tmp_path, options) as served:
        with raw_client(served) as slow:
            await until(lambda: served.fan_out.stats()["listeners"] == 1)
            for _ in range(2000):
                await served.publish(10, size=5000)
                if served.fan_out.too_slow:
                    break
            slow.setblocking(False)
            loop, data = asyncio.get_running_loop(), b""
            while not data.endswith(b"\x03\xf0ConsumerTooSlow"):
                data = (data + await asyncio.wait_for(loop.sock_recv(slow, 1 << 20), 10))[-500:]
            assert b'{"error": "ConsumerTooSlow", "message": ' in data


@in_loop
async def test_a_replay_waits_for_its_listener(tmp_path: Path) -> None:
    options = FanOutOptions(write=64 << 10, chunk=32 << 10, buffer=64 << 10, ring=1 << 16)
    async with live(tmp_path, options) as served:
        for _ in range(20):
            await served.publish(200, size=5000)
        with raw_client(served, b"?cursor=1") as slow:
            await until(lambda: any(each.is_paused for each in served.fan_out._connections))
            (connection,) = served.fan_out._connections
            for _ in range(5):
                await served.publish(100, size=5000)
            assert connection.transport.get_write_buffer_size() < 128 << 10
            assert served.fan_out.stats()["catching_up"] == 1
            assert served.fan_out.too_slow == 0
            slow.setblocking(False)
            loop, got = asyncio.get_running_loop(), 0
            while got < 4500 * 5000:
                got += len(await asyncio.wait_for(loop.sock_recv(slow, 1 << 20), 10))
            await until(lambda: served.fan_out.stats()["listeners"] == 1)


@in_loop
async def test_who_stops_reading_for_good_is_cut_off(tmp_path: Path) -> None:
    options = FanOutOptions(write=64 << 10, chunk=32 << 10, stall_s=0.5, close_s=0.1, ring=0)
    async with live(tmp_path, options) as served:
        for _ in range(10):
            await served.publish(200, size=5000)
        with raw_client(served, b"?cursor=1"):
            await until(lambda: served.fan_out.too_slow == 1)
            await until(lambda: not served.fan_out._connections)


@in_loop
async def test_what_is_taken_down_is_not_replayed_from_memory_either(tmp_path: Path) -> None:
    async with live(tmp_path) as served:
        await served.publish(3, "good")
        await served.publish(3, "bad")
        await served.publish(3, "good")
        await until(lambda: served.fan_out.tail.position == 9)
        assert await served.log.scrub(lambda record: b"bad" in record.payload) == 3
        async with served.connect("?cursor=1") as client:
            assert await seqs(client, 6) == [1, 2, 3, 7, 8, 9]


@in_loop
async def test_idle_listeners_cost_little(tmp_path: Path) -> None:
    async with live(tmp_path) as served:
        with ExitStack() as clients:
            for _ in range(20):
                clients.enter_context(raw_client(served))
            await until(lambda: served.fan_out.stats()["listeners"] == 20)
            before = psutil.Process(os.getpid()).memory_info().rss
            for _ in range(80):
                clients.enter_context(raw_client(served))
            await until(lambda: served.fan_out.stats()["listeners"] == 100)
            assert psutil.Process(os.getpid()).memory_info().rss - before < 80 * (40 << 10)


@in_loop
async def test_tls(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client_side = ssl.create_default_context(cafile=str(certificate))
    client_side.check_hostname = False
    async with live(tmp_path / "log", FanOutOptions(ring=0), tls=server) as served:
        await served.publish(300, size=5000)
        async with connect(f"wss://127.0.0.1:{served.port}/subscribe?cursor=1", ssl=client_side) as client:
            await served.publish(10)
            assert await seqs(client, 310) == list(range(1, 311))
