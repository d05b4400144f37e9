"""Commits of many consumers, stored together: what arrives while one statement runs goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headgate.gateway.groups.store import Commit, GroupStore, Term

__all__ = ["CommitQueue"]

_MOST = 10_000  # offsets in one statement, about


class CommitQueue:
    """One statement at a time, in the order of the calls."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._queue: list[tuple[Term, Sequence[Commit], asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._pending: dict[str, set[asyncio.Future[bool]]] = {}

    def put(self, term: Term, commits: Sequence[Commit]) -> asyncio.Future[bool]:
        """Store offsets, after those that came before. The result is false if the term is over: nothing is stored then.

        Who waits for the result should shield it: the offsets are on their way, and others may have to wait for them.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append((term, commits, done))
        pending = self._pending.setdefault(term.group_id, set())
        pending.add(done)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="offset commits")
        return done

    async def settled(self, group_id: str) -> None:
        """Until the offsets of a group that were on their way when this was called have arrived, or failed."""
        if pending := self._pending.get(group_id):
            await asyncio.wait(set(pending))

    async def close(self) -> None:
        """Finish what is queued."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while self._queue:
            batch = self._take()
            try:
                terms = await self._store.commit((term, each) for term, commits, _ in batch for each in commits)
            except Exception as error:
                self._finish(batch, error)
            else:
                self._finish(batch, terms)
        self._writing = None

    def _take(self) -> list[tuple[Term, Sequence[Commit], asyncio.Future[bool]]]:
        size, count = 0, 0
        while count < len(self._queue) and (size < _MOST or count == 0):
            size += len(self._queue[count][1])
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    def _finish(
        self, batch: Sequence[tuple[Term, Sequence[Commit], asyncio.Future[bool]]], result: set[Term] | Exception
    ) -> None:
        for term, _, done in batch:
            if isinstance(result, Exception):
                done.set_exception(result)
                done.exception()  # seen, even if nobody waits any more
            else:
                done.set_result(term in result)
            pending = self._pending[term.group_id]
            pending.discard(done)
            if not pending:
                del self._pending[term.group_id]
