"""How the server listens and what it accepts, and what Spark's reader of a spool takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from headgate.model import ConfigError, UsageError
from headgate.runtime.access import is_loopback
from headgate.sources.options import parse_options
from headgate.wire.webhook import Signing

__all__ = ["ReaderOptions", "ServerOptions", "is_loopback"]

_PATH = re.compile(r"/|(/[A-Za-z0-9._~-]+)+")
_BODIES = ("text", "binary")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """One server and its spool. `keys` maps the name of a client to its secret; both ways to prove who sends may be
    asked for at once."""

    spool: Path
    origin: str = ""  # the first part of the ids it answers with; the spool's own id without one
    host: str = "127.0.0.1"
    port: int = 0
    path: str = "/"
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    signing: Signing | None = None
    body: Literal["text", "binary"] = "text"
    max_body: int = 1 << 20
    max_events: int = 10_000  # in one request
    max_requests: int = 128  # in flight
    max_connections: int = 1024
    request_timeout_s: float = 10.0
    max_spool_bytes: int = 1 << 30
    segment_bytes: int = 4 << 20
    window_s: float = 86_400.0  # how long an idempotency key is remembered
    max_keys: int = 500_000

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise ConfigError(f"not a path: {self.path[:80]!r}", where="path", remedy="write it like /webhooks")
        if self.body not in _BODIES:
            raise ConfigError(f"unknown kind of body {self.body!r}", where="body", remedy="text or binary")
        if not all(self.keys.values()):
            raise ConfigError("a key is empty", where="keys", remedy="give every client a secret of its own")
        if not (is_loopback(self.host) or self.keys or self.signing):
            raise ConfigError(
                f"host {self.host} is not loopback, and anybody could send",
                where="host",
                remedy="set keys or signature, or listen on 127.0.0.1",
            )


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What `spark.readStream.format("webhook").option(...)` accepts."""

    spool: str
    max_offsets_per_trigger: int = 10_000
    body: str = "text"
    confirm: str = "commit"  # `pipeline`: somebody else says what is delivered

    def __post_init__(self) -> None:
        for name, value, known in (("body", self.body, _BODIES), ("confirm", self.confirm, ("commit", "pipeline"))):
            if value not in known:
                raise UsageError(
                    f"the option {name} is {value!r}", where='format("webhook")', remedy=f"one of {', '.join(known)}"
                )

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        return parse_options(cls, options, source="webhook")

    @property
    def directory(self) -> Path:
        return Path(self.spool)
