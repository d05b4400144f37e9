"""All hosts: who is followed, who rests, who is new, who is banned.

    async with Hosts(options, store, intake, fetcher) as hosts:
        await hosts.request_crawl("pds.example")
        await hosts.bootstrap("https://relay.example")

A host that fails too often is offline and tried again every now and then, for ever: good hosts come back after weeks.
One that was away so long that its cursor would bring a flood of old events is followed from now on.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable

from headgate.model import CapacityError, HeadgateError
from headgate.relay.crawl import CrawlError, check_hostname, describe, list_hosts
from headgate.relay.intake import Intake
from headgate.relay.limits import Buckets, HostBudget, host_rates
from headgate.relay.net import Fetcher
from headgate.relay.options import RelayOptions
from headgate.relay.store import HostRow, HostStatus, Store
from headgate.relay.upstream import Upstream
from headgate.runtime.ending import end

__all__ = ["Hosts"]

logger = logging.getLogger(__name__)

_CHECKS_AT_ONCE = 20
_CHECKS_WAITING = 200
_DAY_S = 86_400.0


class Hosts:
    """See the module. `clock` is the time of day, in seconds since 1970."""

    def __init__(
        self,
        options: RelayOptions,
        store: Store,
        intake: Intake,
        fetcher: Fetcher,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options, self._store, self._intake, self._fetcher, self._clock = options, store, intake, fetcher, clock
        self._upstreams: dict[str, Upstream] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._check_slots = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._connecting = asyncio.Semaphore(options.connects_at_once)
        self._total = Buckets(((options.total_per_s, 1.0),))
        is_plain = options.allow_private and not options.private_tls
        self._tls = None if is_plain else ssl.create_default_context()
        self._rested: dict[str, float] = {}
        self._tending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Hosts:
        for row in self._store.hosts():
            if row.status is not HostStatus.BANNED and not self._store.is_banned(row.hostname):
                self._follow(self._unthrottled(row))
        self._tending = asyncio.create_task(self._tend())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._tasks.values(), *self._checks.values()]
        if self._tending is not None:
            tasks.append(self._tending)
        await end(*tasks)
        self.save_cursors()

    def connected(self, hostname: str) -> bool:
        upstream = self._upstreams.get(hostname)
        return upstream is not None and upstream.connected

    # New hosts.

    async def request_crawl(self, name: str, *, trusted: bool = False, by_operator: bool = False) -> bool:
        """Follow a host, when it has shown to be one; wake it up if it is known and rests. CrawlError if not.

        Whether it is new here.
        """
        hostname = check_hostname(name, allow_private=self._options.allow_private)
        row = self._store.host(hostname)
        if self._store.is_banned(hostname) or (row is not None and row.status is HostStatus.BANNED):
            raise CrawlError("HostBanned", f"{hostname} is banned")
        if hostname in self._upstreams:
            self._upstreams[hostname].nudge()
            return False
        check = self._checks.get(hostname)
        if check is None:
            if len(self._checks) >= _CHECKS_WAITING:
                raise CapacityError("too many hosts ask to be crawled", remedy="ask again later")
            check = self._checks[hostname] = asyncio.create_task(self._check(hostname, trusted, by_operator))
            check.add_done_callback(lambda _: self._checks.pop(hostname, None))
        await asyncio.shield(check)
        return row is None

    async def _check(self, hostname: str, trusted: bool, by_operator: bool) -> None:
        """Only a host that has described itself gets a row."""
        known = self._store.host(hostname)
        if known is None and not by_operator and self._new_today() >= self._options.new_hosts_per_day:
            raise CrawlError("InvalidRequest", "enough new hosts for today")
        async with self._check_slots:
            await describe(self._fetcher, hostname)
        if known is None:
            self._store.put_host(HostRow(hostname, trusted=trusted, added_at=int(self._clock())))
        if hostname not in self._tasks:
            self._follow(self._store.change_host(hostname, status=HostStatus.ACTIVE, failures=0))

    def is_trusted(self, row: HostRow) -> bool:
        """By an operator, or for the domain that it is in, as the settings are now."""
        return row.trusted or self._options.trusts(row.hostname)

    def _new_today(self) -> int:
        since = self._clock() - _DAY_S
        return sum(row.added_at > since for row in self._store.hosts())

    async def bootstrap(self, relay_url: str) -> int:
        """Follow the hosts that another relay follows; how many are new here. Those that do not answer are left out."""
        names = await list_hosts(self._fetcher, relay_url)
        before = len(self._store.hosts())
        slots = asyncio.Semaphore(_CHECKS_AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                try:
                    await self.request_crawl(name, by_operator=True)
                except HeadgateError as error:
                    logger.info("%s is left out: %s", name[:80], error)

        await asyncio.gather(*map(one, dict.fromkeys(names)))
        return len(self._store.hosts()) - before

    # What operators decide.

    async def ban_host(self, hostname: str) -> None:
        await self._stop(hostname)
        if self._store.host(hostname) is not None:
            self._store.change_host(hostname, status=HostStatus.BANNED)
            await self._store.flush()

    async def unban_host(self, hostname: str) -> None:
        row = self._store.host(hostname)
        if row is not None and row.status is HostStatus.BANNED:
            self._follow(self._store.change_host(hostname, status=HostStatus.ACTIVE, failures=0))
            await self._store.flush()

    async def ban_domain(self, domain: str) -> None:
        await self._store.ban_domain(domain)
        for hostname in [name for name in self._tasks if self._store.is_banned(name)]:
            await self._stop(hostname)

    async def change_limits(self, hostname: str, *, account_limit: int | None, trusted: bool) -> HostRow:
        """Set how many accounts a host may have; its rates follow from that. It is connected to anew."""
        await self._stop(hostname)
        row = self._unthrottled(self._store.change_host(hostname, account_limit=account_limit, trusted=trusted))
        if row.status is not HostStatus.BANNED:
            self._follow(row)
        return row

    def _unthrottled(self, row: HostRow) -> HostRow:
        """A host that has fewer accounts than it may by now: somebody has changed a limit or the trusted domains."""
        if row.status is HostStatus.THROTTLED and row.account_count < self._intake.accounts.limit(row.hostname):
            return self._store.change_host(row.hostname, status=HostStatus.ACTIVE)
        return row

    # Following.

    def _follow(self, row: HostRow) -> None:
        hostname, track = row.hostname, self._intake.track(row.hostname)
        if track.last == 0:
            track.last = row.cursor
        track.budget = self._budget(row)
        upstream = Upstream(
            hostname,
            self._intake,
            self._options,
            total=self._total,
            tls=self._tls,
            connecting=self._connecting,
            failures=min(row.failures, self._options.failures_until_offline - 1),
        )
        upstream.from_oldest = row.cursor == 0 and self._options.backlog
        if row.cursor and self._clock() - row.last_seen > self._options.stale_cursor_s:
            logger.info("%s was away for long: its events from now on", hostname)
            track.restart(0)
        self._upstreams[hostname] = upstream
        self._tasks[hostname] = asyncio.create_task(self._run(upstream))

    def _budget(self, row: HostRow) -> HostBudget | None:
        options = self._options
        if not options.rates:
            return None
        return HostBudget(
            host_rates(self._intake.accounts.limit(row.hostname), trusted=self.is_trusted(row)),
            bytes_per_s=options.host_bytes_per_s,
            cpu_share=options.host_cpu_share,
            trusted=self.is_trusted(row),
        )

    async def _run(self, upstream: Upstream) -> None:
        hostname = upstream.hostname
        try:
            await upstream.run()
        except Exception:
            logger.exception("%s: the reader broke", hostname)
        self._save(upstream)
        self._forget(hostname)
        self._rested[hostname] = self._clock()
        self._store.change_host(hostname, status=HostStatus.OFFLINE, failures=upstream.failures)

    async def _stop(self, hostname: str) -> None:
        task, upstream = self._tasks.get(hostname), self._upstreams.get(hostname)
        if task is not None and upstream is not None:
            await end(task)
            self._save(upstream)
            self._forget(hostname)

    def _forget(self, hostname: str) -> None:
        self._tasks.pop(hostname, None)
        self._upstreams.pop(hostname, None)

    # Tending.

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(min(self._options.save_cursors_s, self._options.dormant_retry_s))
            self.save_cursors()
            self.wake_dormant()

    def save_cursors(self) -> None:
        for upstream in self._upstreams.values():
            self._save(upstream)

    def _save(self, upstream: Upstream) -> None:
        """Keep what changed of a host: how far all is dealt with, whether it fails, and when it was last there."""
        row = self._store.host(upstream.hostname)
        if row is None:
            return
        status = row.status
        if status in (HostStatus.ACTIVE, HostStatus.IDLE, HostStatus.OFFLINE):
            status = HostStatus.ACTIVE if upstream.connected else HostStatus.IDLE
        seen = int(self._clock()) if upstream.connected else max(row.last_seen, int(upstream.last_frame_at))
        failures = 0 if upstream.connected else upstream.failures
        cursor = self._intake.cursor(upstream.hostname)
        if (cursor, status, failures) != (row.cursor, row.status, row.failures) or seen - row.last_seen > _DAY_S / 24:
            self._store.change_host(upstream.hostname, cursor=cursor, status=status, failures=failures, last_seen=seen)

    def wake_dormant(self) -> None:
        """Try hosts again that have been offline for a while."""
        for row in self._store.hosts():
            resting = row.hostname not in self._tasks and row.status is not HostStatus.BANNED
            due = self._clock() - self._rested.get(row.hostname, 0.0) >= self._options.dormant_retry_s
            if resting and due and not self._store.is_banned(row.hostname):
                self._follow(row)
