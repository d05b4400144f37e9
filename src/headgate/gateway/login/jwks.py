"""The public keys that tokens are checked with: a JWK set (RFC 7517), from a file or over HTTPS.

Keys are fetched beside the event loop and kept while they cannot be. A key that no token of ours may be signed with, or
that cannot be read, is left out; it keeps nobody from using the others. A token with a key that is not known has them
fetched again, at most every ten seconds. Only public addresses are asked, unless told otherwise, and redirects are not
followed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import socket
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from headgate.gateway.health import Health
from headgate.gateway.options import OAuthOptions
from headgate.model import ConnectError
from headgate.runtime.access import is_public_address

__all__ = ["Keyring", "read_keys"]

logger = logging.getLogger(__name__)

_PART = "oauth keys"
_REMEDY = "check gateway.oauth.jwks"
_TIMEOUT_S = 5.0
_LOOK_S, _FETCH_S, _RETRY_S = 2.0, 300.0, 10.0
_MOST_BYTES = 256 << 10
_MOST_KEYS = 100
_KINDS: dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}


class Keyring:
    """The keys at this moment."""

    def __init__(self, options: OAuthOptions, health: Health) -> None:
        self._options = options
        self._health = health
        self._keys = KeySet([])
        self._refreshing = asyncio.Lock()
        self._tried_at = -_RETRY_S

    @property
    def keys(self) -> KeySet:
        """Return those that were fetched last."""
        return self._keys

    async def know(self, kid: str | None) -> None:
        """Fetch the keys if this one is not among them, unless that was done a moment ago."""
        if self._has(kid):
            return
        async with self._refreshing:
            if not self._has(kid) and time.monotonic() - self._tried_at >= _RETRY_S:
                await self._refresh()

    async def run(self) -> None:
        """Fetch the keys from time to time, for ever, so that those that are withdrawn count no more."""
        is_url = _is_url(self._options.jwks)
        while True:
            async with self._refreshing:
                works = await self._refresh()
            await asyncio.sleep((_FETCH_S if works else _RETRY_S) if is_url else _LOOK_S)

    def _has(self, kid: str | None) -> bool:
        return bool(self._keys.keys) and (kid is None or any(key.kid == kid for key in self._keys.keys))

    async def _refresh(self) -> bool:
        self._tried_at = time.monotonic()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                data = await _fetched(self._options)
            self._keys = await asyncio.to_thread(read_keys, data)
        except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError, ConnectError) as error:
            why = str(error) or type(error).__name__
            if not self._health.failing_s(_PART):
                logger.error("the keys of tokens cannot be fetched", extra={"jwks": self._options.jwks, "why": why})
            self._health.failed(_PART, why)
            return False
        self._health.works(_PART)
        return True


def read_keys(data: bytes) -> KeySet:
    """Return the keys of a JWK set that may check a signature. Raises ValueError if there is none."""
    try:
        found: Any = json.loads(data)
        listed = found["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("this is not a JWK set") from None
    if not isinstance(listed, list) or len(listed) > _MOST_KEYS:
        raise ValueError(f"this is not a JWK set of at most {_MOST_KEYS} keys")
    keys = [key for key in map(_key, listed) if key is not None]
    if not keys:
        raise ValueError("the JWK set has no public key for signatures")
    return KeySet([*keys])


def _key(told: Any) -> RSAKey | ECKey | OKPKey | None:
    """A public key; none if it is secret, for another purpose, or cannot be read."""
    if not isinstance(told, dict) or told.get("use", "sig") != "sig":
        return None
    kind = _KINDS.get(str(told.get("kty")))
    if kind is None:
        return None
    public = {name: value for name, value in told.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        return kind.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        logger.warning("a key of the JWK set cannot be used", extra={"kid": str(told.get("kid")), "why": str(error)})
        return None


def _is_url(text: str) -> bool:
    return urlsplit(text).scheme in ("http", "https")


async def _fetched(options: OAuthOptions) -> bytes:
    if not _is_url(options.jwks):
        return await asyncio.to_thread(_read, Path(options.jwks))
    url = httpx.URL(options.jwks)
    if url.scheme != "https" and not options.allow_private:
        raise ConnectError("keys are fetched over https", where="gateway.oauth.jwks", remedy=_REMEDY)
    address = await _address(url, options.allow_private)
    tls = await asyncio.to_thread(_tls)
    # The name is what the certificate is checked against; the address is what has been checked.
    headers = {"host": url.netloc.decode(), "accept": "application/json", "accept-encoding": "identity"}
    async with (
        httpx.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=_TIMEOUT_S) as client,
        client.stream(
            "GET", url.copy_with(host=address), headers=headers, extensions={"sni_hostname": url.host}
        ) as response,
    ):
        if response.status_code != httpx.codes.OK:
            raise ConnectError(f"{url.host} answers with {response.status_code}", remedy=_REMEDY)
        data = b""
        async for part in response.aiter_raw():
            data += part
            _check_size(len(data))
        return data


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: reading all the world's certificates takes longer than a request."""
    return ssl.create_default_context()


async def _address(url: httpx.URL, allow_private: bool) -> str:
    found: Any = await asyncio.get_running_loop().getaddrinfo(
        url.host, url.port or (443 if url.scheme == "https" else 80), type=socket.SOCK_STREAM
    )
    addresses = [str(each[4][0]) for each in found]
    if not allow_private and not all(map(is_public_address, addresses)):
        raise ConnectError(
            f"{url.host} is not a public address", remedy="set gateway.oauth.allow_private, if it is yours"
        )
    return addresses[0]


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        data = opened.read(_MOST_BYTES + 1)
    _check_size(len(data))
    return data


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise ValueError(f"a JWK set has at most {_MOST_BYTES} bytes")
