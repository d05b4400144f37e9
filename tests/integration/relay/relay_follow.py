"""A relay's intake over a simulated network, with a sink in the place of the log."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headgate.demo.network.simulate import Network, Told
from headgate.relay.ingest import Ingest, open_ingest
from headgate.relay.options import RelayOptions
from headgate.relay.store import open_store
from headgate.relay.verdict import Accepted

__all__ = ["Sink", "eventually", "expected", "following", "run"]

TIMEOUT_S = 20.0


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await test

    asyncio.run(limited())


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what tells nobody that it has happened."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


class Sink:
    """Takes events as the sequencer would. While `gate` is closed, none of them becomes safe."""

    def __init__(self) -> None:
        self.events: list[tuple[Accepted, str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self._grown = asyncio.Event()

    def __call__(self, accepted: Accepted, host: str, seq: int) -> Coroutine[Any, Any, None]:
        self.events.append((accepted, host, seq))
        self._grown.set()
        return self._safe()

    async def _safe(self) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error

    @property
    def numbers(self) -> list[tuple[str, int]]:
        return [(host, seq) for _, host, seq in self.events]

    def by_did(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for accepted, host, seq in self.events:
            found[accepted.frame.did].append((host, seq))
        return dict(found)

    async def until(self, *wanted: Told) -> None:
        """Wait for these events."""
        missing = {(told.host, told.seq) for told in wanted}
        while not missing <= set(self.numbers):
            self._grown.clear()
            await self._grown.wait()


def expected(network: Network) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for told in network.honest:
        found[told.did].append((told.host, told.seq))
    return dict(found)


@asynccontextmanager
async def following(
    network: Network, path: Path, sink: Sink, options: RelayOptions | None = None, *, crawl: bool = True
) -> AsyncIterator[Ingest]:
    """Follow all hosts of a network, with the store in a directory."""
    async with (
        open_store(path / "relay.sqlite") as store,
        open_ingest(options or network.options(), store, sink) as ingest,
    ):
        if crawl:
            for name in network.hostnames:
                await ingest.hosts.request_crawl(name)
        yield ingest
