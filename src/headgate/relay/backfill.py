"""Fills the collection index with what was written before the relay began to listen.

    backfill = Backfill(store, index, fetcher, resolver, path, per_s=10)
    backfill.ask_host("pds.example")                                     # listRepos, then describeRepo of each account
    backfill.ask_relay("https://relay.example", "app.bsky.feed.post")    # listReposByCollection
    backfill.progress()

One page after the other, and what was reached is noted in a file after each: a relay that is stopped goes on there. A
host is believed about its own accounts only: those that the relay knows to live there, or whose DID document says so.
Another relay is believed, because an operator has named it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import msgspec

from headgate.model import ConnectError, HeadgateError
from headgate.relay.collections import CollectionIndex, collections_of
from headgate.relay.crawl import origin
from headgate.relay.limits import Buckets
from headgate.relay.net import Fetcher
from headgate.relay.resolve import Resolver
from headgate.relay.store import Store
from headgate.runtime.ending import end
from headgate.runtime.files import replace_file
from headgate.wire.atproto import is_did

__all__ = ["Backfill", "Job"]

logger = logging.getLogger(__name__)

_AT_ONCE = 4
_MOST_JOBS = 10_000
_MOST_PAGE_BYTES = 4 << 20
_PAGE = 500
_RETRY_S = 60.0


class Job(msgspec.Struct):
    """How far one source has been asked."""

    source: str  # a host's name, or the URL of a relay
    collection: str = ""  # what a relay is asked for; a host is asked for all
    cursor: str = ""
    accounts: int = 0  # that were listed
    found: int = 0  # pairs of account and collection that were new
    failed: int = 0  # accounts whose host did not describe them
    done: bool = False
    problem: str = ""  # why it waits, if it does

    @property
    def name(self) -> str:
        return f"{self.source} {self.collection}".strip()


class Backfill:
    """See the module. Sources are asked some at a time, each as fast as `per_s` requests in a second."""

    def __init__(
        self,
        store: Store,
        index: CollectionIndex,
        fetcher: Fetcher,
        resolver: Resolver,
        path: Path,
        *,
        per_s: float,
    ) -> None:
        self._store, self._index, self._fetcher, self._resolver = store, index, fetcher, resolver
        self._path, self._per_s = path, per_s
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._jobs = self._read()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Go on with what was not done when the relay ended."""
        for job in self._jobs.values():
            self._begin(job)

    async def close(self) -> None:
        await end(*self._tasks.values())

    def ask_host(self, hostname: str) -> Job:
        return self._ask(Job(hostname))

    def ask_relay(self, url: str, collection: str) -> Job:
        return self._ask(Job(url.rstrip("/"), collection))

    def progress(self) -> list[Job]:
        return list(self._jobs.values())

    def _ask(self, job: Job) -> Job:
        """Begin, or begin again if it was done; one that is under way goes on."""
        known = self._jobs.get(job.name)
        if known is None or known.done:
            if known is None and len(self._jobs) >= _MOST_JOBS:
                self._jobs.pop(next(name for name, each in self._jobs.items() if each.done))
            known = self._jobs[job.name] = job
        self._begin(known)
        return known

    def _begin(self, job: Job) -> None:
        if not job.done and job.name not in self._tasks:
            task = self._tasks[job.name] = asyncio.create_task(self._run(job))
            task.add_done_callback(lambda _: self._tasks.pop(job.name, None))

    async def _run(self, job: Job) -> None:
        rate = Buckets(((self._per_s, 1.0),))
        while not job.done:
            async with self._places:
                try:
                    await self._page(job, rate)
                    job.problem = ""
                except HeadgateError as error:
                    job.problem = error.message
                except Exception as error:  # whatever it is, it must not end the others
                    logger.exception("%s: the back-fill broke", job.name)
                    job.problem = repr(error)
            await self._save()
            if job.problem:
                await asyncio.sleep(_RETRY_S)
        logger.info("%s: %d accounts, %d new entries of the index", job.name, job.accounts, job.found)

    async def _page(self, job: Job, rate: Buckets) -> None:
        dids, cursor = await self._listed(job, rate)
        for did in dids:
            try:
                job.found += await self._take(job, did, rate)
            except HeadgateError:
                job.failed += 1
            job.accounts += 1
        job.done = not dids or not cursor or cursor == job.cursor
        job.cursor = cursor

    async def _listed(self, job: Job, rate: Buckets) -> tuple[list[str], str]:
        method = "listReposByCollection" if job.collection else "listRepos"
        base = job.source if job.collection else origin(job.source, allow_private=self._fetcher.allow_private)
        query = {"limit": str(_PAGE), "collection": job.collection, "cursor": job.cursor}
        await asyncio.sleep(rate.take())
        answer = await self._fetcher.get(
            f"{base}/xrpc/com.atproto.sync.{method}",
            limit=_MOST_PAGE_BYTES,
            query={name: value for name, value in query.items() if value},
        )
        return _read_page(answer.status, answer.body, job.name)

    async def _take(self, job: Job, did: str, rate: Buckets) -> int:
        if job.collection:
            return self._index.add(did, [job.collection])
        if self._index.collections(did, count=1):
            return 0
        await asyncio.sleep(rate.take())
        if not await self._lives_at(did, job.source):
            return 0
        base = origin(job.source, allow_private=self._fetcher.allow_private)
        return self._index.add(did, await collections_of(self._fetcher, base, did))

    async def _lives_at(self, did: str, hostname: str) -> bool:
        row = await self._store.get(did)
        if row is not None and row.host:
            return row.host == hostname and row.combined[0]
        found = await self._resolver.resolve(did, hostname)
        return found.document is not None and found.document.pds == hostname

    def _read(self) -> dict[str, Job]:
        try:
            jobs = msgspec.json.decode(self._path.read_bytes(), type=list[Job])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError):
            logger.warning("%s cannot be read: back-fills begin anew when they are asked for", self._path)
            return {}
        return {job.name: job for job in jobs}

    async def _save(self) -> None:
        await asyncio.to_thread(replace_file, self._path, msgspec.json.encode(self.progress()))


def _read_page(status: int, body: bytes, name: str) -> tuple[list[str], str]:
    try:
        page: Any = json.loads(body) if status == 200 else None
    except (ValueError, RecursionError):
        page = None
    if not isinstance(page, dict) or not isinstance(page.get("repos"), list):
        raise ConnectError(f"{name} does not list its accounts: {status}", remedy="it is asked again")
    cursor = page.get("cursor") or ""
    dids = [_did(entry) for entry in page["repos"][: 10 * _PAGE]]
    return [did for did in dids if did], cursor if isinstance(cursor, str) else ""


def _did(entry: Any) -> str:
    """The account of an entry; nothing if it is none, or not active."""
    did = entry.get("did") if isinstance(entry, dict) and entry.get("active", True) is True else None
    return did if isinstance(did, str) and is_did(did) else ""
