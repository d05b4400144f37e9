"""The `atproto` source of a pipeline: the subscription beside the query, and what Spark is told."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from headgate.model.plugin import API_VERSION
from headgate.sources.atproto.options import AtprotoSourceOptions
from headgate.sources.atproto.places import open_place
from headgate.sources.atproto.subscription import Subscription
from headgate.sources.base import POLLING, Mode, Offset, Source

__all__ = ["AtprotoSource"]


class AtprotoSource(Source):
    """Events of a relay, which come again until they are delivered."""

    api_version = API_VERSION
    format = "atproto"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        self.name = name
        self._texts = options | {"confirm": "pipeline"}
        self._options = replace(AtprotoSourceOptions.from_spark(options), confirm="pipeline")
        self._place = open_place(self._options)
        self._origin = origin
        self._subscription: Subscription | None = None
        self._lock = threading.Lock()

    def mode(self) -> Mode:
        return POLLING

    def options(self) -> dict[str, str]:
        return self._texts

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

    def origin(self) -> str:
        """A position is the relay's own number, so it says the same after the spool is lost."""
        return self._origin

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
