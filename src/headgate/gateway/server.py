"""The gateway itself: it listens, hands connections out, and ends in good order."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import uvloop

from headgate.gateway.accepting import Acceptor
from headgate.gateway.access import ACCESS_CHANNEL
from headgate.gateway.access.opened import open_authority
from headgate.gateway.audit import Audit
from headgate.gateway.budget import Budget
from headgate.gateway.cluster import Cluster
from headgate.gateway.connection import Connection
from headgate.gateway.context import Services
from headgate.gateway.groups import Coordinator, GroupSettings
from headgate.gateway.health import Health
from headgate.gateway.login import Logins, Users
from headgate.gateway.login.departures import Departures
from headgate.gateway.login.logins import token_checker
from headgate.gateway.login.store import USERS_CHANNEL
from headgate.gateway.metrics import Metrics
from headgate.gateway.options import GatewayOptions, HostPort
from headgate.gateway.outage import NO_DATABASE
from headgate.gateway.quotas import Meter
from headgate.gateway.store import Store, StoreSettings
from headgate.gateway.tls import Certificates, make_context
from headgate.gateway.transactions import Transactions, TransactionSettings
from headgate.model import ConnectError
from headgate.runtime.access import is_loopback
from headgate.runtime.ending import end, stopped_by_signals
from headgate.runtime.listening import listen

__all__ = ["Gateway", "serve"]

logger = logging.getLogger(__name__)

_BACKLOG = 512
_SWEEP_S = 1.0
_REACH_TIMEOUT_S = 2.0


class Gateway:
    """A running gateway. `start` makes one, `drain` ends it."""

    def __init__(self, services: Services, listeners: list[socket.socket]) -> None:
        self._services = services
        self._listeners = listeners
        self._acceptor: Acceptor | None = None
        self._certificates: Certificates | None = None
        self._connections: set[Connection] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        options: GatewayOptions,
        *,
        store_settings: StoreSettings | None = None,
        group_settings: GroupSettings | None = None,
        transaction_settings: TransactionSettings | None = None,
    ) -> Gateway:
        """Open the ports, then the database, and serve. Ports first: a port that is taken is found out at once."""
        if options.tls_cert is not None:
            make_context(options)  # what cannot be used is found out before anything is opened
        listeners = _listen(options)
        try:
            options = _placed(options, listeners[0].getsockname()[1])
            services = await _open(
                options,
                store_settings or StoreSettings(),
                group_settings or GroupSettings(),
                transaction_settings or TransactionSettings(),
            )
        except NO_DATABASE as error:
            _close_all(listeners)
            raise ConnectError(
                f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
            ) from error
        except BaseException:
            _close_all(listeners)
            raise
        if not options.is_guarded and (public := [host for host in options.hosts if not is_loopback(host)]):
            logger.warning(
                "ANYBODY who can reach this gateway may read and write everything: allow_anonymous is set",
                extra={"hosts": ", ".join(public)},
            )
        gateway = cls(services, listeners)
        gateway._accept()
        await gateway._check_advertised()
        return gateway

    @property
    def options(self) -> GatewayOptions:
        """Return the options in effect: `port` and `advertised` are what was opened."""
        return self._services.options

    @property
    def advertised(self) -> HostPort:
        """What clients are told to connect to."""
        assert self.options.advertised is not None
        return self.options.advertised

    @property
    def services(self) -> Services:
        return self._services

    @property
    def metrics(self) -> Metrics:
        return self._services.metrics

    def told(self) -> dict[str, Any]:
        """What it has counted, and what does not work at this moment."""
        store = self._services.store
        return {
            **self.metrics.as_dict(),
            **store.health.as_dict(),
            "inbox_rejected_total": store.rejected_total,
            "quota_rows_not_understood": self._services.meter.limits.strange_rows,
            "acl_rows_not_understood": self._services.authority.strange_rows,
            "fetch_timings": store.fetch_timings.as_dict(),
        }

    async def drain(self) -> None:
        """Accept nobody, answer what was accepted, and close."""
        if self._acceptor:
            await self._acceptor.close()
        try:
            async with asyncio.timeout(self.options.drain_timeout_s):
                await asyncio.gather(self._services.cluster.leave(), self._finish())
        except TimeoutError:
            logger.warning("connections were cut off", extra={"connections": len(self._connections)})
        await self._close()

    async def _finish(self) -> None:
        await self._services.coordinator.release()  # whoever waits for a group is told to go elsewhere
        for connection in list(self._connections):
            connection.drain()
        await self._is_empty.wait()

    async def _close(self) -> None:
        running = [task for connection in self._connections for task in connection.tasks]
        for connection in list(self._connections):
            connection.abort()
        await end(*running, *self._tasks)
        self._services.audit.sweep(at_once=True)
        await self._services.logins.close()
        await self._services.transactions.close()
        await self._services.coordinator.close()
        await self._services.store.close()

    # -- what connections call

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for one more connection."""
        metrics = self._services.metrics
        if len(self._connections) >= self.options.max_connections:
            metrics.refused_connections_total += 1
            return False
        self._connections.add(connection)
        self._is_empty.clear()
        metrics.connections_total += 1
        metrics.connections = len(self._connections)
        return True

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._services.metrics.connections = len(self._connections)
        if not self._connections:
            self._is_empty.set()

    def reload(self) -> None:
        """Load the certificates anew, at once."""
        if self._certificates:
            self._certificates.look_again()

    def places(self) -> int:
        """Return how many connections there are."""
        return len(self._connections)

    def strangers(self, address: str) -> int:
        """Return how many connections of an address have not logged in."""
        return sum(each.is_stranger and each.address == address for each in self._connections)

    def _accept(self) -> None:
        store, logins = self._services.store, self._services.logins
        departures = Departures(logins.users, store.health, lambda: self._connections)
        store.on_notify(USERS_CHANNEL, lambda _: departures.look_again())
        runs = {"sweep": self._sweep, "users": departures.run}
        if self.options.tls_cert is not None:
            self._certificates = Certificates(self.options, store.health)
            runs["certificates"] = self._certificates.watch
        if logins.tokens is not None:
            runs["oauth keys"] = logins.tokens.keyring.run
        for part, run in runs.items():
            self._tasks.append(asyncio.create_task(store.health.tend(part, run), name=f"gateway {part}"))
        self._acceptor = Acceptor(self._listeners, self._services, self, self._certificates)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            for connection in list(self._connections):
                connection.check(loop.time())
            self._services.audit.sweep()
            self._services.store.health.works("sweep")

    async def _check_advertised(self) -> None:
        """An address that clients cannot use is the commonest mistake with brokers: say it before they do."""
        logger.info(
            "gateway ready", extra={"advertised": str(self.advertised), "node_id": self._services.cluster.node_id}
        )
        try:
            async with asyncio.timeout(_REACH_TIMEOUT_S):
                _, writer = await asyncio.open_connection(self.advertised.host, self.advertised.port)
            writer.close()
        except (OSError, TimeoutError) as error:
            logger.warning(
                "the advertised address cannot be reached from here; clients are told to use it",
                extra={"advertised": str(self.advertised), "why": str(error) or "timeout"},
            )


