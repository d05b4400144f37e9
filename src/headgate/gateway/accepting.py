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
from collections.abc import Callable
from functools import partial
from typing import Protocol

from headgate.gateway.connection import Connection
from headgate.gateway.context import Services, Session
from headgate.gateway.tls import CERTIFICATE, Certificates
from headgate.runtime.ending import end

__all__ = ["Acceptor"]

logger = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
_PART = "accepting"
_PAUSE_S = 0.5


class Places(Protocol):
    """The connections there are, as far as who accepts must know."""

    def places(self) -> int:
        """How many connections there are."""

    def strangers(self, address: str) -> int:
        """How many of an address have not logged in."""


class Acceptor:
    """Listens until it is closed."""

    def __init__(
        self,
        listeners: list[socket.socket],
        services: Services,
        places: Places,
        certificates: Certificates | None,
        make: Callable[[], Connection],
    ) -> None:
        self._listeners = listeners
        self._services = services
        self._places = places
        self._certificates = certificates
        self._make = make
        self._greeting: set[asyncio.Task[None]] = set()
        self._handshakes: Counter[str] = Counter()
        health = services.store.health
        self._tasks = [
            asyncio.create_task(health.tend(_PART, partial(self._listen, each)), name="gateway accept")
            for each in listeners
        ]

    async def close(self) -> None:
        """Listen no longer, and give up handshakes."""
        await end(*self._tasks)
        for listener in self._listeners:
            listener.close()
        await end(*self._greeting)

    async def _listen(self, listener: socket.socket) -> None:
        loop, health = asyncio.get_running_loop(), self._services.store.health
        listener.setblocking(False)
        while True:
            try:
                accepted, name = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # it has gone already
            except OSError as error:  # too many files are open, as a rule; others will be closed
                logger.warning("nobody can be let in at this moment", extra={"why": str(error)})
                health.failed(_PART, error)
                await asyncio.sleep(_PAUSE_S)
                continue
            health.works(_PART)
            self._begin(accepted, str(name[0]))

    def _begin(self, accepted: socket.socket, address: str) -> None:
        if not self._has_place(address):
            self._services.metrics.refused_connections_total += 1
            accepted.close()
            return
        self._handshakes[address] += 1
        task = asyncio.create_task(self._greet(accepted, address), name="gateway handshake")
        self._greeting.add(task)
        task.add_done_callback(lambda done: self._greeted(done, address))

    def _greeted(self, task: asyncio.Task[None], address: str) -> None:
        self._greeting.discard(task)
        self._handshakes[address] -= 1
        if not self._handshakes[address]:
            del self._handshakes[address]

    def _has_place(self, address: str) -> bool:
        most = self._services.options.max_connections
        taken = self._places.places() + len(self._greeting)
        if taken < most // 2:
            return True
        return taken < most and self._handshakes[address] + self._places.strangers(address) < max(most // 4, 1)

    async def _greet(self, accepted: socket.socket, address: str) -> None:
        """Make the handshake, if there is one to be made; the connection goes its own way from then on."""
        loop = asyncio.get_running_loop()
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._certificates is None:
                await loop.connect_accepted_socket(self._make, accepted)
                return
            timeout_s = min(HANDSHAKE_S, self._services.options.stall_timeout_s)
            await loop.connect_accepted_socket(
                self._make, accepted, ssl=self._certificates.context, ssl_handshake_timeout=timeout_s
            )
        except ssl.SSLError as error:
            accepted.close()
            why = f"handshake: {error.reason or error}"
            self._services.audit.login_failed(Session(address, address), CERTIFICATE, why)
        except OSError as error:  # it has gone, as those do who only look whether the port is open; or it was too slow
            accepted.close()
            logger.info("no connection", extra={"peer": address, "why": str(error) or type(error).__name__})
        except BaseException:
            accepted.close()
            raise
