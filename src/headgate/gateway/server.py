"""The gateway itself: it listens, hands connections out, and ends in good order."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import uvloop

from headgate.gateway.audit import Audit
from headgate.gateway.budget import Budget
from headgate.gateway.cluster import Cluster
from headgate.gateway.connection import Connection
from headgate.gateway.context import Services
from headgate.gateway.groups import Coordinator, GroupSettings
from headgate.gateway.health import Health
from headgate.gateway.login import Logins, Users
from headgate.gateway.login.departures import Departures
from headgate.gateway.login.store import USERS_CHANNEL
from headgate.gateway.metrics import Metrics
from headgate.gateway.options import GatewayOptions, HostPort
from headgate.gateway.outage import NO_DATABASE
from headgate.gateway.store import Store, StoreSettings
from headgate.gateway.transactions import Transactions, TransactionSettings
from headgate.model import ConfigError, ConnectError
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
        self._servers: list[asyncio.Server] = []
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
        tls = _tls(options)
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
        gateway = cls(services, listeners)
        await gateway._accept(tls)
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
            "fetch_timings": store.fetch_timings.as_dict(),
        }

    async def drain(self) -> None:
        """Accept nobody, answer what was accepted, and close."""
        for server in self._servers:
            server.close()
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

    async def _accept(self, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            server = await loop.create_server(
                lambda: Connection(self._services, self), sock=listener, ssl=tls, backlog=_BACKLOG
            )
            self._servers.append(server)
        store, logins = self._services.store, self._services.logins
        departures = Departures(logins.users, store.health, lambda: self._connections)
        store.on_notify(USERS_CHANNEL, lambda _: departures.look_again())
        for part, run in {"sweep": self._sweep, "users": departures.run}.items():
            self._tasks.append(asyncio.create_task(store.health.tend(part, run), name=f"gateway {part}"))

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
        undo.pop_all()
    metrics = Metrics()
    budget, audit = Budget(options.max_inflight_bytes), Audit(metrics, is_on=options.audit)
    return Services(store, cluster, coordinator, transactions, options, Logins(users), budget, metrics, audit)


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


def _tls(options: GatewayOptions) -> ssl.SSLContext | None:
    if options.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:
        raise ConfigError(
            f"the certificate cannot be used: {error}",
            where="gateway.tls_cert",
            remedy="set tls_cert and tls_key to a PEM certificate and the key that belongs to it",
        ) from None
    return context
