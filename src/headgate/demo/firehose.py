"""The demo's network: hosts of the AT Protocol on this machine, whose people write all day, and some of them lie."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import closing
from importlib import resources
from types import TracebackType
from typing import Any, Self

from headgate.demo.network.simulate import Network
from headgate.runtime.listening import listen

__all__ = ["DemoNetwork", "relay_line"]

_HOSTS, _ACCOUNTS, _LIES = 5, 50, 0.05
_COMMITS_A_SECOND = 50
_START_S = 60.0


class DemoNetwork:
    """Runs in a thread. `toml` is what the demo's configuration needs to follow it."""

    def __init__(self) -> None:
        self.toml = ""
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="demo network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(_START_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Network(_HOSTS, _ACCOUNTS, lies=_LIES) as network:
            self.toml = _configuration(network)
            self._ready.set()
            while not self._over.is_set():
                network.commit()
                try:
                    async with asyncio.timeout(1 / _COMMITS_A_SECOND):
                        await self._over.wait()
                except TimeoutError:
                    pass


def _configuration(network: Network) -> str:
    with closing(listen("127.0.0.1", 0, backlog=1, where="relay.port")) as free:
        port = free.getsockname()[1]
    template = resources.files("headgate.demo").joinpath("network.toml").read_text(encoding="utf-8")
    return template % {
        "relay_port": port,
        "plc_url": network.directory.url,
        "hosts": json.dumps(network.hostnames),
    }


def relay_line(relay: Mapping[str, Any]) -> str:
    """How the relay is, in words."""
    counted = relay.get("counters") or {}
    dropped = sum((counted.get("dropped") or {}).values())
    return f"{counted.get('accepted', 0):,} events verified, {dropped:,} lies dropped, {relay['url']}"
