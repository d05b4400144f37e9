"""Key-value buckets (ADR-8): a stream `KV_<bucket>` whose subjects are `$KV.<bucket>.<key>`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from headgate.model import ConfigError, DataError

if TYPE_CHECKING:
    from headgate.destinations.nats.jetstream import JetStream

__all__ = ["Bucket", "Entry"]

_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")
_BUCKET = re.compile(r"[-_a-zA-Z0-9]{1,200}")
_OPERATION = "KV-Operation"


class Entry(NamedTuple):
    """A value and its revision, which grows with every write to the bucket."""

    value: bytes
    revision: int


class Bucket:
    """One bucket. `ensure` creates it; the other verbs expect it to exist."""

    def __init__(self, jetstream: JetStream, name: str) -> None:
        self._jetstream = jetstream
        if not _BUCKET.fullmatch(name):
            raise ConfigError(f"not a bucket name: {name[:80]!r}", where="bucket", remedy="letters, digits, - and _")
        self.name = name
        self.stream = f"KV_{name}"

    def ensure(
        self, *, history: int = 1, storage: Literal["file", "memory"] = "file", replicas: int = 1, max_bytes: int = -1
    ) -> None:
        """Create the bucket if it is missing; an existing one is left as it is."""
        self._jetstream.create_stream(
            {
                "name": self.stream,
                "subjects": [f"$KV.{self.name}.>"],
                "retention": "limits",
                "storage": storage,
                "num_replicas": replicas,
                "max_msgs_per_subject": history,
                "max_bytes": max_bytes,
                "max_msgs": -1,
                "discard": "new",
                "allow_rollup_hdrs": True,
                "deny_delete": True,
                "allow_direct": True,
            }
        )

    def put(self, key: str, value: bytes) -> int:
        """Set a key; returns the revision."""
        return self._jetstream.publish(self._subject(key), value).seq

    def get(self, key: str) -> Entry | None:
        """The value of a key, or None if it was never set or is deleted."""
        message = self._jetstream.last_message(self.stream, self._subject(key))
        if message is None or message.headers.get(_OPERATION):
            return None
        return Entry(message.payload, message.sequence)

    def delete(self, key: str) -> None:
        """Mark a key as deleted; its history stays."""
        self._jetstream.publish(self._subject(key), b"", ((_OPERATION, "DEL"),))

    def _subject(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise DataError(f"not a key: {key[:80]!r}", remedy="letters, digits, - / _ = and single dots inside")
        return f"$KV.{self.name}.{key}"
