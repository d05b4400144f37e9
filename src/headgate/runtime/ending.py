"""How tasks that run for ever come to their end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

__all__ = ["end", "run_until", "stopped_by_signals"]

_PATIENCE_S = 0.5


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they are done; what they raised is theirs.

    Before Python 3.12 `asyncio.wait_for`, which psycopg waits with, may swallow a cancellation: it is repeated.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_PATIENCE_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_until(over: asyncio.Event, *works: Coroutine[Any, Any, None]) -> None:
    """Run all of them side by side until `over` is set or one of them fails, whose error this raises."""
    loops = [asyncio.create_task(work) for work in works]
    ending = asyncio.create_task(over.wait())
    waiting: set[asyncio.Task[Any]] = {*loops, ending}
    try:
        while not ending.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        await end(*loops, ending)


def stopped_by_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set. The second signal is not caught: it ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def ask(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask, number)
    return stop
