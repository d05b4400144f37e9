"""DID documents, looked up and kept: did:plc at a directory, did:web at its host.

    resolver = Resolver(fetcher, plc_url=...)
    found = resolver.cached(did)                       # no waiting
    found = await resolver.resolve(did, host)          # one lookup, however many ask for the host
    found = await resolver.refresh(did, since, host)   # one that was fetched after `since`

Lookups are asked for by hosts, whose accounts the DIDs are, and no host can have more than its share of them under way.
A did:web is answered by whoever has the name, who may take his time; these lookups have places of their own, so that
they never delay those at the directory.

A document is kept for a day, a failure for two minutes. What a DID's own server can do wrong is `ResolveError`, and it
says whether asking again may help.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from headgate.model import ConnectError
from headgate.relay.net import Fetcher
from headgate.runtime.backoff import Backoff
from headgate.runtime.ending import end
from headgate.runtime.timings import Timings
from headgate.wire.atproto import AtprotoError, DidDocument, Reason, document_url, parse_document
from headgate.wire.atproto.did import PLC_DIRECTORY

__all__ = ["HIT_S", "MISS_S", "Places", "ResolveError", "Resolved", "Resolver", "UnansweredError"]

HIT_S: Final = 24 * 3600.0
MISS_S: Final = 120.0
_MAX_BYTES = 256 << 10
_RETRY_S = (0.25, 15.0)  # the first pause, and the longest
_GONE = (404, 410)
_WEB = "did:web:"


class ResolveError(AtprotoError, kind=AtprotoError.kind):
    """The document cannot be had. `passing`: it may be, later."""

    passing = False


class UnansweredError(ResolveError, kind=AtprotoError.kind):
    """No answer came, or that of a server in trouble."""

    passing = True


@dataclass(frozen=True, slots=True)
class Resolved:
    """A document, or why there is none, and when that was found out, by the resolver's clock."""

    at: float
    document: DidDocument | None
    error: ResolveError | None = None


class Places:
    """How many lookups may be under way: in all, and for one host."""

    def __init__(self, total: int, per_host: int) -> None:
        self._total, self._per_host = asyncio.Semaphore(total), min(total, per_host)
        self._hosts: dict[str, asyncio.Semaphore] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def taken(self, host: str) -> AsyncIterator[None]:
        """A place of the host's share first: only what has one waits with those of the others."""
        own = self._hosts.setdefault(host, asyncio.Semaphore(self._per_host))
        self._users[host] = self._users.get(host, 0) + 1
        try:
            async with own, self._total:
                yield
        finally:
            self._users[host] -= 1
            if not self._users[host]:
                del self._users[host], self._hosts[host]


class Resolver:
    """Documents by DID. One instance per relay."""

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        plc_url: str = PLC_DIRECTORY,
        size: int = 250_000,
        lookups: Places | None = None,
        web_lookups: Places | None = None,
        refresh_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher, self._plc_url, self._size, self._refresh_s = fetcher, plc_url, size, refresh_s
        self.clock = clock
        self._kept: OrderedDict[str, Resolved] = OrderedDict()
        self._asking: dict[tuple[str, str], asyncio.Task[Resolved]] = {}
        self._places, self._web_places = lookups or Places(64, 16), web_lookups or Places(32, 4)
        self.lookup_count = 0
        self.timings = Timings()

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

    async def resolve(self, did: str, host: str = "") -> Resolved:
        return self.cached(did) or await self._ask(did, host)

    async def refresh(self, did: str, since: float, host: str = "") -> Resolved:
        """What was found out after `since`. Lookups of one DID keep a distance, so this may wait for it."""
        found = self._kept.get(did)
        if found is not None and found.at >= since:
            return found
        return await self._ask(did, host)

    async def insist(self, did: str, since: float | None, *, until: float, host: str = "") -> Resolved:
        """Resolve, or refresh if `since` is given, and ask again while nobody answers, until that time."""
        found = await (self.resolve(did, host) if since is None else self.refresh(did, since, host))
        backoff = Backoff(*_RETRY_S)
        while found.error is not None and found.error.passing and self.clock() <= until:
            await asyncio.sleep(backoff.next_s())
            found = await self.refresh(did, self.clock(), host)
        return found

    async def _ask(self, did: str, host: str) -> Resolved:
        """Join the lookup that is under way, or begin one. A caller that gives up does not end it for the others.

        Only one for the same host is joined: that of another may be at the end of a long queue of its own making.
        """
        task = self._asking.get((host, did))
        if task is None:
            task = self._asking[host, did] = asyncio.create_task(self._look_up(did, host))
            task.add_done_callback(lambda _: self._asking.pop((host, did), None))
        return await asyncio.shield(task)

    async def _look_up(self, did: str, host: str) -> Resolved:
        began, last = self.clock(), self._kept.get(did)
        if last is not None:
            await asyncio.sleep(max(0.0, last.at + self._refresh_s - self.clock()))
        places = self._web_places if did.startswith(_WEB) else self._places
        async with places.taken(host):
            found = self._kept.get(did)
            if found is not None and found is not last and found.at >= began:
                return found  # looked up for another host in the meantime
            self.lookup_count += 1
            # What is found was true at the earliest when it was asked for.
            at = self.clock()
            try:
                found = Resolved(at, await self._fetch(did))
            except ResolveError as error:
                known = last.document if last is not None and error.passing else None
                found = Resolved(at, known, error)
            self.timings.observe(self.clock() - at)
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
