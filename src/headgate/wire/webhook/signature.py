"""HMAC-SHA-256 signatures of webhooks, made and checked. The time is an argument.

    github    X-Hub-Signature-256: sha256=HEX                                  over the body
    stripe    Stripe-Signature: t=SECONDS,v1=HEX                               over `t.body`
    standard  webhook-id, webhook-timestamp, webhook-signature: v1,BASE64      over `id.timestamp.body`

The last two sign the time, so that an old request cannot be sent again. Several secrets may be valid while one
replaces another: a signature by any of them is good. Checks take as long for a wrong signature as for a right one.

Specification: GitHub documentation, "Validating webhook deliveries"; Stripe documentation, webhook signatures;
Standard Webhooks, "Signature scheme"; RFC 2104 (HMAC).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from headgate.model import ConfigError

__all__ = ["SCHEMES", "Scheme", "Signing"]

Scheme = Literal["github", "stripe", "standard"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)

_HEADERS: dict[Scheme, str] = {
    "github": "X-Hub-Signature-256",
    "stripe": "Stripe-Signature",
    "standard": "webhook-signature",
}
_ID, _TIMESTAMP = "webhook-id", "webhook-timestamp"
_SECONDS = re.compile(r"[0-9]{1,12}")
_BASE64_SECRET = "whsec_"  # noqa: S105 - how Standard Webhooks marks a secret that is base64
_MOST_SIGNATURES = 16  # one header may hold several, but not as many as a stranger likes


@dataclass(frozen=True, slots=True)
class Signing:
    """A scheme and its secrets. The first secret signs GitHub's way; the other schemes carry one signature of each."""

    scheme: Scheme
    secrets: tuple[str, ...] = field(repr=False)
    header: str = ""  # another name for the header with the signature
    tolerance_s: float = 300.0

    def __post_init__(self) -> None:
        if not self.secrets or not all(self.secrets):
            raise ConfigError("a signature needs a secret", where="signature.secrets", remedy="give at least one")
        for secret in self.secrets:
            self._key(secret)

    @property
    def header_name(self) -> str:
        return self.header or _HEADERS[self.scheme]

    @property
    def signs_id(self) -> bool:
        """Whether the request's id is signed, so that nobody can replay a request under another one."""
        return self.scheme == "standard"

    def sign(self, body: bytes, *, message_id: str, now_s: int) -> dict[str, str]:
        """The headers that a request with this body must carry."""
        content = self._content(body, message_id, str(now_s))
        signatures = [self._text(secret, content) for secret in self.secrets]
        if self.scheme == "github":
            return {self.header_name: f"sha256={signatures[0]}"}
        if self.scheme == "stripe":
            return {self.header_name: ",".join([f"t={now_s}", *(f"v1={text}" for text in signatures)])}
        joined = " ".join(f"v1,{text}" for text in signatures)
        return {_ID: message_id, _TIMESTAMP: str(now_s), self.header_name: joined}

    def verify(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> bool:
        """Whether one of the secrets signed this. The names of the headers are in lower case."""
        given = headers.get(self.header_name.lower(), "")
        timestamp, signatures = self._parse(given, headers)
        if self.scheme != "github" and not self._is_recent(timestamp, now_s):
            return False
        content = self._content(body, headers.get(_ID, ""), timestamp)
        return _any_equal([self._text(secret, content) for secret in self.secrets], signatures)

    def _parse(self, given: str, headers: Mapping[str, str]) -> tuple[str, list[str]]:
        """The time and the signatures that a request brings."""
        if self.scheme == "github":
            name, _, text = given.partition("=")
            return "", [text.lower()] if name == "sha256" else []
        if self.scheme == "stripe":
            pairs = [part.strip().partition("=")[::2] for part in given.split(",", _MOST_SIGNATURES)]
            times = [value for name, value in pairs if name == "t"]
            return times[0] if len(times) == 1 else "", [value for name, value in pairs if name == "v1"]
        versions = [part.partition(",")[::2] for part in given.split(" ", _MOST_SIGNATURES)]
        signatures = [text for version, text in versions if version == "v1"]
        return headers.get(_TIMESTAMP, "") if headers.get(_ID) else "", signatures

    def _is_recent(self, timestamp: str, now_s: float) -> bool:
        return bool(_SECONDS.fullmatch(timestamp)) and abs(now_s - int(timestamp)) <= self.tolerance_s

    def _content(self, body: bytes, message_id: str, timestamp: str) -> bytes:
        if self.scheme == "github":
            return body
        if self.scheme == "stripe":
            return b"%s.%s" % (timestamp.encode(), body)
        return b"%s.%s.%s" % (message_id.encode("utf-8", "surrogatepass"), timestamp.encode(), body)

    def _text(self, secret: str, content: bytes) -> str:
        digest = hmac.digest(self._key(secret), content, hashlib.sha256)
        return base64.b64encode(digest).decode() if self.scheme == "standard" else digest.hex()

    def _key(self, secret: str) -> bytes:
        if self.scheme != "standard" or not secret.startswith(_BASE64_SECRET):
            return secret.encode()
        try:
            return base64.b64decode(secret.removeprefix(_BASE64_SECRET), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(
                f"a secret that begins with {_BASE64_SECRET} must go on in base64",
                where="signature.secrets",
                remedy="copy it whole from the page of the service that sends",
            ) from None


def _any_equal(expected: list[str], given: list[str]) -> bool:
    """Compares all with all: the time taken says nothing of which one was right, or how nearly."""
    good = False
    for right in expected:
        for text in given:
            good |= hmac.compare_digest(right.encode(), text.encode("utf-8", "surrogatepass"))
    return good