def serve(
    options: GatewayOptions,
    *,
    ready: Callable[[Gateway], None],
    until: Callable[[asyncio.Event], None] | None = None,
) -> None:
    """Run a gateway until SIGINT or SIGTERM; a second signal ends it at once. `until` may set the event, too."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, ready, until))


async def _serve(
    options: GatewayOptions, ready: Callable[[Gateway], None], until: Callable[[asyncio.Event], None] | None
) -> None:
    stop = stopped_by_signals()
    if until:
        until(stop)
    starting = asyncio.create_task(Gateway.start(options))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    gateway = starting.result()
    if not sys.stdin.isatty():  # whose end is the end of a program that was started there
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.reload)
    ready(gateway)
    await stopping
    await gateway.drain()


async def _open(
    options: GatewayOptions,
    settings: StoreSettings,
    group_settings: GroupSettings,
    transaction_settings: TransactionSettings,
) -> Services:
    assert options.advertised is not None
    async with AsyncExitStack() as undo:
        health = Health()
        tokens = token_checker(options.oauth, health)
        store = await Store.open(options.postgres_url, settings=settings, health=health)
        undo.push_async_callback(store.close)
        cluster = await Cluster.join(store.pool, options.advertised, health)
        undo.push_async_callback(cluster.leave)
        store.on_notify("kafka_brokers", lambda _: cluster.look_again())
        coordinator = await Coordinator.open(store, cluster, group_settings)
        undo.push_async_callback(coordinator.close)
        transactions = Transactions(store, cluster, coordinator, transaction_settings)
        transactions.start(options.postgres_url)
        undo.push_async_callback(transactions.close)
        users = await asyncio.to_thread(Users, options.users, store.pool)
        authority = await open_authority(options, store)
        meter = Meter()
        store.on_poll(meter.refresh_on)
        store.on_notify(ACCESS_CHANNEL, lambda _: meter.doubt())
        undo.pop_all()
    metrics = Metrics()
    budget, audit = Budget(options.max_inflight_bytes), Audit(metrics, is_on=options.audit)
    services = store, cluster, coordinator, transactions, options, Logins(users, tokens), budget, metrics, audit
    return Services(*services, meter=meter, authority=authority)


def _listen(options: GatewayOptions) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    port = options.port
    try:
        for host in options.hosts:
            listeners.append(listen(host, port, backlog=_BACKLOG, where="gateway.port"))
            port = listeners[0].getsockname()[1]
    except BaseException:
        _close_all(listeners)
        raise
    return listeners


def _close_all(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def _placed(options: GatewayOptions, port: int) -> GatewayOptions:
    return replace(options, port=port, advertised=options.advertised or HostPort(options.hosts[0], port))
