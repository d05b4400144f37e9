"""The demo's broker: the shop publishes every order in the transaction that makes it, and a handler gets it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from headgate.broker import Event, Subscription, SyncBrokerClient
from headgate.demo.shop import ORDER_PLACED

__all__ = ["DemoBroker"]


class DemoBroker:
    """A program that handles orders, how many it has had, and what to type to see them."""

    def __init__(self, url: str, doors: Mapping[str, Any]) -> None:
        self.url = str(doors["url"])
        self.handled = 0
        self.last = ""
        self.first_arrival: float | None = None  # on the monotonic clock
        self._client = SyncBrokerClient(url, group="demo")
        self._thread = threading.Thread(target=self._client.run, name="demo broker", daemon=True)

    def __enter__(self) -> Self:
        self._client.__enter__()
        wanted = Subscription.to_topics(ORDER_PLACED)
        self._client.register_reliable_handler(wanted, self._handle, name="greet", retries_s=[1, 10])
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._client.end()
        self._thread.join(10)

    @property
    def curl_command(self) -> str:
        return f"curl -N '{self.url}/events?topic={ORDER_PLACED}'"

    def poll(self) -> None:
        """Events come by themselves."""

    def _handle(self, events: Sequence[Event[Any]]) -> None:
        self.handled += len(events)
        buyer = events[-1].payload
        self.last = f"{buyer['name']} buys {buyer['product']}"
        self.first_arrival = self.first_arrival or time.monotonic()
