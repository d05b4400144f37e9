"""A relay before its first night: a network on loopback, with liars in it, a relay that follows it, and an audience.

    result = await rehearse(Rehearsal(seconds=10), tick=show)
    result.ok        # every honest event came out, once, as it was sent; and nothing else did

Nothing is skipped: hosts, directory and consumers are servers and clients on real sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from headgate.demo.network.simulate import Network
from headgate.relay.doors import SUBSCRIBE_REPOS
from headgate.relay.service import Relay, RelaySettings, open_relay
from headgate.runtime.ending import end
from headgate.wire.atproto import MAX_FRAME_BYTES, read_frame, resequence

__all__ = ["Progress", "Rehearsal", "rehearse"]

_TICK_S = 0.1
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How large the network is, how much it writes, and for how long."""

    directory: Path
    seconds: float = 10.0
    hosts: int = 5
    accounts: int = 50
    rate: int = 200  # commits in a second
    lies: float = 0.05  # which share of them is lied about first
    consumers: int = 2
    workers: int = 0
    seed: int = 1
    port: int = 0


@dataclass(slots=True)
class Progress:
    """Where things are. The last one is the result."""

    url: str
    consumers: int
    seconds: float = 0.0
    honest: int = 0
    lies: int = 0
    accepted: int = 0
    received: int = 0  # by the first consumer
    missing: int = 0  # honest events that did not come out
    unexpected: int = 0  # events that came out and should not have, or twice
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.missing and not self.unexpected and sum(self.dropped.values()) >= self.lies

    @property
    def events_per_second(self) -> float:
        return self.received / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        names = ("seconds", "honest", "lies", "accepted", "received", "missing", "unexpected", "dropped", "consumers")
        said: dict[str, Any] = {name: getattr(self, name) for name in names}
        return said | {"events_per_second": round(self.events_per_second, 1), "ok": self.ok}


async def rehearse(wanted: Rehearsal, tick: Callable[[Progress], None], stop: asyncio.Event | None = None) -> Progress:
    """Run it all, and compare what came out with what went in. `stop` ends the writing early."""
    async with AsyncExitStack() as stack:
        network = Network(hosts=wanted.hosts, accounts=wanted.accounts, seed=wanted.seed, lies=wanted.lies)
        await stack.enter_async_context(network)
        options = network.options(workers=wanted.workers)
        settings = RelaySettings(wanted.directory, port=wanted.port, crawl=tuple(network.hostnames), options=options)
        relay = await stack.enter_async_context(open_relay(settings))
        address = f"{relay.url.replace('http', 'ws', 1)}{SUBSCRIBE_REPOS}?cursor=0"
        audience = [
            await stack.enter_async_context(connect(address, max_size=MAX_FRAME_BYTES, compression=None))
            for _ in range(wanted.consumers)
        ]
        heard = _Heard()
        tasks = [asyncio.create_task(_listen(audience[0], heard.hear))]
        tasks += [asyncio.create_task(_listen(each, _unheard)) for each in audience[1:]]
        stack.push_async_callback(end, *tasks)
        progress = Progress(relay.url, wanted.consumers)
        await _write(wanted, network, relay, heard, progress, tick, stop or asyncio.Event())
        return _compared(network, heard, progress)


async def _write(
    wanted: Rehearsal,
    network: Network,
    relay: Relay,
    heard: _Heard,
    progress: Progress,
    tick: Callable[[Progress], None],
    stop: asyncio.Event,
) -> None:
    began, written = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < wanted.seconds and not stop.is_set():
        due = int(elapsed * wanted.rate) - written
        for _ in range(due):
            network.commit()
        written += due
        tick(_looked(network, relay, heard, progress, elapsed))
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK_S):
                await stop.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await heard.wait_for(len(network.honest))
            await relay.parts.intake.settled()
    tick(_looked(network, relay, heard, progress, time.monotonic() - began))


def _looked(network: Network, relay: Relay, heard: _Heard, progress: Progress, elapsed: float) -> Progress:
    book = relay.parts.ledger.total
    progress.seconds, progress.honest, progress.lies = round(elapsed, 2), len(network.honest), len(network.lies)
    progress.accepted, progress.dropped, progress.received = book.accepted, dict(book.dropped), heard.count
    return progress


def _compared(network: Network, heard: _Heard, progress: Progress) -> Progress:
    hosts = {host.name: host for host in network.hosts}
    wanted = Counter(_unnumbered(hosts[told.host].frame(told.seq)) for told in network.honest)
    progress.missing = (wanted - heard.frames).total()
    progress.unexpected = (heard.frames - wanted).total()
    return progress


def _unnumbered(message: bytes) -> bytes:
    """A frame without its number, which is each relay's own."""
    return resequence(read_frame(message), 1)


class _Heard:
    """What the first consumer got."""

    def __init__(self) -> None:
        self.frames: Counter[bytes] = Counter()
        self.count = 0
        self._grown = asyncio.Event()

    def hear(self, message: bytes) -> None:
        self.frames[_unnumbered(message)] += 1
        self.count += 1
        self._grown.set()

    async def wait_for(self, count: int) -> None:
        while self.count < count:
            self._grown.clear()
            await self._grown.wait()


def _unheard(message: bytes) -> None:
    """The other consumers are there to be served."""


async def _listen(connection: ClientConnection, hear: Callable[[bytes], None]) -> None:
    with suppress(ConnectionClosed):
        async for message in connection:
            assert isinstance(message, bytes)
            hear(message)
