"""HTTP to strangers: names are resolved once, checked, and connected to by the address that was checked.

Whoever can make a relay ask for a URL (a DID document, a host that wants to be crawled) must not reach with it what
only the relay's own network can reach. So only public addresses are dialled, at every redirect, too; and an answer has
a size and a time.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import certifi
import httpcore

from headgate.model import ConnectError
from headgate.runtime.access import is_public_address

__all__ = ["Answer", "Fetcher", "connect", "public_addresses"]

_REMEDY = "check the name; only public addresses are allowed"
_MAX_REDIRECTS = 3
# Threads of their own: names that take long to look up must not keep everything else that needs a thread.
_NAMES = ThreadPoolExecutor(64, thread_name_prefix="relay-names")
# A few compressed bytes can become a gigabyte, so nothing may come compressed.
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_ANSWER = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpcore.ConnectionNotAvailable,
)
_HEADERS = (("User-Agent", "headgate-relay"), ("Accept", "*/*"), ("Accept-Encoding", "identity"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    body: bytes
    server: str  # the `Server` header, by which relays are told from hosts


async def public_addresses(host: str, port: int, *, allow_private: bool = False) -> list[str]:
    """The addresses of a name, none of which is private. One private one spoils the name."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        infos = await asyncio.get_running_loop().run_in_executor(_NAMES, look_up)
    except (OSError, UnicodeError) as error:
        raise ConnectError(f"{host[:80]} has no address", remedy=_REMEDY) from error
    addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
    if not allow_private and not all(is_public_address(address) for address in addresses):
        raise ConnectError(f"{host[:80]} has an address that is not public", remedy=_REMEDY)
    return addresses


async def connect(host: str, port: int, *, allow_private: bool, timeout_s: float) -> socket.socket:
    """A connected socket to one of a name's checked addresses."""
    loop = asyncio.get_running_loop()
    for address in await public_addresses(host, port, allow_private=allow_private):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(sock, (address, port))
            return sock
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):  # TimeoutError is one
                raise
    raise ConnectError(f"{host}:{port} cannot be reached", remedy=_REMEDY)


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Dials checked addresses. TLS still names and verifies the host: that is the pool's part, not this one's."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the interface has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await public_addresses(host, port, allow_private=self._allow_private)
        except ConnectError as error:
            raise httpcore.ConnectError(str(error)) from error
        return await self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@cache
def _tls() -> ssl.SSLContext:
    """One for all: to read the authorities takes longer than anything else at the start."""
    return ssl.create_default_context(cafile=certifi.where())


class Fetcher:
    """GET with limits. `async with Fetcher() as fetcher`."""

    def __init__(self, *, allow_private: bool = False, timeout_s: float = 10.0, connections: int = 200) -> None:
        self.allow_private = allow_private
        self._timeout_s = timeout_s
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_tls(),
            max_connections=connections,
            max_keepalive_connections=connections // 2,
            keepalive_expiry=30.0,
            network_backend=_CheckedBackend(allow_private=allow_private),
        )

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    async def get(
        self, url: str, *, limit: int, query: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Answer:
        """The answer, of any status; ConnectError when there is none within time and size."""
        asked = f"{url}{'&' if '?' in url else '?'}{urlencode(query)}" if query else url
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                return await self._get(asked, limit)
        except (*_NO_ANSWER, TimeoutError, ValueError) as error:
            what = str(error) or type(error).__name__
            raise ConnectError(f"no answer from {url[:120]}: {what}", remedy="try again later") from error

    async def _get(self, url: str, limit: int) -> Answer:
        for _ in range(_MAX_REDIRECTS + 1):
            parts = urlsplit(url)
            if parts.scheme != "https" and not self.allow_private:
                raise ConnectError(f"{url[:120]} is not https", remedy=_REMEDY)
            headers = [*_HEADERS, ("Host", parts.netloc.rpartition("@")[2])]
            async with self._pool.stream("GET", url.partition("#")[0], headers=headers) as response:
                location = _header(response, b"location")
                if response.status in _REDIRECTS and location:
                    url = urljoin(url, location)
                    continue
                return Answer(response.status, await _body(response, url, limit), _header(response, b"server"))
        raise ConnectError(f"{url[:120]} leads on and on", remedy="try again later")


def _header(response: httpcore.Response, name: bytes) -> str:
    """All values of a header; empty if it is not there."""
    return ", ".join(value.decode("latin-1") for key, value in response.headers if key.lower() == name)


async def _body(response: httpcore.Response, url: str, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > limit:
            raise ConnectError(f"{url[:120]} answers with more than {limit} bytes", remedy="ask for less")
    return bytes(body)
