"""Access control of headgate's servers: tokens, other web pages, and addresses that are not for strangers."""

from __future__ import annotations

import hmac
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

__all__ = ["has_token", "is_foreign_host", "is_foreign_origin", "is_loopback", "is_public_address"]

_NAT64 = ip_network("64:ff9b::/96")


def is_loopback(host: str) -> bool:
    """Whether a server that listens there can be reached from this machine only."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def has_token(authorization: str | None, token: str) -> bool:
    """Whether a header is `Bearer TOKEN`; takes as long for a wrong token as for the right one."""
    return hmac.compare_digest((authorization or "").encode(), f"Bearer {token}".encode())


def is_foreign_origin(origin: str | None, host: str | None) -> bool:
    """A page in a browser on this machine must not be able to steer headgate behind its user's back."""
    return origin is not None and urlsplit(origin).netloc != host


def is_foreign_host(host: str | None) -> bool:
    """Whether a Host header is a name that somebody else's name server may have pointed at this machine.

    Such a page has the origin that it asks for, so its origin says nothing (DNS rebinding). A server that asks for no
    token answers to addresses and to localhost only; whoever sends no header is no browser.
    """
    if host is None:
        return False
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        return not (name == "localhost" or name.endswith(".localhost") or ip_address(name))
    except ValueError:
        return True


def is_public_address(text: str) -> bool:
    """Whether an IP address belongs to the internet at large, also if it is an IPv4 address in the clothes of IPv6."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return _is_public(inner)
    return _is_public(address)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and not address.is_reserved
