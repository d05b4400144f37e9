"""Blocking calls of a loop, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(pool: Executor | None, call: Callable[[], T]) -> T:
    """Call in a thread, and do not return before it has: what it uses may be closed next."""
    future = asyncio.get_running_loop().run_in_executor(pool, call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
