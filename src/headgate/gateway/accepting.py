"""Accepts connections, makes TLS handshakes with a limit of time and number, and hands over those that succeed.

A handshake takes a connection's place from its beginning, so that whoever only begins them cannot have more than others
have. When half of all places are taken, one address may have a quarter of them without a login.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from functools import partial
from typing import Protocol

from headgate.gateway.connection import Connection, Owner
from headgate.gateway.context import Services, Session
from headgate.gateway.tls import CERTIFICATE, Certificates
from headgate.runtime.ending import end

__all__ = ["Acceptor"]

logger = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
_PART = "accepting"
_PAUSE_S = 0.5
_LEAST_STRANGERS = 4
_AT_A_TIME = 64


class Host(Owner, Protocol):
    """The server, which knows the connections there are."""

    def places(self) -> int:
        """How many connections there are."""

    def strangers(self, address: str) -> int:
        """How many of an address have not logged in."""


class _Arrival:
    """The server, as a connection sees it that is being let in: its place is counted here until it is counted there."""

    def __init__(self, host: Host, arriving: Counter[str], address: str) -> None:
        self._host = host
        self._arriving = arriving
        self._is_over = False
        self.address = address
        arriving[address] += 1

    def end(self) -> None:
        """Give the place back, once."""
        if not self._is_over:
            self._is_over = True
            self._arriving[self.address] -= 1
            if not self._arriving[self.address]:
                del self._arriving[self.address]

    def opened(self, connection: Connection) -> bool:
        self.end()
        return self._host.opened(connection)

    def closed(self, connection: Connection) -> None:
        self._host.closed(connection)


class Acceptor:
    """Listens until it is closed."""

    def __init__(
        self,
        listeners: list[socket.socket],
        services: Services,
        host: Host,
        certificates: Certificates | None,
    ) -> None:
        self._listeners = listeners
        self._services = services
        self._host = host
        self._certificates = certificates
        self._greeting: set[asyncio.Task[None]] = set()
        self._arriving: Counter[str] = Counter()  # by address, who has a place and is not a connection yet
        self._is_over = False
        for listener in listeners:
            listener.setblocking(False)
            self._listen(listener)

    async def close(self) -> None:
        """Listen no longer, and give up handshakes."""
        self._is_over = True
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        await end(*self._greeting)

    def _listen(self, listener: socket.socket) -> None:
        if not self._is_over:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take who waits, a few at a time; not in a task, which could be ended between an accept and its socket."""
        health = self._services.store.health
        for _ in range(_AT_A_TIME):
            try:
                accepted, name = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it has gone already
            except OSError as error:  # too many files are open, as a rule; others will be closed
                logger.warning("nobody can be let in at this moment", extra={"why": str(error)})
                health.failed(_PART, error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(_PAUSE_S, self._listen, listener)
                return
            health.works(_PART)
            self._begin(accepted, str(name[0]))

    def _begin(self, accepted: socket.socket, address: str) -> None:
        if not self._has_place(address):
            self._services.metrics.refused_connections_total += 1
            accepted.close()
            return
        arrival = _Arrival(self._host, self._arriving, address)
        task = asyncio.create_task(self._greet(accepted, arrival))
        self._greeting.add(task)
        task.add_done_callback(partial(self._greeted, accepted, arrival))

    def _greeted(self, accepted: socket.socket, arrival: _Arrival, task: asyncio.Task[None]) -> None:
        self._greeting.discard(task)
        if task.cancelled():  # perhaps before it had begun
            accepted.close()
            arrival.end()

    def _has_place(self, address: str) -> bool:
        most = self._services.options.max_connections
        taken = self._host.places() + self._arriving.total()
        if taken < most // 2 or not self._has_strangers:
            return taken < most
        strangers = self._arriving[address] + self._host.strangers(address)
        return taken < most and strangers < max(most // 4, _LEAST_STRANGERS)

    @property
    def _has_strangers(self) -> bool:
        return self._certificates is not None or self._services.options.is_guarded

    async def _greet(self, accepted: socket.socket, arrival: _Arrival) -> None:
        """Make the handshake, if there is one to be made; the connection goes its own way from then on."""
        loop, address = asyncio.get_running_loop(), arrival.address
        make = partial(Connection, self._services, arrival)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._certificates is None:
                await loop.connect_accepted_socket(make, accepted)
                return
            timeout_s = min(HANDSHAKE_S, self._services.options.stall_timeout_s)
            await loop.connect_accepted_socket(
                make, accepted, ssl=self._certificates.context, ssl_handshake_timeout=timeout_s
            )
        except ssl.SSLError as error:
            accepted.close()
            why = f"handshake: {error.reason or error}"
            self._services.audit.login_failed(Session(address, address), CERTIFICATE, why)
        except OSError as error:  # it has gone, as those do who only look whether the port is open; or it was too slow
            accepted.close()
            logger.info("no connection", extra={"peer": address, "why": str(error) or type(error).__name__})
        finally:
            arrival.end()
