"""The relay's intake side, put together: from hosts to events that wait for their place.

async with open_store(path) as store, open_ingest(options, store, sequenced) as ingest:
    await ingest.hosts.request_crawl("pds.example")
    await ingest.intake.failed          # ends with an error when the relay cannot go on
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headgate.relay.hosts import Hosts
from headgate.relay.intake import Intake, Sequenced
from headgate.relay.ledger import Ledger
from headgate.relay.net import Fetcher
from headgate.relay.options import RelayOptions
from headgate.relay.resolve import Places, Resolver
from headgate.relay.statuses import Statuses
from headgate.relay.store import Store
from headgate.relay.track import HostRead
from headgate.relay.workers import open_judges

__all__ = ["Ingest", "open_ingest"]

_STATUS_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Ingest:
    """The parts that others ask and command."""

    options: RelayOptions
    store: Store
    fetcher: Fetcher
    resolver: Resolver
    ledger: Ledger
    intake: Intake
    hosts: Hosts
    statuses: Statuses


@asynccontextmanager
async def open_ingest(
    options: RelayOptions, store: Store, sequenced: Sequenced, read_before: Mapping[str, HostRead] | None = None
) -> AsyncIterator[Ingest]:
    """Follow all hosts of the store, from where the relay was that ended before. At the end readers stop first, then
    what has its place becomes safe, and then the cursors are saved.
    """
    ledger = Ledger()
    async with (
        Fetcher(allow_private=options.allow_private) as fetcher,
        Fetcher(
            allow_private=options.allow_private,
            timeout_s=_STATUS_TIMEOUT_S,
            connections=max(1, options.status_lookups),
        ) as status_fetcher,
        open_judges(options.workers, options.policy) as judges,
    ):
        resolver = Resolver(
            fetcher,
            plc_url=options.plc_url,
            size=options.cached_documents,
            lookups=Places(options.lookups, options.host_lookups),
            web_lookups=Places(options.web_lookups, options.host_web_lookups),
            refresh_s=options.refresh_s,
        )
        hosts = None
        try:
            async with Intake(options, store, resolver, ledger, judges, sequenced) as intake:
                for host, read in (read_before or {}).items():
                    intake.track(host).read_before = read
                hosts = Hosts(options, store, intake, fetcher)
                places = Places(max(1, options.status_lookups), max(1, options.host_status_lookups))
                statuses = Statuses(status_fetcher, places, intake.heard_status)
                if options.status_lookups:
                    intake.statuses = statuses
                async with hosts:
                    try:
                        yield Ingest(options, store, fetcher, resolver, ledger, intake, hosts, statuses)
                    finally:
                        await statuses.close()
        finally:
            if hosts is not None:
                hosts.save_cursors()
            await resolver.close()
