"""Admission of hosts to be crawled: the checks between a name that somebody sent and a host that is followed."""

from __future__ import annotations

import json
import re
from typing import Any

from headgate.model import ConnectError, Kind, UsageError
from headgate.relay.net import Fetcher
from headgate.wire.atproto import is_did, is_handle

__all__ = ["CrawlError", "check_hostname", "describe", "list_hosts", "origin"]

_LOCAL = re.compile(r"(localhost|127\.0\.0\.1)(:[0-9]{1,5})?")
_RELAY = re.compile(r"atproto-relay|headgate-relay", re.IGNORECASE)
_MAX_DESCRIPTION_BYTES = 1 << 16
_MAX_PAGE_BYTES = 4 << 20
_MAX_PAGES = 100


class CrawlError(UsageError, kind=Kind.USAGE):
    """A host is not to be crawled. `name` is the error's name in XRPC."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message, remedy="ask for a host of accounts, by its public name")
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return CrawlError, (self.name, self.message)


def origin(hostname: str, *, allow_private: bool) -> str:
    return f"{'http' if allow_private else 'https'}://{hostname}"


def check_hostname(text: str, *, allow_private: bool) -> str:
    """The name as the relay writes it. Addresses, ports, paths and local names are none."""
    name = text.strip().lower().removeprefix("https://").removesuffix("/")
    if allow_private and _LOCAL.fullmatch(name):
        return name
    if not is_handle(name) or name.endswith((".local", ".localhost", ".internal", ".arpa", ".onion")):
        raise CrawlError("InvalidRequest", f"{text[:80]!r} is no name of a host")
    return name


async def describe(fetcher: Fetcher, hostname: str) -> None:
    """Raise unless a host of accounts answers to the name. A relay does not: two that follow each other never end."""
    url = f"{origin(hostname, allow_private=fetcher.allow_private)}/xrpc/com.atproto.server.describeServer"
    try:
        answer = await fetcher.get(url, limit=_MAX_DESCRIPTION_BYTES)
    except ConnectError as error:
        raise CrawlError("InvalidRequest", f"{hostname} cannot be reached: {error.message}") from error
    if _RELAY.search(answer.server):
        raise CrawlError("InvalidRequest", f"{hostname} is a relay")
    said = _json(answer.body)
    did = said.get("did") if isinstance(said, dict) else None
    if answer.status != 200 or not isinstance(did, str) or not is_did(did):
        raise CrawlError("InvalidRequest", f"{hostname} does not describe itself as a host of accounts")


async def list_hosts(fetcher: Fetcher, relay_url: str) -> list[str]:
    """The hosts that another relay follows, except those it has banned. Names are not checked yet."""
    names: list[str] = []
    cursor = ""
    for _ in range(_MAX_PAGES):
        query = {"limit": "1000"} | ({"cursor": cursor} if cursor else {})
        url = f"{relay_url.rstrip('/')}/xrpc/com.atproto.sync.listHosts"
        answer = await fetcher.get(url, limit=_MAX_PAGE_BYTES, query=query)
        page = _json(answer.body)
        if answer.status != 200 or not isinstance(page, dict) or not isinstance(page.get("hosts"), list):
            raise ConnectError(f"{relay_url} does not list its hosts", remedy="give another relay to begin with")
        names += [name for entry in page["hosts"] if (name := _name(entry)) is not None]
        cursor = page.get("cursor") or ""
        if not page["hosts"] or not isinstance(cursor, str) or not cursor:
            break
    return names


def _name(entry: Any) -> str | None:
    if not isinstance(entry, dict) or entry.get("status") == "banned":
        return None
    name = entry.get("hostname")
    return name if isinstance(name, str) else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
