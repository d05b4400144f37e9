"""What a request to somebody else's server may consist of: an address, and headers.

Specification: RFC 3986 (addresses), RFC 9110 (headers).
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from headgate.model import ConfigError

__all__ = ["address_of", "check_header", "split_url"]

# RFC 9110, 5.6.2 (token) and 5.5 (field values), of which only ASCII is sent.
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[ -~\t]*")
# These belong to the connection, or are made anew for every request.
_OWN_HEADERS = frozenset(
    ["host", "content-length", "transfer-encoding", "connection", "content-type", "idempotency-key", "webhook-id"]
)


def split_url(url: str) -> SplitResult:
    """The parts of an address that can be posted to."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError("invalid webhook option url", where="url", remedy="like https://host/path") from None
    if not good:
        raise ConfigError("invalid webhook option url", where="url", remedy="use http://host/path or https://host/path")
    if parts.fragment:
        raise ConfigError("invalid webhook option url", where="url", remedy="a fragment is never sent; leave # out")
    return parts


def check_header(name: str, value: str) -> None:
    """Raise an error unless it can be sent as it is."""
    if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
        where, remedy = f"headers.{name[:40]!r}", "names and values are printable ASCII on one line"
    elif name.lower() in _OWN_HEADERS:
        where, remedy = f"headers.{name}", "this header is made for every request"
    else:
        return
    raise ConfigError(f"invalid webhook option {where}", where=where, remedy=remedy)


def address_of(url: str) -> str:
    """Scheme, host and port: a path or a query may hold a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
