"""DID documents, looked up and kept: did:plc at a directory, did:web at its host.

    resolver = Resolver(fetcher, plc_url=...)
    found = resolver.cached(did)                 # no waiting
    found = await resolver.resolve(did)          # one lookup, however many ask
    found = await resolver.refresh(did, since)   # one that was fetched after `since`

A document is kept for a day, a failure for two minutes. What a DID's own server can do wrong is `ResolveError`, and it
says whether asking again may help.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.model import ConnectError
from headgate.model.ending import end
from headgate.relay.net import Fetcher
from headgate.wire.atproto import AtprotoError, DidDocument, Reason, document_url, parse_document
from headgate.wire.atproto.did import PLC_DIRECTORY

__all__ = ["HIT_S", "MISS_S", "ResolveError", "Resolved", "Resolver", "UnansweredError"]

HIT_S: Final = 24 * 3600.0
MISS_S: Final = 120.0
_MAX_BYTES = 256 << 10
_RETRY_S = (0.25, 15.0)  # the first pause, and the longest
_GONE = (404, 410)


class ResolveError(AtprotoError, kind=AtprotoError.kind):
    """The document cannot be had. `passing`: it may be, later."""

    passing = False


class UnansweredError(ResolveError, kind=AtprotoError.kind):
    """Nobody answered, or the answer was that of a server in trouble."""

    passing = True


@dataclass(frozen=True, slots=True)
class Resolved:
    """A document, or why there is none, and when that was found out, by the resolver's clock."""

    at: float
    document: DidDocument | None
    error: ResolveError | None = None


class Resolver:
    """Documents by DID. One instance per relay; never more lookups at once than `lookups`."""

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        plc_url: str = PLC_DIRECTORY,
        size: int = 250_000,
        lookups: int = 64,
        refresh_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher, self._plc_url, self._size, self._refresh_s = fetcher, plc_url, size, refresh_s
        self.clock = clock
        self._kept: OrderedDict[str, Resolved] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Resolved]] = {}
        self._slots = asyncio.Semaphore(lookups)
        self.lookup_count = 0

    def cached(self, did: str) -> Resolved | None:
        """What is known and not too old."""
        found = self._kept.get(did)
        if found is None:
            return None
        if self.clock() - found.at > (HIT_S if found.document is not None else MISS_S):
            del self._kept[did]
            return None
        self._kept.move_to_end(did)
        return found

    async def resolve(self, did: str) -> Resolved:
        return self.cached(did) or await self._ask(did)

    async def refresh(self, did: str, since: float) -> Resolved:
        """What was found out after `since`. Lookups of one DID keep a distance, so this may wait for it."""
        found = self._kept.get(did)
        if found is not None and found.at >= since:
            return found
        return await self._ask(did)

    async def insist(self, did: str, since: float | None, *, until: float) -> Resolved:
        """Resolve, or refresh if `since` is given, and ask again while nobody answers, until that time."""
        found = await (self.resolve(did) if since is None else self.refresh(did, since))
        pause_s, longest_s = _RETRY_S
        while found.error is not None and found.error.passing and self.clock() <= until:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
            found = await self.refresh(did, self.clock())
        return found

    async def _ask(self, did: str) -> Resolved:
        """Join the lookup that is under way, or begin one. A caller that gives up does not end it for the others."""
        task = self._asking.get(did)
        if task is None:
            task = self._asking[did] = asyncio.create_task(self._look_up(did))
            task.add_done_callback(lambda _: self._asking.pop(did, None))
        return await asyncio.shield(task)

    async def _look_up(self, did: str) -> Resolved:
        last = self._kept.get(did)
        if last is not None:
            await asyncio.sleep(max(0.0, last.at + self._refresh_s - self.clock()))
        async with self._slots:
            self.lookup_count += 1
            # What is found was true at the earliest when it was asked for.
            at = self.clock()
            try:
                found = Resolved(at, await self._fetch(did))
            except ResolveError as error:
                known = last.document if last is not None and error.passing else None
                found = Resolved(at, known, error)
        return self._keep(did, found)

    def _keep(self, did: str, found: Resolved) -> Resolved:
        """A document that is known stays known when only the directory is in trouble."""
        if found.error is not None and found.document is not None:
            return found
        self._kept[did] = found
        self._kept.move_to_end(did)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return found

    async def _fetch(self, did: str) -> DidDocument:
        try:
            answer = await self._fetcher.get(document_url(did, self._plc_url), limit=_MAX_BYTES)
        except ConnectError as error:
            raise UnansweredError(Reason.UNRESOLVED, error.message) from error
        except AtprotoError as error:
            raise ResolveError(error.reason, error.message) from error
        if answer.status in _GONE:
            raise ResolveError(Reason.UNRESOLVED, f"there is no document of {did[:80]}")
        if answer.status != 200:
            raise UnansweredError(Reason.UNRESOLVED, f"the directory answers {answer.status}")
        try:
            return parse_document(did, answer.body)
        except AtprotoError as error:
            raise ResolveError(error.reason, error.message) from error

    async def close(self) -> None:
        """End the lookups under way."""
        await end(*self._asking.values())
