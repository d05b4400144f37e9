"""The relay's port: proxies that reuse connections, requests that never end, and addresses that want too much."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from headgate.eventlog.fanout import FanOutOptions
from headgate.relay.front import FrontOptions
from tests.integration.relay.proxies import PROXIES, proxied
from tests.integration.relay.relay_follow import eventually, run
from tests.integration.relay.relay_serving import Served, commits, frames, serving

STREAM = "/xrpc/com.atproto.sync.subscribeRepos?cursor=0"
QUICK = FrontOptions(head_s=0.3, body_s=0.3, answer_s=5.0, write_s=0.3, idle_s=1.0, connections=40, per_address=1000)
DIRECT = FanOutOptions(any_origin=True, proxies=())  # loopback is an address like any other


@pytest.mark.parametrize("name", PROXIES)
def test_streams_work_behind_a_proxy_that_reuses_connections(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            await served.feed(*commits(2))
            with proxied(name, served.relay.url) as url:
                async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
                    for _ in range(20):
                        assert (await client.get("/xrpc/_health")).status_code == 200
                        async with connect(url.replace("http", "ws", 1) + STREAM, proxy=None) as consumer:
                            assert [each.seq for each in await frames(consumer, 2)] == [1, 2]
                            assert (await client.get("/xrpc/_health")).status_code == 200
                            [who] = served.relay.front.consumers()
                            assert who.address == "127.0.0.1"
                    assert (await client.get("/subscribe")).status_code == 426
                    assert (await client.get("/xrpc/_health")).status_code == 200

    run(test())


def test_consumers_behind_a_proxy_are_counted_by_their_own_address(tmp_path: Path) -> None:
    async def test() -> None:
        options = FanOutOptions(any_origin=True, per_address=2)
        async with serving(tmp_path, fanout=options) as served, AsyncExitStack() as stack:
            for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
                headers = {"X-Forwarded-For": f"203.0.113.9, {address}"}
                await stack.enter_async_context(served.subscribe(additional_headers=headers))
            with pytest.raises(InvalidStatus, match="429"):
                await served.subscribe(additional_headers={"X-Forwarded-For": "192.0.2.1"})
            for _ in range(3):  # the machine itself, where nobody is behind
                await stack.enter_async_context(served.subscribe())

    run(test())


def test_an_address_has_no_more_than_its_share_of_consumers(tmp_path: Path) -> None:
    async def test() -> None:
        options = replace(DIRECT, per_address=2)
        async with serving(tmp_path, fanout=options) as served:
            headers = {"X-Forwarded-For": "192.0.2.1"}  # from a stranger, whom nobody believes
            async with served.subscribe(additional_headers=headers), served.subscribe():
                with pytest.raises(InvalidStatus, match="429"):
                    await served.subscribe()
            await eventually(lambda: not served.relay.front.consumers())
            async with served.subscribe():
                pass

    run(test())


async def connected(served: Served, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.relay.url.rpartition(":")[2]))
    writer.write(data)
    return reader, writer


GET = b"GET /xrpc/_health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /xrpc/com.atproto.sync.requestCrawl HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"


@pytest.mark.parametrize(
    ("data", "phase"),
    [(b"", "head"), (b"GET", "head"), (GET, "head"), (GET + b"\r\n" + GET, "head"), (POST, "body")],
    ids=["nothing", "half a line", "half a head", "half of a second head", "half a body"],
)
def test_a_request_that_never_ends_is_ended(tmp_path: Path, data: bytes, phase: str) -> None:
    async def test() -> None:
        async with serving(tmp_path, front=QUICK) as served:
            reader, writer = await connected(served, data)
            await reader.read()  # until the end
            writer.close()
            assert served.relay.front.timed_out == {phase: 1}

    run(test())


def test_an_answer_that_nobody_takes_is_ended(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, front=replace(QUICK, write_s=0.5)) as served:
            metrics = GET.replace(b"/xrpc/_health", b"/metrics") + b"\r\n"
            reader, writer = await connected(served, metrics * 2_000)
            transport = writer.transport
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            await eventually(lambda: served.relay.front.timed_out["write"] == 1)
            writer.close()
            del reader

    run(test())


def test_half_sent_requests_keep_nobody_out(tmp_path: Path) -> None:
    """Not even before their time is over: whoever asks for nothing loses its place to whoever comes."""

    async def test() -> None:
        patient = replace(QUICK, head_s=3600.0)
        async with serving(tmp_path, front=patient) as served:
            halves = [await connected(served, GET) for _ in range(100)]
            await eventually(lambda: len(served.relay.front._clients) == 40)
            async with httpx.AsyncClient(base_url=served.relay.url, trust_env=False) as client:
                for path in ("/xrpc/_health", "/metrics", "/xrpc/com.atproto.sync.listHosts"):
                    assert (await client.get(path)).status_code == 200
            async with served.subscribe():
                pass
            for _, writer in halves:
                writer.close()

    run(test())


def test_an_address_has_no_more_than_its_share_of_connections(tmp_path: Path) -> None:
    async def test() -> None:
        few = replace(QUICK, head_s=3600.0, per_address=5)
        async with serving(tmp_path, front=few, fanout=DIRECT) as served:
            held = [await connected(served, GET) for _ in range(4)]
            await eventually(lambda: len(served.relay.front._clients) == 4)
            reader, writer = await connected(served, GET + b"Connection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
            held += [await connected(served, GET) for _ in range(3)]
            await eventually(lambda: served.relay.front.refused >= 2)
            for _, writer in held:
                writer.close()

    run(test())
