"""The relay's memory: accounts and their repositories, hosts, and bans.

    async with open_store("relay.sqlite") as store:        # or a postgresql:// URL
        rows = await store.load(["did:plc:..."])
        store.put(row)                                     # seen by every read at once, written soon
        await store.flush()

Writes are kept in memory and written in batches by one thread, so that an event costs no transaction of its own. Rows
of accounts go out before the cursors of hosts that cover them: after a crash a cursor is never ahead of its accounts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from headgate.model import HeadgateError
from headgate.relay.store.backend import Backend
from headgate.relay.store.rows import AccountRow, HostRow
from headgate.relay.store.sqlite import SqliteBackend
from headgate.runtime.ending import end

__all__ = ["BATCH", "Store", "open_store"]

logger = logging.getLogger(__name__)

BATCH: Final = 500
_FLUSH_S = 1.0
_RETRY_S = 2.0
DEFAULT_SCHEMA: Final = "headgate_relay"

T = TypeVar("T")


@asynccontextmanager
async def open_store(
    where: str | Path, *, schema: str = DEFAULT_SCHEMA, cached: int = 100_000, unwritten: int = 20_000
) -> AsyncIterator[Store]:
    """The store at a path, or at a postgresql:// URL. What is not yet written is written at the end."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="relay-store")
    backend: Backend | None = None
    try:
        loop = asyncio.get_running_loop()
        backend = await loop.run_in_executor(executor, _backend, where, schema)
        store = Store(backend, executor, cached=cached, unwritten=unwritten)
        await store.start()
        try:
            yield store
        finally:
            await store.stop()
    finally:
        if backend is not None:
            await asyncio.get_running_loop().run_in_executor(executor, backend.close)
        executor.shutdown()


def _backend(where: str | Path, schema: str) -> Backend:
    if str(where).startswith(("postgresql://", "postgres://")):
        from headgate.relay.store.postgres import PostgresBackend  # 20 MB that SQLite has no use for

        return PostgresBackend(str(where), schema)
    return SqliteBackend(Path(where))


