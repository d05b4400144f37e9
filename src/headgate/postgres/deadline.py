"""Statements that may not take longer than a time. Afterwards their connection is ready for the next, or broken.

Cancelling a task inside the driver does not do: a driver that is interrupted while it sends leaves its connection in
the middle of a message, and one that waits for a server that does not answer goes on waiting.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

__all__ = ["PromptConnection", "QuietConnection", "within"]

T = TypeVar("T")
_LOOK_S = 60.0
_CANCELS, _CANCEL_S = 3, 1.0  # for the server to hear that nobody wants it any more, and again for it to obey


async def within(seconds: float, connection: psycopg.AsyncConnection, work: Coroutine[Any, Any, T]) -> T:
    """What `work` on this connection returns.

    When its time is over the server is asked to stop: `QueryCanceled` says that it did, and that nothing was written.
    If it does not answer, the line is cut and `TimeoutError` raised: then nobody knows.
    """
    running = asyncio.ensure_future(work)
    try:
        is_over = await _ends(running, seconds)
        for _ in range(_CANCELS):  # a function may catch the first and go on
            if not is_over:
                with suppress(psycopg.Error):
                    await connection.cancel_safe(timeout=_CANCEL_S)
                is_over = await _ends(running, _CANCEL_S)
        if not is_over:
            raise TimeoutError
        return running.result()
    finally:
        if not running.done():
            _cut(connection)
            await asyncio.gather(running, return_exceptions=True)


async def _ends(running: asyncio.Future[Any], seconds: float) -> bool:
    done, _ = await asyncio.wait([running], timeout=seconds)
    return bool(done)


def _cut(connection: psycopg.AsyncConnection) -> None:
    """Shut the socket down, which wakes who waits for it whatever the other side does."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


class QuietConnection(psycopg.AsyncConnection):
    """For waiting a long time, as for notifications.

    The driver looks up every tenth of a second, so that a thread can be interrupted. A task is interrupted anyway, and
    a line that is closed wakes it.
    """

    async def wait(self, gen: PQGen[T], interval: float = _LOOK_S, timeout: float | None = None) -> T:  # noqa: ASYNC109
        """Consume a generator of the driver: all that it sends and receives goes through here."""
        return await super().wait(gen, interval, timeout)


class PromptConnection(QuietConnection):
    """Every answer has the same time: a line that is deaf ends in an error, and not in silence.

    For connections whose statements nobody else watches. What takes too long is cancelled; a server that does not
    even answer to that loses the connection, and whoever waits gets an `OperationalError`.
    """

    patience_s: float = 60.0

    async def wait(self, gen: PQGen[T], interval: float = _LOOK_S, timeout: float | None = None) -> T:  # noqa: ASYNC109
        """Consume a generator of the driver, and give up on it."""
        watch = _Watch(self)
        timer = asyncio.get_running_loop().call_later(self.patience_s, watch.begin)
        try:
            return await super().wait(gen, interval, timeout)
        except psycopg.OperationalError as error:
            if watch.has_cut:
                text = f"PostgreSQL has not answered for {self.patience_s:g} s"
                raise psycopg.OperationalError(text) from error
            raise
        finally:
            timer.cancel()
            watch.end()


class _Watch:
    """Stops a statement whose time is over."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection
        self._stopping: asyncio.Task[None] | None = None
        self.has_cut = False

    def begin(self) -> None:
        self._stopping = asyncio.create_task(self._stop(), name="statement that takes too long")

    def end(self) -> None:
        if self._stopping is not None:
            self._stopping.cancel()

    async def _stop(self) -> None:
        for _ in range(_CANCELS):
            with suppress(psycopg.Error):
                await self._connection.cancel_safe(timeout=_CANCEL_S)
            await asyncio.sleep(_CANCEL_S)
        self.has_cut = True
        _cut(self._connection)
