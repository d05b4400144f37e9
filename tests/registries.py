"""A registry in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

from headgate.registry.http.server import RegistryServer
from headgate.registry.options import RegistryOptions

__all__ = ["running_registry"]


@contextmanager
def running_registry(options: RegistryOptions) -> Iterator[RegistryServer]:
    """Serve until the block ends."""
    told: Queue[Any] = Queue()

    async def work() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with RegistryServer.open(options) as server:
            told.put((server, loop, stop))
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            told.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    found = told.get(timeout=60)
    if isinstance(found, BaseException):
        thread.join()
        raise found
    server, loop, stop = found
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
