"""HTTP to strangers: names are resolved once, checked, and connected to by the address that was checked.

Whoever can make a relay ask for a URL (a DID document, a host that wants to be crawled) must not reach with it what
only the relay's own network can reach. So only public addresses are dialled, at every redirect, too; and an answer has
a size and a time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpcore
import httpx

from headgate.model import ConnectError

__all__ = ["Answer", "Fetcher", "connect", "public_addresses"]

_REMEDY = "check the name; only public addresses are allowed"
_MAX_REDIRECTS = 3
# Threads of their own: names that take long to look up must not keep everything else that needs a thread.
_NAMES = ThreadPoolExecutor(64, thread_name_prefix="relay-names")
# A few compressed bytes can become a gigabyte, so nothing may come compressed.
_HEADERS = {"User-Agent": "headgate-relay", "Accept-Encoding": "identity"}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


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
    if not allow_private and not all(_is_public(address) for address in addresses):
        raise ConnectError(f"{host[:80]} has an address that is not public", remedy=_REMEDY)
    return addresses


def _is_public(text: str) -> bool:
    """Is it an address of the internet? One of IPv4 inside one of IPv6 is looked at as what it is."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
    return address.is_global and not address.is_multicast


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


class Fetcher:
    """GET with limits. `async with Fetcher() as fetcher`."""

    def __init__(self, *, allow_private: bool = False, timeout_s: float = 10.0, connections: int = 200) -> None:
        self.allow_private = allow_private
        self._timeout_s = timeout_s
        transport = httpx.AsyncHTTPTransport(trust_env=False)
        transport._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=connections,
            max_keepalive_connections=connections // 2,
            keepalive_expiry=30.0,
            network_backend=_CheckedBackend(allow_private=allow_private),
        )
        self._client = httpx.AsyncClient(transport=transport, headers=_HEADERS, timeout=timeout_s, trust_env=False)

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(
        self, url: str, *, limit: int, query: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Answer:
        """The answer, of any status; ConnectError when there is none within time and size."""
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                return await self._get(httpx.URL(url, params=query) if query else httpx.URL(url), limit)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            what = str(error) or type(error).__name__
            raise ConnectError(f"no answer from {url[:120]}: {what}", remedy="try again later") from error

    async def _get(self, url: httpx.URL, limit: int) -> Answer:
        for _ in range(_MAX_REDIRECTS + 1):
            if url.scheme != "https" and not self.allow_private:
                raise ConnectError(f"{str(url)[:120]} is not https", remedy=_REMEDY)
            async with self._client.stream("GET", url) as response:
                location = response.headers.get("location")
                if response.is_redirect and location:
                    url = url.join(location)
                    continue
                return Answer(response.status_code, await _body(response, limit), response.headers.get("server", ""))
        raise ConnectError(f"{str(url)[:120]} leads on and on", remedy="try again later")


async def _body(response: httpx.Response, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw(1 << 16):
        body += chunk
        if len(body) > limit:
            raise ConnectError(f"{str(response.url)[:120]} answers with more than {limit} bytes", remedy="ask for less")
    return bytes(body)
