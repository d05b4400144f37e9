"""Tells other relays of the same operator about hosts that ask to be crawled, so that a host needs to ask only one.

Only of a host that is new here: two relays that are each other's siblings would never end otherwise. Nobody waits for
it, and what cannot be told is left out: hosts ask again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

import httpx

from headgate.runtime.ending import end

__all__ = ["Siblings"]

logger = logging.getLogger(__name__)

_METHOD = "/xrpc/com.atproto.sync.requestCrawl"
_TIMEOUT_S = 10.0
_MOST = 100  # on their way


class Siblings:
    """`urls` are the operator's own, and may be private."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._client: httpx.AsyncClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()  # what became of it

    def tell(self, hostname: str) -> None:
        for url in self._urls:
            if len(self._tasks) >= _MOST:
                self.counts["left_out"] += 1
                continue
            task = asyncio.create_task(self._tell(url, hostname))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await end(*self._tasks)
        if self._client is not None:
            await self._client.aclose()

    async def _tell(self, url: str, hostname: str) -> None:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await self._client.post(f"{url}{_METHOD}", json={"hostname": hostname})
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            logger.warning("%s was not told of %s: %s", url, hostname, repr(error))
            self.counts["unanswered"] += 1
            return
        self.counts["taken" if answer.status_code == 200 else "refused"] += 1