class Store:
    """All hosts and bans are in memory; of the accounts, those used last, and all that are not yet written."""

    def __init__(self, backend: Backend, executor: ThreadPoolExecutor, *, cached: int, unwritten: int) -> None:
        self._backend, self._executor = backend, executor
        self._cached, self._unwritten = cached, unwritten
        self._cache: OrderedDict[str, AccountRow] = OrderedDict()
        self._dirty: dict[str, AccountRow] = {}
        self._writing: dict[str, AccountRow] = {}
        self._hosts: dict[str, HostRow] = {}
        self._dirty_hosts: set[str] = set()
        self._bans: set[str] = set()
        self._batch_full = asyncio.Event()
        self._drained = asyncio.Event()
        self._flushing = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._hosts = {row.hostname: row for row in await self._call(self._backend.hosts)}
        counts = await self._call(self._backend.count_accounts)
        for name, row in self._hosts.items():  # a count is not worth a transaction: it may be behind after a crash
            self._hosts[name] = replace(row, account_count=counts.get(name, 0))
        self._bans = set(await self._call(self._backend.domain_bans))
        self._writer = asyncio.create_task(self._write_on())

    async def stop(self) -> None:
        if self._writer is not None:
            await end(self._writer)
        await self.flush()

    # Accounts.

    def known(self, did: str) -> AccountRow | None:
        """The account, if it is in memory."""
        row = self._dirty.get(did) or self._writing.get(did) or self._cache.get(did)
        if row is not None and did in self._cache:
            self._cache.move_to_end(did)
        return row

    async def get(self, did: str) -> AccountRow | None:
        return (await self.load([did])).get(did)

    async def load(self, dids: Iterable[str]) -> dict[str, AccountRow]:
        """Return the accounts that exist, with one query for all that are not in memory."""
        found: dict[str, AccountRow] = {}
        missing = []
        for did in dids:
            if (row := self.known(did)) is None:
                missing.append(did)
            else:
                found[did] = row
        if missing:
            for row in await self._call(self._backend.accounts, missing):
                found[row.did] = self.known(row.did) or self._remember(row)  # it may have been put meanwhile
        return found

    def put(self, row: AccountRow) -> None:
        """Keep a row. Callers that put many wait for `room` between them."""
        self._dirty[row.did] = self._remember(row)
        if len(self._dirty) >= BATCH:
            self._batch_full.set()

    async def catch_up(self, row: AccountRow) -> bool:
        """Keep a row read from the log at start, if it is newer than what is known. Was it?"""
        old = await self.get(row.did)
        if old is not None and (old.rev or "") >= (row.rev or ""):
            return False
        local = old.local_status if old is not None else None
        self.put(replace(row, local_status=local))
        await self.room()
        return True

    async def room(self) -> None:
        """Wait until fewer rows than allowed are unwritten."""
        while len(self._dirty) >= self._unwritten:
            self._drained.clear()
            self._batch_full.set()
            await self._drained.wait()

    async def list_accounts(self, after: str = "", count: int = 500, *, taken_down: bool = False) -> list[AccountRow]:
        """Accounts in the order of their DIDs, behind `after`."""
        await self.flush()
        return await self._call(lambda: self._backend.list_accounts(after, count, taken_down=taken_down))

    # Hosts and bans.

    def host(self, hostname: str) -> HostRow | None:
        return self._hosts.get(hostname)

    def hosts(self) -> list[HostRow]:
        return sorted(self._hosts.values(), key=lambda row: row.hostname)

    def put_host(self, row: HostRow) -> None:
        self._hosts[row.hostname] = row
        self._dirty_hosts.add(row.hostname)

    def change_host(self, hostname: str, **fields: Any) -> HostRow:
        row = replace(self._hosts[hostname], **fields)
        self.put_host(row)
        return row

    def domain_bans(self) -> list[str]:
        return sorted(self._bans)

    def is_banned(self, hostname: str) -> bool:
        """Is the name, or a domain that it is in, banned?"""
        labels = hostname.partition(":")[0].lower().split(".")
        return any(".".join(labels[i:]) in self._bans for i in range(len(labels)))

    async def ban_domain(self, domain: str, *, banned: bool = True) -> None:
        domain = domain.lower().strip(".")
        await self._call(lambda: self._backend.ban_domain(domain, banned=banned))
        (self._bans.add if banned else self._bans.discard)(domain)

    # Writing.

    @property
    def unwritten(self) -> int:
        return len(self._dirty) + len(self._writing)

    async def flush(self) -> None:
        """Write what has been put until now."""
        async with self._flushing:
            hosts, self._dirty_hosts = self._dirty_hosts, set()
            rows = [self._hosts[name] for name in hosts]  # as they are now: the accounts below are no older
            try:
                remaining = len(self._dirty)
                while remaining > BATCH:
                    remaining -= await self._write_batch([])
                await self._write_batch(rows)
            except BaseException:
                self._dirty_hosts |= hosts
                raise

    async def _write_batch(self, hosts: list[HostRow]) -> int:
        self._writing = {did: self._dirty.pop(did) for did in list(islice(self._dirty, BATCH))}
        rows = list(self._writing.values())
        try:
            if rows or hosts:
                await self._call(self._backend.write, rows, hosts)
        except BaseException:
            self._dirty = self._writing | self._dirty  # what was put meanwhile is newer
            raise
        finally:
            self._writing = {}
            self._drained.set()
        return len(rows)

    async def _write_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_FLUSH_S):
                    await self._batch_full.wait()
            except TimeoutError:
                pass
            self._batch_full.clear()
            try:
                await self.flush()
            except HeadgateError as error:
                logger.warning("the store cannot be written, %d rows wait: %s", self.unwritten, error)
                await asyncio.sleep(_RETRY_S)

    def _remember(self, row: AccountRow) -> AccountRow:
        self._cache[row.did] = row
        self._cache.move_to_end(row.did)
        if len(self._cache) > self._cached:
            self._cache.popitem(last=False)
        return row

    async def _call(self, work: Callable[..., T], *values: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *values)
