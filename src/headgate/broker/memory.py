"""A broker without a database, for the unit tests of programs that use one.

    broker = InMemoryBroker()
    mailer = broker.client("mailer")
    await mailer.register_reliable_handler(Subscription.to_topics("user.created"), greet, name="greet")
    await mailer.publish(Message("user.created", {"name": "ann"}))
    await broker.drain()                 # until everything that is due has been handled
    broker.advance(seconds=60)           # now is later: what was put off, or due then, comes with the next drain
    assert broker.dead_letters == []

It keeps what `BrokerClient` promises: order, at least once, retries for the handler that failed and nobody else, dead
letters, payloads that are JSON. Both are tested with the same tests. Conditions are SQL, which it does not know: it
understands topics and "true", and for others a Python function must be given.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Any, Self

from headgate.broker.broadcast import EventStream
from headgate.broker.handlers import RETRIES_S, Batch, Handler
from headgate.broker.limits import NO_LIMITS, Limits
from headgate.broker.messages import Event, Message, Subscription
from headgate.broker.payloads import decoder
from headgate.broker.tenure import Tenure
from headgate.broker.transactions import encode
from headgate.model import UsageError

__all__ = ["DeadLetter", "InMemoryBroker", "InMemoryClient"]

_BY_TOPICS = Subscription.to_topics("t").condition
_BY_PATTERNS = Subscription.to_patterns("t").condition
Matches = Callable[[Event, Any], bool]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a handler gave up on."""

    group: str
    handler: str
    event: Event
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An event in the hands of a group."""

    event: Event
    subscriptions: frozenset[int]
    handler: str | None = None  # of a retry: nobody else gets it


@dataclass(slots=True)
class _Group:
    queue: deque[_Waiting] = field(default_factory=deque)
    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    handlers: list[Handler] = field(default_factory=list)


class InMemoryBroker:
    """What all clients of a test share. `matches` are Python functions for conditions that are not about topics."""

    def __init__(self, matches: Mapping[str, Matches] | None = None) -> None:
        self.dead_letters: list[DeadLetter] = []
        self._matches = {"true": _always, _BY_TOPICS: _by_topics, _BY_PATTERNS: _by_patterns, **(matches or {})}
        self._ids, self._sids, self._turns = count(1), count(1), count()
        self._ahead = timedelta()
        self._groups: dict[str, _Group] = {}
        self._streams: list[tuple[EventStream[Any], Subscription]] = []
        self._later: list[tuple[datetime, int, Callable[[], None]]] = []
        self._changed = asyncio.Event()
        self._draining = asyncio.Lock()

    def client(self, group: str) -> InMemoryClient:
        """One group of one program."""
        return InMemoryClient(self, group)

    def now(self) -> datetime:
        """The time, with what it was advanced by."""
        return datetime.now(UTC) + self._ahead

    def advance(self, **by: float) -> None:
        """Make it later, by `seconds=`, `minutes=` and the like."""
        self._ahead += timedelta(**by)
        self._changed.set()

    async def drain(self) -> None:
        """Handle everything that is due, and what comes of it, until there is nothing left to do."""
        async with self._draining:
            while self._take_due() | await self._handle_all():
                pass

    def _take_due(self) -> bool:
        due = False
        while self._later and self._later[0][0] <= self.now():
            heapq.heappop(self._later)[2]()
            due = True
        return due

    async def _handle_all(self) -> bool:
        worked = False
        for name, group in list(self._groups.items()):
            worked = await self._handle(name, group) or worked
        return worked

    async def _handle(self, name: str, group: _Group) -> bool:
        """All that waits for a group, up to what nobody handles yet: that must not be passed over."""
        taken: dict[Handler, list[Event]] = {}
        worked = False
        while group.queue and self._is_served(group, group.queue[0]):
            waiting = group.queue.popleft()
            worked = True
            wanting = [handler for handler in group.handlers if _wants(handler, waiting)]
            for handler in wanting:
                taken.setdefault(handler, []).append(waiting.event)
            if not wanting and waiting.handler is not None:
                error = "there is no handler of this name any more"
                self.dead_letters.append(DeadLetter(name, waiting.handler, waiting.event, waiting.event.attempt, error))
        await asyncio.gather(*(self._run(name, handler, events) for handler, events in taken.items()))
        return worked

    def _is_served(self, group: _Group, waiting: _Waiting) -> bool:
        served = {handler.subscription_id for handler in group.handlers}
        return all(sid in served for sid in waiting.subscriptions if sid in group.subscriptions)

    async def _run(self, name: str, handler: Handler, events: Sequence[Event]) -> None:
        async def settle(_: Tenure, of: Handler, event: Event, error: str, delay_s: float | None) -> None:
            if delay_s is None:
                self.dead_letters.append(DeadLetter(name, of.name, event, event.attempt, error))
                return
            later = Event(event.id, event.topic, event.payload, event.metadata, event.at, event.attempt + 1)
            waiting = _Waiting(later, frozenset([of.subscription_id]), of.name)
            self._put_off(self.now() + timedelta(seconds=delay_s), lambda: self._groups[name].queue.append(waiting))

        handler.queue.put_nowait(Batch(events, lambda: None, Tenure()))
        handler.stop()
        await handler.run(settle)

    def _put_off(self, due_at: datetime, work: Callable[[], None]) -> None:
        heapq.heappush(self._later, (due_at, next(self._turns), work))
        self._changed.set()

    def publish(self, message: Message, to: int | None = None) -> int | None:
        """Now, or when it is due; its id, if it has one by now."""
        fields = json.loads(encode(message, to).text)
        if message.due_at is not None:
            self._put_off(message.due_at, lambda: self._deliver(next(self._ids), fields, to))
            return None
        event_id = next(self._ids)
        self._deliver(event_id, fields, to)
        return event_id

    def _deliver(self, event_id: int, fields: Mapping[str, Any], to: int | None) -> None:
        event = Event(event_id, fields["topic"], fields["payload"], fields["metadata"], self.now())
        for group in self._groups.values():
            wanted = {
                sid
                for sid, each in group.subscriptions.items()
                if sid == to or (to is None and self._fits(each, event))
            }
            if wanted:
                group.queue.append(_Waiting(event, frozenset(wanted)))
        for stream, subscription in self._streams:
            if to is None and not stream.ended and self._fits(subscription, event):
                stream.push(event)
        self._changed.set()

    def _fits(self, subscription: Subscription, event: Event) -> bool:
        return self._matches[subscription.condition](event, subscription.params)

    def check(self, subscription: Subscription) -> None:
        """Refuse what it cannot evaluate."""
        if subscription.condition not in self._matches:
            raise UsageError(
                f"the condition {subscription.condition!r} is SQL, and there is no database",
                remedy="give InMemoryBroker a function for it: matches={condition: lambda event, params: ...}",
            )

    def group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    def subscribe(self, group: str, subscription: Subscription) -> int:
        self.check(subscription)
        known = self.group(group).subscriptions
        for sid, each in known.items():
            if (each.condition, each.params) == (subscription.condition, subscription.params):
                return sid
        sid = next(self._sids)
        known[sid] = subscription
        return sid

    def listen(self, subscription: Subscription, buffer: int, decode: Callable[[Any], Any] | None) -> EventStream[Any]:
        self.check(subscription)
        stream: EventStream[Any] = EventStream(next(self._sids), buffer, decode)
        self._streams.append((stream, subscription))
        return stream

    async def wait(self) -> None:
        """Until something is published or due."""
        self._changed.clear()
        seconds = (self._later[0][0] - self.now()).total_seconds() if self._later else None
        try:
            async with asyncio.timeout(None if seconds is None else max(seconds, 0)):
                await self._changed.wait()
        except TimeoutError:
            pass


def _always(event: Event, params: Any) -> bool:
    return True


def _by_topics(event: Event, params: Any) -> bool:
    return event.topic in params["topics"]


def _by_patterns(event: Event, params: Any) -> bool:
    return any(_matches(event.topic, pattern) for pattern in params["patterns"])


def _matches(topic: str, pattern: str) -> bool:
    words, wanted = topic.split("."), pattern.split(".")
    if wanted[-1] == ">":
        if len(words) < len(wanted):
            return False
        words, wanted = words[: len(wanted) - 1], wanted[:-1]
    return len(words) == len(wanted) and all(each in ("*", word) for each, word in zip(wanted, words, strict=True))


def _wants(handler: Handler, waiting: _Waiting) -> bool:
    return handler.subscription_id in waiting.subscriptions and waiting.handler in (None, handler.name)


class InMemoryRegistration:
    """A handler that is registered."""

    def __init__(self, client: InMemoryClient, handler: Handler) -> None:
        self._client, self._handler = client, handler

    @property
    def name(self) -> str:
        return self._handler.name

    @property
    def subscription_id(self) -> int:
        return self._handler.subscription_id

    async def cancel(self, *, unsubscribe: bool = False) -> None:
        """Handle no more; and with `unsubscribe` let go of what waits for it."""
        group = self._client.broker.group(self._client.group)
        group.handlers.remove(self._handler)
        if unsubscribe:
            group.subscriptions.pop(self._handler.subscription_id, None)


class InMemoryClient:
    """`BrokerClient`, as far as a program uses it."""

    def __init__(self, broker: InMemoryBroker, group: str) -> None:
        self.broker, self.group = broker, group
        self._enqueued: list[tuple[Message, asyncio.Future[int | None]]] = []
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    async def publish(self, *messages: Message) -> list[int]:
        return [found for message in messages if (found := self.broker.publish(message)) is not None]

    async def send(self, subscription_id: int, *messages: Message) -> list[int]:
        found = [self.broker.publish(message, subscription_id) for message in messages]
        return [each for each in found if each is not None]

    async def enqueue(self, message: Message) -> asyncio.Future[int | None]:
        done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._enqueued.append((message, done))
        return done

    async def flush(self) -> None:
        enqueued, self._enqueued = self._enqueued, []
        for message, done in enqueued:
            done.set_result(self.broker.publish(message))

    async def subscribe(self, subscription: Subscription) -> int:
        return self.broker.subscribe(self.group, subscription)

    async def register_reliable_handler(
        self,
        subscription: Subscription,
        handle: Callable[[Sequence[Event[Any]]], Awaitable[None]],
        *,
        name: str,
        retries_s: Sequence[float] = RETRIES_S,
        timeout_s: float = 60.0,
        batch_size: int | None = None,
        limits: Limits = NO_LIMITS,
        payload_type: Any = None,
    ) -> InMemoryRegistration:
        sid = self.broker.subscribe(self.group, subscription)
        group = self.broker.group(self.group)
        if any((each.name, each.subscription_id) == (name, sid) for each in group.handlers):
            raise UsageError(f"there is a handler {name!r} of this subscription", remedy="give each its own name")
        decode = None if payload_type is None else decoder(payload_type)
        handler = Handler(
            name, sid, handle, tuple(retries_s), timeout_s, batch_size, decode, group=self.group, limits=limits
        )
        group.handlers.append(handler)
        return InMemoryRegistration(self, handler)

    async def register_fire_and_forget(
        self, subscription: Subscription, *, buffer: int = 1000, payload_type: Any = None
    ) -> EventStream[Any]:
        return self.broker.listen(subscription, buffer, None if payload_type is None else decoder(payload_type))

    async def run(self) -> None:
        """Handle what comes until `stop` is called, or this is cancelled. Tests rather `drain` the broker."""
        while not self._stopping.is_set():
            await self.flush()
            await self.broker.drain()
            waiting = [asyncio.ensure_future(self.broker.wait()), asyncio.ensure_future(self._stopping.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()

    def stop(self) -> None:
        self._stopping.set()

    async def end(self, deadline_s: float | None = None) -> None:
        """Publish what was enqueued, and stop."""
        await self.flush()
        self.stop()
