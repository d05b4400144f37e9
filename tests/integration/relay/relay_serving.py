"""A whole relay in the test's loop, fed by hand or by a simulated network, and consumers for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from headgate.demo.network.repository import Repository, create
from headgate.demo.network.simulate import Network
from headgate.relay.options import RelayOptions
from headgate.relay.service import Relay, RelaySettings, open_relay
from headgate.relay.verdict import Accepted, RepoState
from headgate.wire.atproto import Frame, Kind, read_event, read_frame

__all__ = ["NOW_US", "POST", "TOKEN", "Served", "commits", "frame", "frames", "kinds", "rest", "serving"]

NOW_US = 1_700_000_000_000_000
TOKEN = "for-tests"
POST = "app.bsky.feed.post"
OFFLINE = RelayOptions(allow_private=True, plc_url="http://localhost:9")


class Served:
    """A relay and how to talk to it."""

    def __init__(self, relay: Relay, client: httpx.AsyncClient) -> None:
        self.relay = relay
        self.client = client

    async def feed(self, *messages: bytes) -> list[int]:
        """Number events as if they had been accepted."""
        frames = [read_frame(message) for message in messages]
        accepted = [Accepted(frame, read_event(frame), RepoState()) for frame in frames]
        placed = [self.relay.parts.sequencer.sequenced(each, "pds.example", 1) for each in accepted]
        return list(await asyncio.gather(*placed))

    def listen(self, path: str, **options: Any) -> connect:
        return connect(
            self.relay.url.replace("http", "ws", 1) + path, compression=None, max_size=None, proxy=None, **options
        )

    def subscribe(self, query: str = "", **options: Any) -> connect:
        return self.listen(f"/xrpc/com.atproto.sync.subscribeRepos{query}", **options)

    async def get(self, path: str, status: int = 200) -> Any:
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        return response.json()

    async def post(self, path: str, status: int = 200, **body: Any) -> Any:
        response = await self.client.post(path, json=body)
        assert response.status_code == status, response.text
        return response.json()

    async def wait_for_listeners(self, count: int) -> None:
        """The handshake is over a moment before the consumer has its place."""
        fanout = self.relay.front.fanout
        while fanout.stats()["listeners"] < count or fanout.tail.is_behind:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@asynccontextmanager
async def serving(path: Path, network: Network | None = None, **changes: Any) -> AsyncIterator[Served]:
    settings = RelaySettings(path, port=0, admin_token=TOKEN, options=OFFLINE)
    if network is not None:
        settings = replace(settings, crawl=tuple(network.hostnames), options=network.options())
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        open_relay(replace(settings, **changes)) as relay,
        httpx.AsyncClient(base_url=relay.url, headers=headers, timeout=10, trust_env=False) as client,
    ):
        yield Served(relay, client)


def commits(count: int, name: str = "alice") -> list[bytes]:
    repo = Repository(name, "pds.example")
    return [
        repo.commit([create(f"{POST}/{number}", {"$type": POST, "n": number})], seq=number + 1, now_us=NOW_US + number)
        for number in range(count)
    ]


async def frames(connection: ClientConnection, count: int) -> list[Frame]:
    return [await frame(connection) for _ in range(count)]


async def frame(connection: ClientConnection) -> Frame:
    message = await asyncio.wait_for(connection.recv(), 10)
    assert isinstance(message, bytes)
    return read_frame(message)


async def rest(connection: ClientConnection) -> list[Frame]:
    """All that comes until the other side ends it."""
    found: list[Frame] = []
    with suppress(ConnectionClosed):
        while True:
            found.append(await frame(connection))
    return found


def kinds(found: list[Frame]) -> list[Kind]:
    return [each.kind for each in found]
