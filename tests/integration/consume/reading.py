"""Consumers of a stream that the test writes, and what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from headgate.consume import CaughtUp, Changes, Consumer, SnapshotEnd, SnapshotRows
from tests.snapshots import shared_stack
from tests.snapshots.written import Written

__all__ = ["Reader", "Row", "run", "until"]

Row = tuple[str, int]
_started: list[asyncio.Task[None]] = []


def run(test: Callable[[Written], Awaitable[None]], **options: Any) -> None:
    """With a stream of three tables, `a`, `b` and `c`."""

    async def within_time() -> None:
        url = shared_stack().endpoints.nats_url
        assert url is not None
        async with asyncio.timeout(120):
            written = await Written.open(url, ["a", "b", "c"], **options)
            try:
                await test(written)
            finally:
                for task in _started:
                    await ended(task)
                _started.clear()
                await written.close()

    asyncio.run(within_time())


async def ended(task: asyncio.Task[None]) -> None:
    """Cancelled more than once, as one may be lost: Python 3.11's `wait_for` drops one that comes with its result."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.5)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - of several readers at once
            await asyncio.sleep(0.01)


class Reader:
    """Notes what a consumer gives out: snapshots, the rows of each transaction, and when it is up to date.

    `tables` holds the ids of each table, as they are after all of that.
    """

    def __init__(self, wanted: list[str] | Literal["*"], **options: Any) -> None:
        self.wanted = wanted
        self.transactions: list[list[Row]] = []
        self.tables: dict[str, list[int]] = {}
        self.snapshots: list[str] = []
        self.operations: list[str] = []
        self.caught_up = asyncio.Event()
        self.position: dict[str, Any] | None = None
        self.options = options
        self._part: list[Row] = []
        self._rows: list[int] = []
        self._task: asyncio.Task[None] | None = None

    def wants(self, table: str) -> bool:
        return self.wanted == "*" or table in self.wanted

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self.read())
        _started.append(self._task)
        return self._task

    async def stop(self) -> None:
        assert self._task is not None
        assert not self._task.done(), self._task.exception()
        await ended(self._task)

    async def until_caught_up(self) -> None:
        """From where it is, by a consumer of its own."""
        self.caught_up.clear()
        task = self.start()
        waiting = asyncio.create_task(self.caught_up.wait())
        async with asyncio.timeout(15):
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        await self.stop()

    async def read(self) -> None:
        url = shared_stack().endpoints.nats_url or ""
        async with Consumer(url, self.wanted, position=self.position, **self.options) as consumer:
            async for step in consumer.steps():
                if isinstance(step, SnapshotRows):
                    self._rows += [row["id"] for row in step.rows]
                elif isinstance(step, SnapshotEnd):
                    self.tables[step.schema.table], self._rows = self._rows, []
                    self.snapshots.append(step.schema.table)
                    self.position = consumer.position()
                elif isinstance(step, Changes):
                    self._take(step)
                    if step.ends:
                        self.position = consumer.position()
                elif isinstance(step, CaughtUp):
                    self.position = consumer.position()
                    self.caught_up.set()

    def _take(self, step: Changes) -> None:
        self.operations += [each.operation for each in step.changes]
        rows = [(each.table or "", each.data["id"]) for each in step.changes if each.operation == "INSERT"]
        self._part += rows
        if step.ends and self._part:
            self.transactions.append(self._part)
            for table, number in self._part:
                self.tables.setdefault(table, []).append(number)
            self._part = []
