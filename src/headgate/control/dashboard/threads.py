"""Threads for the dashboard alone: a page that waits for a server holds up other pages, and not the HTTP interface."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

__all__ = ["in_thread"]

_MOST = 10  # at once

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Call something that may wait, when one of our threads is free."""
    return await to_thread.run_sync(work, *arguments, limiter=_limiter())


@cache
def _limiter() -> CapacityLimiter:
    return CapacityLimiter(_MOST)
