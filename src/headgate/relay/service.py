"""A whole relay: hosts in, one validated stream out, on one port.

    async with open_relay(settings) as relay:
        relay.url                      # http://127.0.0.1:2470
        await relay.failed             # raises what the relay cannot go on with

In the data directory are the log (`log/`), the collections (`collections/`), and, unless a PostgreSQL is given, the
store (`relay.sqlite`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headgate.eventlog import EventLog, LogOptions, LogWriter
from headgate.eventlog.fanout import FanOut, FanOutOptions
from headgate.eventlog.inspection import Inspection
from headgate.model import HeadgateError
from headgate.relay.admin import admin_routes
from headgate.relay.backfill import Backfill
from headgate.relay.collections import CollectionIndex
from headgate.relay.dictionary import dictionary_route, load_dictionary
from headgate.relay.doors import relay_doors
from headgate.relay.front import Front, FrontOptions, url_of
from headgate.relay.hosts import Hosts
from headgate.relay.ingest import open_ingest
from headgate.relay.metrics import exposition
from headgate.relay.options import RelayOptions
from headgate.relay.parts import Parts
from headgate.relay.sequencer import Sequencer
from headgate.relay.siblings import Siblings
from headgate.relay.store import open_store
from headgate.relay.xrpc import xrpc_routes
from headgate.runtime.ending import end
from headgate.runtime.listening import listen

__all__ = ["Relay", "RelaySettings", "open_relay", "serve_relay"]

_log = logging.getLogger(__name__)
_ASK_AGAIN_S = 60.0
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """Where a relay lives, where it listens, and whom it follows."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 2470
    store: str = ""  # a postgresql:// URL; a file in the data directory unless given
    admin_token: str | None = field(default=None, repr=False)
    crawl: tuple[str, ...] = ()  # hosts to follow from the start
    bootstrap: str = ""  # a relay whose hosts to follow, too
    siblings: tuple[str, ...] = ()  # relays that are told of hosts which ask to be crawled
    options: RelayOptions = field(default_factory=RelayOptions)
    log: LogOptions = field(default_factory=LogOptions)
    fanout: FanOutOptions = field(default_factory=lambda: FanOutOptions(any_origin=True, per_address=100))
    front: FrontOptions = field(default_factory=FrontOptions)


@dataclass(slots=True)
class Relay:
    """A relay that runs."""

    url: str
    parts: Parts
    front: Front
    recovered: int  # events that the store had not heard of when the relay started

    @property
    def failed(self) -> asyncio.Future[None]:
        return self.parts.intake.failed


@asynccontextmanager
async def open_relay(settings: RelaySettings) -> AsyncIterator[Relay]:
    """Start everything, in the order in which one part needs the other; stop it the other way round."""
    options, directory = settings.options, settings.data_dir
    directory.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        listener = listen(settings.host, settings.port, backlog=512, where="relay.port")
        stack.callback(listener.close)
        writer = await asyncio.to_thread(LogWriter, directory / "log", settings.log)
        # Whatever the intake holds may have to wait for the disk.
        log = EventLog(writer, max_waiting=2 * options.hold.events)
        stack.push_async_callback(log.close)
        store = await stack.enter_async_context(open_store(settings.store or directory / "relay.sqlite"))
        index = CollectionIndex(directory / "collections")
        stack.callback(index.close)
        sequencer = Sequencer(log, index, directory / "checkpoint")
        recovered = await sequencer.recover(store)
        stack.push_async_callback(sequencer.check, store)
        ingest = await stack.enter_async_context(
            open_ingest(options, store, sequencer.sequenced, sequencer.read_before)
        )
        sequencer.reads = ingest.intake.reads
        reader = stack.enter_context(log.reader())
        backfill = Backfill(
            store, index, ingest.fetcher, ingest.resolver, directory / "backfill.json", per_s=options.backfill_per_s
        )
        backfill.start()
        stack.push_async_callback(backfill.close)
        inspection = Inspection(directory / "log")
        siblings = Siblings(settings.siblings)
        stack.push_async_callback(siblings.close)
        parts = Parts(ingest, store, index, sequencer, reader, backfill, inspection, siblings)
        front = _front(settings, parts)
        await front.start(listener)
        stack.push_async_callback(front.close)
        tasks = [
            asyncio.create_task(sequencer.keep_checking(store)),
            asyncio.create_task(_find_hosts(settings, ingest.hosts)),
            asyncio.create_task(inspection.run()),
        ]
        stack.push_async_callback(end, *tasks)
        yield Relay(url_of(listener), parts, front, recovered)


async def serve_relay(settings: RelaySettings, ready: Callable[[Relay], None], stop: asyncio.Event) -> None:
    """Run until `stop` is set, or until the relay cannot go on, which is raised."""
    async with open_relay(settings) as relay:
        ready(relay)
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((stopping, relay.failed), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if relay.failed.done():
            relay.failed.result()


def _front(settings: RelaySettings, parts: Parts) -> Front:
    dictionary = load_dictionary(settings.data_dir)
    fanout = FanOut(parts.reader, relay_doors(parts.reader, dictionary), options=settings.fanout)
    front: Front

    async def metrics(request: Request) -> Response:
        return Response(exposition(parts, front.listeners()), media_type=_METRICS)

    application = Starlette(
        routes=[
            *xrpc_routes(parts),
            *admin_routes(parts, lambda: front.consumers(), fanout.stats, settings.admin_token),
            dictionary_route(dictionary),
            Route("/metrics", metrics),
        ]
    )
    front = Front(application, fanout, settings.front)
    return front


async def _find_hosts(settings: RelaySettings, hosts: Hosts) -> None:
    """Follow the hosts that the operator names. Those that do not answer are asked again until they do."""
    if settings.bootstrap:
        try:
            count = await hosts.bootstrap(settings.bootstrap)
            _log.info("%d hosts from %s", count, settings.bootstrap)
        except HeadgateError as error:
            _log.warning("%s gives no hosts: %s", settings.bootstrap, error.message)
    wanted = list(settings.crawl)
    while wanted:
        answers = await asyncio.gather(*(_crawl(hosts, name) for name in wanted))
        failed = {name: answer for name, answer in zip(wanted, answers, strict=True) if answer is not None}
        for name, answer in failed.items():
            _log.warning("%s is not followed yet: %s", name, answer.message)
        wanted = list(failed)
        if wanted:
            await asyncio.sleep(_ASK_AGAIN_S)


async def _crawl(hosts: Hosts, name: str) -> HeadgateError | None:
    try:
        await hosts.request_crawl(name, by_operator=True)
    except HeadgateError as error:
        return error
    return None
