"""One request to somebody's webhook: made of events, signed, sent to a checked address, and judged."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from itertools import groupby
from typing import Any

import httpx
import msgspec

from headgate.model import ConfigError, HeadgateError
from headgate.runtime.access import is_public_address
from headgate.wire.webhook import Signing, address_of, check_header, split_url

__all__ = ["Endpoint", "Item", "Post", "Verdict", "posts", "retry_after_s"]

TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
_MOST_READ = 64 * 1024
_MOST_PATIENCE_S = 86_400.0
_GIVEN_UP = frozenset([410, 422])  # the receiver says that trying again is of no use


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: reading all the world's certificates takes longer than a request."""
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True)
class Item:
    """An event for a webhook. `id` is that of the first attempt, `event_id` that of this one."""

    id: int
    event_id: int
    topic: str
    payload: str  # JSON
    pos: int
    attempt: int = 1
    batch: str = ""  # retries of one request come back together
    key: str | None = None  # a digest of its key; events of one key keep their order, if the webhook has an order key


@dataclass(frozen=True, slots=True)
class Post:
    """The items of one request, in order. Equal items have an equal key, today and after a crash."""

    items: Sequence[Item]

    @property
    def key(self) -> str:
        ids = [str(item.id) for item in self.items]
        digest = hashlib.sha256(",".join(ids).encode()).hexdigest()[:16]
        return f"{ids[0]}+{len(ids)}.{digest}"

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(
            {
                "items": [
                    {"id": str(item.id), "topic": item.topic, "payload": msgspec.Raw(item.payload.encode())}
                    for item in self.items
                ]
            }
        )


def posts(items: Sequence[Item]) -> list[Post]:
    """Requests for a batch: first attempts together, and those together that failed together; none too large."""
    found = []
    for _, together in groupby(items, key=lambda item: (item.batch, item.attempt)):
        chosen: list[Item] = []
        size = 0
        for item in together:
            size += len(item.payload)
            if chosen and size > _MOST_BYTES:
                found.append(Post(chosen))
                chosen, size = [], len(item.payload)
            chosen.append(item)
        found.append(Post(chosen))
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a request. Without an error, the receiver has it."""

    error: str | None = None
    hopeless: bool = False
    retry_after_s: float | None = None  # the receiver wants to be left alone for so long


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook goes to. Neither its secret nor its path is ever shown."""

    url: str = field(repr=False)
    secret: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_private: bool = False

    def __post_init__(self) -> None:
        split_url(self.url)
        for name, value in self.headers.items():
            if not isinstance(value, str):
                raise ConfigError("a header is a text", where=f"headers.{name[:40]!r}", remedy="put it in quotes")
            check_header(name, value)
        self.signing  # noqa: B018  it checks the secret

    @property
    def address(self) -> str:
        return address_of(self.url)

    @property
    def signing(self) -> Signing:
        return Signing("standard", (self.secret,))

    def client(self) -> httpx.AsyncClient:
        """For this endpoint alone: connections are to addresses, and hosts may share one of those."""
        client = httpx.AsyncClient(
            verify=_tls() if self.url.startswith("https") else False,
            timeout=None,  # noqa: S113  `post` has a limit for all of it
            limits=httpx.Limits(max_connections=1),
            follow_redirects=False,
            trust_env=False,
        )
        client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        return client

    async def post(self, client: httpx.AsyncClient, post: Post) -> Verdict:
        """Send it once, within the time limit."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._post(client, post)
        except TimeoutError:
            return Verdict(f"no answer within {TIMEOUT_S:g} s")
        except HeadgateError as refused:
            return Verdict(refused.message)
        except (httpx.HTTPError, OSError) as failure:
            return Verdict(f"no answer: {type(failure).__name__}")

    async def _post(self, client: httpx.AsyncClient, post: Post) -> Verdict:
        body = post.body
        key = post.key
        parts = split_url(self.url)
        target, host = await self._checked_target()
        headers = {
            "user-agent": "headgate",
            **self.headers,
            "host": parts.netloc,
            "content-type": "application/json",
            "idempotency-key": key,
            **self.signing.sign(body, message_id=key, now_s=int(time.time())),
        }
        # The name is what the certificate is checked against; the address is what has been checked.
        async with client.stream(
            "POST", target, content=body, headers=headers, extensions={"sni_hostname": host}
        ) as response:
            await _pass_over(response)
        if response.is_success:
            return Verdict()
        later_s = retry_after_s(response.headers.get("retry-after", ""), time.time())
        return Verdict(f"status {response.status_code}", response.status_code in _GIVEN_UP, later_s)

    async def _checked_target(self) -> tuple[httpx.URL, str]:
        """The address with the host resolved, and the host. Whoever answers names cannot change it in between."""
        url = httpx.URL(self.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        found: Sequence[Any] = await asyncio.get_running_loop().getaddrinfo(
            url.host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        addresses = [str(each[4][0]) for each in found]
        if not self.allow_private and not all(is_public_address(address) for address in addresses):
            raise ConfigError(
                "the address is not a public one", where=self.address, remedy="allow private addresses, if it is yours"
            )
        return url.copy_with(host=addresses[0]), url.host


def retry_after_s(text: str, now_s: float) -> float | None:
    """What the header Retry-After asks for, a number of seconds or a date (RFC 9110, 10.2.3); a day at most."""
    try:
        wanted = float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - now_s
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wanted, 0.0), _MOST_PATIENCE_S)


async def _pass_over(response: httpx.Response) -> None:
    """Read a short answer, so that its connection can be used again; give up a long one."""
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > _MOST_READ:
            return
