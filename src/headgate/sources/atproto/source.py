"""The `atproto` source of a pipeline: the subscription beside the query, and what Spark is told."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headgate.model import ConfigError, ConnectError
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.sources.atproto.places import open_place
from headgate.sources.atproto.subscription import Subscription
from headgate.sources.base import Offset
from headgate.sources.polled import PolledSource

__all__ = ["AtprotoSource"]

_CHECK_S = 10.0


class AtprotoSource(PolledSource):
    """Events of a relay, which come again until they are delivered.

    A position is the relay's own number, so an event has the same message id after the spool is lost.
    """

    format = "atproto"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        super().__init__(name, options | {"confirm": "pipeline"}, origin)
        self._options = replace(AtprotoSourceOptions.from_spark(options), confirm="pipeline")
        self._place = open_place(self._options)
        self._subscription: Subscription | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Subscribe. Events are kept from now on, whatever becomes of the query."""
        with self._lock:
            running = self._subscription is not None and self._subscription.running
            if self._options.url and not running:
                self._subscription = Subscription(self._options)

    def stop(self) -> None:
        with self._lock:
            if self._subscription is not None:
                self._subscription.stop()
                self._subscription = None

    def commit(self, end: Offset) -> None:
        self._place.deliver(int(end["next"]))

    def check(self) -> str:
        if not self._options.url:
            if not Path(self._options.path).is_dir():
                raise ConfigError(
                    f"there is no directory {self._options.path}", where=f"sources.{self.name}", remedy="correct path"
                )
            return f"log in {self._options.path}"
        relay = urlsplit(self._options.url)
        try:
            port = relay.port or (443 if relay.scheme == "wss" else 80)
            socket.create_connection((relay.hostname or "", port), timeout=_CHECK_S).close()
        except OSError as error:
            raise ConnectError(f"no connection to {relay.netloc}: {error}", remedy="correct url, or wait") from None
        return f"{relay.netloc} takes connections"

    def lag_rows(self, end: Offset, latest: Offset) -> int:
        """Events, not rows: what is in them is not known before they are read."""
        return max(0, int(latest["next"]) - int(end["next"]))

    def describe(self) -> dict[str, Any]:
        if not self._options.url:
            return {"log": self._options.path}
        subscription = self._subscription
        said: dict[str, Any] = {"relay": self._options.url}
        if subscription is None:
            return said | {"subscription": "stopped"}
        return said | {
            "subscription": subscription.state,
            "events_total": subscription.events,
            "spool_bytes": subscription.held_bytes,
        }
