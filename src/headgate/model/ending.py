"""How tasks that run for ever come to their end."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["end"]

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
