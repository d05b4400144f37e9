"""Where requests go, what they carry, and how long one is tried."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal
from urllib.parse import quote, urlsplit

from headgate.model import ConfigError, DataError
from headgate.wire.webhook import Signing, address_of, check_header, split_url

__all__ = ["WebhookOptions"]

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """Immutable and picklable. `{stream}` and `{topic}` in `url` are filled in percent-encoded, behind the host only.

    `retry_for_s` is how long one topic's rows are tried again in all, while the sender of a batch is open.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    signing: Signing | None = None
    content_type: str = "application/json"
    batch_rows: int = 1
    batch_format: Literal["json", "ndjson"] = "json"
    max_batch_bytes: int = 1 << 20
    timeout_s: float = 10.0
    retry_for_s: float = 60.0
    concurrency: int = 1  # requests of one topic at a time, for rows without a partition key
    connections: int = 16
    tls_ca: str = ""

    def __post_init__(self) -> None:
        self._check_url()
        for name, value in self.headers.items():
            check_header(name, value)
        for name in ("batch_rows", "max_batch_bytes", "timeout_s", "concurrency", "connections"):
            _require(getattr(self, name) > 0, name, "must be positive")
        _require(self.retry_for_s >= 0, "retry_for_s", "must not be negative")
        _require(self.batch_format in ("json", "ndjson"), "batch_format", "json or ndjson")

    def __repr__(self) -> str:
        shown = [f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr]
        return f"WebhookOptions(url={self.address!r}, {', '.join(shown)})"

    @property
    def address(self) -> str:
        """Scheme, host and port: a path or a query may hold a token."""
        return address_of(self.url)

    @property
    def needs_stream(self) -> bool:
        return "{stream}" in self.url

    def target(self, stream: str | None, topic: str) -> str:
        """The address for a topic. Its text can become neither another host nor another path."""
        values = {"stream": stream or "", "topic": topic}
        url = _PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), self.url)
        template = urlsplit(self.url).path.split("/")
        for written, filled in zip(template, urlsplit(url).path.split("/"), strict=True):
            if written != filled and filled in ("", ".", ".."):
                raise DataError(
                    f"the topic {topic[:80]!r} cannot be part of a path",
                    where=self.address,
                    remedy="give such rows another topic, or leave {topic} out of url",
                )
        return url

    def _check_url(self) -> None:
        parts = split_url(self.url)
        _require("{" not in parts.netloc, "url", "the host must be fixed; {topic} may stand in the path or the query")
        unknown = set(_PLACEHOLDER.findall(self.url)) - {"stream", "topic"}
        _require(not unknown, "url", "only {stream} and {topic} are filled in")


def _require(condition: bool, name: str, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"invalid webhook option {name}", where=name, remedy=remedy)
