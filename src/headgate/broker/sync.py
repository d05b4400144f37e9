"""The client for programs that are not async: the same one, in a thread of its own.

    with SyncBrokerClient(url, group="mailer") as broker:
        broker.register_reliable_handler(Subscription.to_topics("user.created"), greet, name="greet")
        broker.run()

Handlers are plain functions, which run in threads. Nothing can interrupt those: one that has timed out goes on, beside
its next attempt.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from headgate.broker.broadcast import EventStream
from headgate.broker.client import BrokerClient, Registration
from headgate.broker.handlers import Handle
from headgate.broker.messages import Event, Message, Payload, Subscription
from headgate.model import UsageError

__all__ = ["SyncBrokerClient", "SyncEventStream", "SyncRegistration"]

T = TypeVar("T")


class SyncBrokerClient:
    """`BrokerClient`, whose options these are, and whose methods wait."""

    def __init__(self, url: str, *, group: str, **options: Any) -> None:
        self._url, self._group, self._options = url, group, options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: BrokerClient | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=_run_loop, args=[started], name="headgate broker", daemon=True)
        self._thread.start()
        self._loop = started.result()
        try:
            self._client = self._wait(self._open())
        except BaseException:
            self._stop_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def id(self) -> str:
        return self._opened.id

    def publish(self, *messages: Message) -> list[int]:
        """Publish in a transaction of its own; return the event ids, or raise a `HeadgateError`."""
        return self._wait(self._opened.publish(*messages))

    def send(self, subscription_id: int, *messages: Message) -> list[int]:
        """Publish to one subscription, whatever its condition; return the event ids."""
        return self._wait(self._opened.send(subscription_id, *messages))

    def enqueue(self, message: Message) -> concurrent.futures.Future[int | None]:
        """Publish soon, with others, in this order; waits while the buffer is full. The future has the event's id."""
        queued = self._wait(self._opened.enqueue(message))
        return asyncio.run_coroutine_threadsafe(_result_of(queued), self._running_loop)

    def flush(self) -> None:
        """Publish what was enqueued, now, and wait until it is."""
        self._wait(self._opened.flush())

    def subscribe(self, subscription: Subscription) -> int:
        """Create or find a subscription of this group; return its id, of a group with slots that of the first one."""
        return self._wait(self._opened.subscribe(subscription))

    def register_reliable_handler(
        self,
        subscription: Subscription,
        handle: Callable[[Sequence[Event[Any]]], Any],
        *,
        name: str,
        **options: Any,
    ) -> SyncRegistration:
        """Register a handler, as `BrokerClient.register_reliable_handler`; it may be a coroutine function."""
        registration = self._opened.register_reliable_handler(subscription, _in_thread(handle), name=name, **options)
        return SyncRegistration(self, self._wait(registration))

    def register_fire_and_forget(
        self, subscription: Subscription, *, buffer: int = 1000, payload_type: type[Payload] | None = None
    ) -> SyncEventStream[Payload]:
        """Listen to events from now on: `with` it, and `for` over it. Another thread must be in `run`."""
        listen = self._opened.register_fire_and_forget
        return SyncEventStream(self, self._wait(listen(subscription, buffer=buffer, payload_type=payload_type)))

    def run(self) -> None:
        """Dispatch, read and handle until `stop` or `end` is called, or Ctrl-C."""
        self._wait(self._opened.run())

    def stop(self) -> None:
        """Have `run` return; any thread may call this, a handler's, too."""
        self._running_loop.call_soon_threadsafe(self._opened.stop)

    def end(self, deadline_s: float | None = None) -> None:
        """Stop, wait up to the deadline for handlers that run, flush what was enqueued, and close. Idempotent."""
        if self._client is not None:
            self._wait(self._client.end(deadline_s))
            self._client = None
            self._stop_loop()

    async def _open(self) -> BrokerClient:
        return await BrokerClient(self._url, group=self._group, **self._options).__aenter__()

    @property
    def _opened(self) -> BrokerClient:
        if self._client is None:
            raise UsageError("the client is not open", remedy="use it in a with statement")
        return self._client

    @property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise UsageError("the client is not open", remedy="use it in a with statement")
        return self._loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("this would wait for itself", remedy="async handlers use the async client")
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # after Ctrl-C, whatever is still going on
            raise

    def _stop_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()


class SyncRegistration:
    """A handler that was registered."""

    def __init__(self, client: SyncBrokerClient, registration: Registration) -> None:
        self._client, self._registration = client, registration
        self.name, self.subscription_id = registration.name, registration.subscription_id

    def cancel(self, *, unsubscribe: bool = False) -> None:
        """Stop the handler and wait for its running call, as `Registration.cancel`; not from within the handler."""
        self._client._wait(self._registration.cancel(unsubscribe=unsubscribe))


class SyncEventStream(Generic[Payload]):
    """`EventStream`, iterated over without async."""

    def __init__(self, client: SyncBrokerClient, stream: EventStream[Payload]) -> None:
        self._client, self._stream = client, stream

    @property
    def lost(self) -> int:
        return self._stream.lost

    def __iter__(self) -> Iterator[Event[Payload]]:
        return self

    def __next__(self) -> Event[Payload]:
        try:
            return self._client._wait(_next_of(self._stream))
        except StopAsyncIteration:
            raise StopIteration from None

    def cancel(self) -> None:
        """End the stream: whoever iterates over it comes to its end."""
        self._client._wait(self._stream.cancel())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


def _run_loop(started: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
    loop = asyncio.new_event_loop()
    loop.call_soon(started.set_result, loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all())
    finally:
        loop.close()


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _in_thread(handle: Callable[[Sequence[Event[Any]]], Any]) -> Handle:
    if inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(getattr(handle, "__call__", None)):  # noqa: B004
        return handle

    async def call(events: Sequence[Event[Any]]) -> None:
        await asyncio.to_thread(handle, events)

    return call


async def _result_of(future: asyncio.Future[T]) -> T:
    return await future


async def _next_of(stream: EventStream[Payload]) -> Event[Payload]:
    return await anext(stream)
