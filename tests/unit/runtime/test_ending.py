"""Work side by side that ends, also if a cancellation gets lost."""

from __future__ import annotations

import asyncio

import pytest

from headgate.runtime.ending import run_until


async def deaf(times: int) -> None:
    """Overhears that it is cancelled, so many times."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not times:
                raise
            times -= 1


async def fail() -> None:
    raise ZeroDivisionError


async def nothing() -> None:
    """Has nothing more to do."""


def test_it_ends_when_told() -> None:
    async def story() -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().call_soon(over.set)
        async with asyncio.timeout(10):
            await run_until(over, deaf(1), deaf(0), nothing())

    asyncio.run(story())


def test_the_first_error_ends_all() -> None:
    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await run_until(asyncio.Event(), deaf(1), fail())

    asyncio.run(story())


def test_who_is_cancelled_cancels_all() -> None:
    async def story() -> None:
        running = asyncio.create_task(run_until(asyncio.Event(), deaf(1)))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=10)
        assert running.cancelled()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())
