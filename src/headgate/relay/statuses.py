"""Asks a host for the status of an account that is new here: it may have been deactivated before its first event came.

Nobody waits for the answer. It counts unless the host has said something itself in the meantime, and where there is
none, the account is taken for active, as without asking. Hosts that never answer cost nobody else anything but this:
the questions have connections and places of their own, a few for each host, and those that would wait are few, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from headgate.model import HeadgateError
from headgate.relay.crawl import origin
from headgate.relay.net import Fetcher
from headgate.relay.resolve import Places
from headgate.runtime.ending import end

__all__ = ["INACTIVE", "Statuses"]

logger = logging.getLogger(__name__)

INACTIVE: Final = frozenset(("takendown", "suspended", "deactivated", "deleted"))
_UNCLEAR = "unclear"
_MAX_BYTES = 16 << 10
_MOST_OF_HOST, _MOST = 100, 2_000  # asked for, or waiting to be


class Statuses:
    """See the module. `told(did, host, status)` is called for accounts that are not active."""

    def __init__(self, fetcher: Fetcher, places: Places, told: Callable[[str, str, str], Awaitable[None]]) -> None:
        self._fetcher, self._places, self._told = fetcher, places, told
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # also those whose answer is not wanted any more
        self._of_host: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()  # what became of the questions

    def ask(self, did: str, host: str) -> None:
        """Queue a status lookup of an account; dropped when too many wait for its host."""
        if len(self._tasks) >= _MOST or self._of_host[host] >= _MOST_OF_HOST:
            self.counts["not_asked"] += 1
            return
        if did not in self._asking:
            self._of_host[host] += 1
            task = self._asking[did] = asyncio.create_task(self._ask(did, host))
            self._tasks.add(task)
            task.add_done_callback(lambda _: self._done(did, host, task))

    def outdated(self, did: str) -> None:
        """The host has said it by itself, and that is newer than what it may have answered."""
        self._asking.pop(did, None)

    def is_wanted(self, did: str) -> bool:
        return self._asking.get(did) is asyncio.current_task()

    async def close(self) -> None:
        await end(*self._tasks)

    def _done(self, did: str, host: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._asking.get(did) is task:
            del self._asking[did]
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the status of %s was not asked for", did, exc_info=error)

    async def _ask(self, did: str, host: str) -> None:
        async with self._places.taken(host):
            if not self.is_wanted(did):
                return
            try:
                status = await self._status(did, host)
            except HeadgateError:
                self.counts["unanswered"] += 1
                return
        self.counts[status] += 1
        if status in INACTIVE and self.is_wanted(did):
            await self._told(did, host, status)

    async def _status(self, did: str, host: str) -> str:
        """`active`, or why it is not; `unclear` if the host says nothing that can be understood."""
        base = origin(host, allow_private=self._fetcher.allow_private)
        url = f"{base}/xrpc/com.atproto.sync.getRepoStatus"
        answer = await self._fetcher.get(url, limit=_MAX_BYTES, query={"did": did})
        try:
            said = json.loads(answer.body) if answer.status == 200 else None
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or said.get("did") != did:
            return _UNCLEAR
        if said.get("active") is True:
            return "active"
        status = said.get("status")
        is_known = said.get("active") is False and isinstance(status, str) and status in INACTIVE
        return str(status) if is_known else _UNCLEAR
