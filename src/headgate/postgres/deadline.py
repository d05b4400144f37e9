"""A statement that may not take longer than a time. Afterwards its connection is ready for the next, or broken.

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

__all__ = ["within"]

T = TypeVar("T")
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
    """Whoever waits for the socket is told at once, whatever the other side does."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
