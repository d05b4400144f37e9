"""A bad network on loopback: a TCP proxy whose connections can be cut and stalled while they are in use.

It forwards bytes and knows no protocol, so it stands before PostgreSQL and NATS alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

__all__ = ["Proxy"]

_LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 64 << 10
_ANSWER_S = 10.0
# Closing a socket with this setting resets the connection instead of ending it in good order.
_NO_LINGER = struct.pack("ii", 1, 0)

T = TypeVar("T")


class Proxy:
    """Listens on `port` from the moment it is entered. Its methods may be called from any thread."""

    def __init__(self, target_port: int, host: str = _LOOPBACK) -> None:
        self.host = host
        self.port = 0
        self.accepted = 0
        self._target_port = target_port
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._main, name="proxy", daemon=True)
        self._links: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop = self._ready.result(_ANSWER_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_ANSWER_S)

    @property
    def open_connections(self) -> int:
        """How many connections go through it now."""
        return self._ask(self._count())

    def cut(self) -> int:
        """Reset every connection, as a router does that lost its memory. New ones are welcome. Says how many."""
        return self._ask(self._cut())

    def stall(self) -> None:
        """Forward nothing, refuse nothing: the other side is silent, as behind a cable that was pulled."""
        self._ask(self._flow(False))

    def resume(self) -> None:
        """Forward again, beginning with what was held back."""
        self._ask(self._flow(True))

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(_ANSWER_S)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set_result(asyncio.get_running_loop())
        await self._over.wait()
        server.close()
        await self._cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. It runs as a task of its own, which `cut` cancels."""
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        self._links[task] = (writer,)
        try:
            far_reader, far_writer = await asyncio.open_connection(_LOOPBACK, self._target_port)
            self._links[task] = (writer, far_writer)
            await self._forward(reader, far_writer, far_reader, writer)
        except (OSError, asyncio.CancelledError):
            _reset(self._links[task])
        finally:
            for each in self._links.pop(task):
                each.close()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Both ways, until one side ends."""
        ways = [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        await self._flowing.wait()  # the end of a connection does not get through either

    async def _cut(self) -> int:
        tasks = list(self._links)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        return len(tasks)

    async def _flow(self, flows: bool) -> None:
        if flows:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _count(self) -> int:
        return len(self._links)


def _reset(writers: tuple[asyncio.StreamWriter, ...]) -> None:
    for writer in writers:
        raw: socket.socket = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        writer.transport.abort()
