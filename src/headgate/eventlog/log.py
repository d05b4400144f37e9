"""A log for asyncio: what arrives while one group is synced makes the next one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from headgate.eventlog.reader import LogReader
from headgate.eventlog.records import Record
from headgate.eventlog.threads import in_thread
from headgate.eventlog.writer import Entry, LogOptions, LogWriter, Outcome
from headgate.model import CapacityError, StateError

__all__ = ["EventLog"]

_log = logging.getLogger(__name__)

_GROUP_EVENTS = 4096
_RETENTION_S = 60.0

Payload = bytes | Callable[[int], bytes]
_Waiting = tuple[Entry, "asyncio.Future[int]"]


class EventLog:
    """Appends for many tasks of one loop. A number is told only when its record is durable and can be read."""

    def __init__(self, writer: LogWriter, *, max_waiting: int = 100_000) -> None:
        self._writer = writer
        self._max_waiting = max_waiting
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Condition()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="eventlog")
        self._scrubbing = asyncio.Lock()
        self._closing = False
        self._retained_at = 0.0
        self._task = asyncio.create_task(self._run(), name="event log")

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, options: LogOptions | None = None) -> AsyncIterator[EventLog]:
        log = cls(await asyncio.to_thread(LogWriter, path, options))
        try:
            yield log
        finally:
            await log.close()

    @property
    def path(self) -> Path:
        return self._writer.path

    def reader(self) -> LogReader:
        return LogReader(self.path)

    async def append(self, kind: int, uid: int, payload: Payload) -> int:
        """Append a record; return its number once it is durable. Waits for room first (backpressure)."""
        if len(self._waiting) >= self._max_waiting:
            async with self._room:
                await self._room.wait_for(lambda: len(self._waiting) < self._max_waiting)
        return await self.submit(kind, uid, payload)

    def submit(self, kind: int, uid: int, payload: Payload) -> asyncio.Future[int]:
        """Queue a record without waiting for room; records get their numbers in the order of these calls.

        A function that makes the payload of its number is called in the writer's thread, and perhaps again with another
        number if the first could not be written.
        """
        if self._closing:
            raise StateError("the event log is closed", where=str(self.path), remedy="open it again")
        if len(self._waiting) >= self._max_waiting:
            raise CapacityError(
                f"{self._max_waiting} events wait for the disk", where=str(self.path), remedy="slow down: await append"
            )
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((Entry(kind, uid, payload), future))
        self._arrived.set()
        return future

    async def scrub(self, unwanted: int | Callable[[Record], bool]) -> int:
        """Take records down; appending goes on meanwhile. Returns when nothing of them is left on the disk."""
        async with self._scrubbing:
            return await in_thread(None, lambda: self._writer.scrub(unwanted))

    async def close(self) -> None:
        """Write what waits, and let go of the directory."""
        self._closing = True
        self._arrived.set()
        try:
            await self._task
        finally:
            async with self._scrubbing:
                pass
            await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.close)
            self._thread.shutdown()

    async def _run(self) -> None:
        while not self._closing or self._waiting:
            await self._wait()
            group = [self._waiting.popleft() for _ in range(min(_GROUP_EVENTS, len(self._waiting)))]
            if group:
                await self._write(group)
            await self._retain()

    async def _wait(self) -> None:
        if self._waiting or self._closing:
            return
        self._arrived.clear()
        try:
            async with asyncio.timeout(_RETENTION_S):
                await self._arrived.wait()
        except TimeoutError:
            return

    async def _write(self, group: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        entries = [entry for entry, _ in group]
        outcomes: list[Outcome]
        try:
            outcomes = await loop.run_in_executor(self._thread, self._writer.append, entries)
        except Exception as error:  # a bug of ours; those who wait must not wait for ever
            outcomes = [error] * len(group)
        for (_, future), outcome in zip(group, outcomes, strict=True):
            _settle(future, outcome)
        async with self._room:
            self._room.notify_all()

    async def _retain(self) -> None:
        if time.monotonic() - self._retained_at >= _RETENTION_S:
            self._retained_at = time.monotonic()
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._writer.retain)
            except OSError as error:
                _log.warning("old events stay", extra={"path": str(self.path), "reason": error.strerror})


def _settle(future: asyncio.Future[int], outcome: Outcome) -> None:
    if future.done():
        return  # whoever waited has gone
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
