"""The SDK from synchronous code: one event loop in a thread of its own, and one client per server.

The SDK is asynchronous only. Every call has a deadline, because some of its calls wait for ever for a server that is
away. A client whose call failed is dropped, and the next one connects anew.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from headgate.destinations.base import TopicDefaults
from headgate.destinations.iggy.errors import iggy_error
from headgate.destinations.iggy.options import IggyOptions, sdk
from headgate.model import ConnectError, HeadgateError

__all__ = ["Client", "shared_client"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_clients: dict[IggyOptions, Client] = {}


class Client:
    """A connection that any thread may use."""

    def __init__(self, options: IggyOptions) -> None:
        self.options = options
        self._client = sdk().IggyClient(options.tcp())
        self._call(self._client.connect, timeout_s=options.connect_timeout_s)

    def send(self, stream: str, topic: str, partitioning: Any, messages: list[Any]) -> None:
        """Returns when the server has acknowledged all of them."""
        self._call(self._client.send_messages, stream, topic, partitioning, messages)

    def ensure_topic(self, stream: str, topic: str, defaults: TopicDefaults) -> int:
        """Create what is missing; returns how many partitions there are."""
        count = self.partitions(stream, topic)
        if count is not None:
            return count
        failed = self._attempt(self._client.create_stream, stream)  # it may be there
        failed = self._attempt(self._create_topic, stream, topic, defaults) or failed
        count = self.partitions(stream, topic)
        if count is None:
            raise failed or iggy_error(RuntimeError("the topic was created and is not there"), self.options.server)
        return count

    def _create_topic(self, stream: str, topic: str, defaults: TopicDefaults) -> Awaitable[None]:
        iggy = sdk()
        expiry, size = iggy.IggyExpiry, iggy.MaxTopicSize
        awaitable: Awaitable[None] = self._client.create_topic(
            stream,
            topic,
            defaults.partitions,
            message_expiry=expiry.ExpireDuration(timedelta(seconds=defaults.max_age_s))
            if defaults.max_age_s
            else expiry.NeverExpire(),
            max_topic_size=size.Custom(defaults.max_bytes) if defaults.max_bytes else size.Unlimited(),
            # An acknowledgement means the disk, not memory alone.
            durability=iggy.Durability.PERSISTED,
        )
        return awaitable

    def partitions(self, stream: str, topic: str) -> int | None:
        """How many there are, or None if there is no such topic."""
        try:
            found = self._call(self._client.get_topic, stream, topic)
        except HeadgateError as error:
            if "not found" in error.message.lower():
                return None
            raise
        return None if found is None else int(found.partitions_count)

    def _attempt(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> HeadgateError | None:
        """What went wrong; that the server is away is raised."""
        try:
            self._call(function, *arguments)
        except ConnectError:
            raise
        except HeadgateError as error:
            return error
        return None

    def _call(self, function: Callable[..., Awaitable[T]], *arguments: Any, timeout_s: float | None = None) -> T:
        timeout = timeout_s or self.options.send_timeout_s

        async def call() -> T:
            return await asyncio.wait_for(function(*arguments), timeout)

        try:
            return asyncio.run_coroutine_threadsafe(call(), _event_loop()).result()
        except Exception as error:  # the SDK raises RuntimeError, ValueError and others without a common ancestor
            told = iggy_error(error, self.options.server)
            if isinstance(told, ConnectError):
                _forget(self)
            raise told from None


def shared_client(options: IggyOptions) -> Client:
    """The process's client for these options, connected now if there is none."""
    with _lock:
        client = _clients.get(options)
    if client is None:
        client = Client(options)
        with _lock:
            client = _clients.setdefault(options, client)
    return client


def _forget(client: Client) -> None:
    with _lock:
        if _clients.get(client.options) is client:
            del _clients[client.options]


def _event_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="iggy", daemon=True).start()
        return _loop


def _forget_after_fork() -> None:
    """A child has neither its parent's thread nor a connection of its own."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None
    _clients.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
