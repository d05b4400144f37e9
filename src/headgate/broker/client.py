"""A client that dispatches, reads ahead and handles: what a program needs that uses the broker.

    async with BrokerClient(url, group="mailer") as broker:
        await broker.register_reliable_handler(Subscription.to_topics("user.created"), greet, name="greet")
        await broker.run()

Any number of clients may run: one at a time dispatches, one reads a group, and the others wait for their turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, overload

import psycopg
from psycopg.types.json import Jsonb

from headgate.broker.broadcast import Broadcast, EventStream
from headgate.broker.buffer import PublishBuffer
from headgate.broker.database import Connecting, Database, persist
from headgate.broker.duties import Duties, new_client_id
from headgate.broker.errors import as_ours
from headgate.broker.handlers import RETRIES_S, Handler
from headgate.broker.install import DEFAULT_SCHEMA
from headgate.broker.limits import NO_LIMITS, Limits, Pace
from headgate.broker.messages import Event, Message, Payload, Subscription
from headgate.broker.payloads import decoder
from headgate.broker.reading import HOLD_S, GroupReader
from headgate.broker.slots import Slots, SlotSharing
from headgate.broker.tenure import Tenure
from headgate.broker.transactions import Encoded, encode, publish_encoded
from headgate.model import UsageError
from headgate.runtime.ending import run_until

__all__ = ["BrokerClient", "Registration"]

logger = logging.getLogger(__name__)

END_S = 10.0
CANCEL_S = 1.0  # for handlers that do not want to end


class BrokerClient:
    """One group of one program.

    With `slots`, several programs read the group side by side, and events with the same key stay in order.

    Behind a pooler, give a direct address as `listen_url`, or say `listen=False`, and `prepare_threshold=None` if it
    does not know prepared statements.
    """

    def __init__(
        self,
        url: str,
        *,
        group: str,
        schema: str = DEFAULT_SCHEMA,
        slots: Slots | None = None,
        chunk: int = 1000,
        pool_size: int = 8,
        listen: bool = True,
        listen_url: str | None = None,
        prepare_threshold: int | None = 5,
        flush_size: int = 2500,
        flush_interval_s: float = 0.05,
        buffer_limit: int = 10_000,
        end_deadline_s: float = END_S,
    ) -> None:
        self.group, self.schema = group, schema
        self.id = new_client_id()
        self._end_deadline_s = end_deadline_s
        self._database = Database(
            url,
            schema,
            Connecting(pool_size=pool_size, listen=listen, listen_url=listen_url, prepare_threshold=prepare_threshold),
        )
        groups = [group] if slots is None else slots.groups(group)
        self._readers = {name: GroupReader(self._database, name, self.id, chunk) for name in groups}
        self._slots = slots
        self._sharing = SlotSharing(self._database, self.id, list(self._readers.values())) if slots else None
        self._broadcast = Broadcast(self._database, self.id, chunk)
        self._duties = Duties(self._database, self.id, self._subscribe_again)
        self._buffer = PublishBuffer(
            self._publish, size=flush_size, interval_s=flush_interval_s, limit=max(buffer_limit, flush_size)
        )
        self._subscriptions: dict[int, tuple[GroupReader, Subscription]] = {}
        self._workers: dict[Handler, asyncio.Task[None]] = {}
        self._subscribing = asyncio.Lock()
        self._ending = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        await self._database.open()
        self._failed = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    async def publish(self, *messages: Message) -> list[int]:
        """Publish in a transaction of its own (`headgate.broker.publish`: in one of yours); return the event ids."""
        with as_ours("publish"):
            return await self._publish([encode(message) for message in messages])

    async def send(self, subscription_id: int, *messages: Message) -> list[int]:
        """Publish to one subscription, whatever its condition; return the event ids."""
        with as_ours("send"):
            return await self._publish([encode(message, subscription_id) for message in messages])

    async def enqueue(self, message: Message) -> asyncio.Future[int | None]:
        """Publish soon, with others, in this order. Waits while the buffer is full; the future has the event's id."""
        return await self._buffer.put(message)

    async def flush(self) -> None:
        """Publish what was enqueued, now, and wait until it is."""
        await self._buffer.flush()

    async def subscribe(self, subscription: Subscription) -> int:
        """Create or find a subscription of this group, which does not expire while this client lives.

        Return its id; of a group with slots, that of the first one.
        """
        return next(iter(await self._subscribe(subscription)))

    async def _subscribe(self, whole: Subscription) -> dict[int, GroupReader]:
        """Subscribe in the group, or in each of its slots; return the ids."""
        found: dict[int, GroupReader] = {}
        parts = [whole] if self._slots is None else self._slots.subscriptions(whole)
        with as_ours("subscribe"):
            if self._sharing is not None:
                await self._sharing.check(self.group)
            for reader, part in zip(self._readers.values(), parts, strict=True):
                sid = await self._database.subscribe(reader.group, part, self.id)
                self._subscriptions[sid] = reader, part
                reader.gno = reader.gno or await self._database.group_number(reader.group)
                found[sid] = reader
        self._duties.live_up_to(whole.expiry)
        return found

    @overload
    async def register_reliable_handler(
        self,
        subscription: Subscription,
        handle: Callable[[Sequence[Event[Any]]], Awaitable[None]],
        *,
        name: str,
        retries_s: Sequence[float] = ...,
        timeout_s: float = ...,
        batch_size: int | None = ...,
        limits: Limits = ...,
        payload_type: None = ...,
    ) -> Registration: ...
    @overload
    async def register_reliable_handler(
        self,
        subscription: Subscription,
        handle: Callable[[Sequence[Event[Payload]]], Awaitable[None]],
        *,
        name: str,
        retries_s: Sequence[float] = ...,
        timeout_s: float = ...,
        batch_size: int | None = ...,
        limits: Limits = ...,
        payload_type: type[Payload],
    ) -> Registration: ...
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
    ) -> Registration:
        """Have events handled at least once, in order; register all handlers of a group in each program that runs it.

        A call that raises is repeated event by event. Those that fail alone come again after each of `retries_s`, for
        this handler only, and are dead letters after the last. `limits` say how fast it is called.
        """
        if batch_size is not None and batch_size < 1:
            raise UsageError("a batch has at least one event", remedy="give a larger batch_size, or none")
        decode = None if payload_type is None else decoder(payload_type)
        subscribed = await self._subscribe(subscription)
        if any(other.name == name and other.subscription_id in subscribed for other in self._workers):
            raise UsageError(f"there is a handler {name!r} of this subscription", remedy="give each its own name")
        pace = Pace(limits.rate_per_s)  # of all slots together
        handlers = [
            Handler(
                name,
                subscription_id,
                handle,
                tuple(retries_s),
                timeout_s,
                batch_size,
                decode,
                group=reader.group,
                limits=limits,
                pace=pace,
            )
            for subscription_id, reader in subscribed.items()
        ]
        for handler in handlers:
            self._start(handler)
        with as_ours("register"):
            await self._declare_handlers()
        return Registration(self, handlers)

    def _start(self, handler: Handler) -> None:
        self._workers[handler] = asyncio.create_task(handler.run(self._settle), name=f"handler {handler.name}")
        self._workers[handler].add_done_callback(self._note_failure)
        self._readers[handler.group].add(handler)

    @overload
    async def register_fire_and_forget(
        self, subscription: Subscription, *, buffer: int = ..., payload_type: None = ...
    ) -> EventStream[Any]: ...
    @overload
    async def register_fire_and_forget(
        self, subscription: Subscription, *, buffer: int = ..., payload_type: type[Payload]
    ) -> EventStream[Payload]: ...
    async def register_fire_and_forget(
        self, subscription: Subscription, *, buffer: int = 1000, payload_type: Any = None
    ) -> EventStream[Any]:
        """Listen to events from now on, at most once: nothing is kept, and a slow listener is told of it."""
        decode = None if payload_type is None else decoder(payload_type)
        with as_ours("subscribe"):
            return await self._broadcast.listen(subscription, buffer, decode)

    async def run(self) -> None:
        """Dispatch, read and handle until `stop` or `end` is called, or this is cancelled."""
        if self._running is not None:
            raise UsageError("the client runs already", remedy="run it once")
        self._running = asyncio.current_task()
        try:
            with as_ours("run"):
                await run_until(
                    self._ending,
                    *(self._with_groups(reader.read) for reader in self._readers.values()),
                    *(self._with_groups(reader.acknowledge) for reader in self._readers.values()),
                    *([] if self._sharing is None else [persist(self._sharing.run, whatever=True)]),
                    self._with_groups(self._broadcast.read),
                    persist(lambda: self._database.hear_of_events(self._told), whatever=True),
                    # What is wrong with these concerns all clients, and those who have events in hand go on.
                    *(persist(loop, whatever=loop != self._duties.heartbeat) for loop in self._duties.loops),
                    self._hold(),
                    self._fail(),
                )
        finally:
            self._running = None

    def stop(self) -> None:
        """Have `run` return; a handler may call this."""
        self._ending.set()

    async def end(self, deadline_s: float | None = None) -> None:
        """Stop reading, let handlers finish what is in hand, acknowledge it, publish what was enqueued, and let go.

        What is not done by the deadline is cancelled; the next reader of the group will handle it again.
        """
        if self._failed is None:
            return
        self._failed = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._end_deadline_s if deadline_s is None else deadline_s)
        self.stop()
        await self._loops_ended()
        await self._try(self._finish, deadline, "handlers did not finish in time")
        for worker in self._workers.values():
            worker.cancel()
        if self._workers:
            await asyncio.wait(self._workers.values(), timeout=CANCEL_S)
        await self._buffer.end(max(0.1, deadline - loop.time()))
        await self._try(self._let_go, max(deadline, loop.time() + CANCEL_S), "the database was not told")
        await self._database.close()

    async def cancel_handlers(self, handlers: Sequence[Handler], unsubscribe: bool) -> None:
        """Stop `handlers` and wait for their running calls; with `unsubscribe`, remove their subscriptions, too."""
        for handler in handlers:
            await self._cancel_handler(handler, unsubscribe)

    async def _cancel_handler(self, handler: Handler, unsubscribe: bool) -> None:
        worker, reader = self._workers.get(handler), self._readers[handler.group]
        if worker is None:
            return
        reader.handlers.remove(handler)
        reader.handlers_changed()
        handler.stop()
        if worker is not asyncio.current_task():
            await asyncio.wait([worker])
        del self._workers[handler]
        with as_ours("unsubscribe"):
            await self._declare_handlers()
        sid = handler.subscription_id
        if unsubscribe:
            with as_ours("unsubscribe"):
                await self._database.fetch("select {schema}.unsubscribe_v1(%s)", sid)
        elif not any(other.subscription_id == sid for other in self._workers):
            with as_ours("unsubscribe"):
                await self._database.fetch("select {schema}.leave_v1(%s, %s)::text", self.id, sid)
        else:
            return
        self._subscriptions.pop(sid, None)
        reader.handlers_changed()

    async def _loops_ended(self) -> None:
        running = self._running
        if running is not None and running is not asyncio.current_task():
            await asyncio.wait([running], timeout=CANCEL_S)

    async def _try(self, work: Callable[[], Awaitable[None]], deadline: float, otherwise: str) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await work()
        except TimeoutError:
            logger.warning("the client of %s ends: %s", self.group, otherwise)
        except psycopg.Error as error:
            logger.warning("the client of %s ends: %s (%s)", self.group, otherwise, type(error).__name__)

    async def _finish(self) -> None:
        await asyncio.gather(*(reader.finish() for reader in self._readers.values()))

    async def _let_go(self) -> None:
        for reader in self._readers.values():
            await reader.release()
        await self._broadcast.leave()
        await self._duties.leave(list(self._subscriptions))

    async def _publish(self, messages: Sequence[Encoded]) -> list[int]:
        async def work(connection: psycopg.AsyncConnection[Any]) -> list[int]:
            async with connection.transaction():
                return await publish_encoded(connection, messages, self.schema)

        ids = await self._database.run(work)
        self._duties.published()
        return ids

    async def _settle(self, tenure: Tenure, handler: Handler, event: Event, error: str, delay_s: float | None) -> None:
        await self._readers[handler.group].settle(tenure, handler, event, error, delay_s)
        self._duties.published()

    async def _subscribe_again(self) -> None:
        async with self._subscribing:  # several loops may find out at once
            numbers: dict[int, int] = {}  # others than before, if a failover has lost them
            for sid, (reader, subscription) in list(self._subscriptions.items()):
                numbers[sid] = await self._database.subscribe(reader.group, subscription, self.id)
                reader.gno = await self._database.group_number(reader.group)
            self._subscriptions = {numbers.get(sid, sid): each for sid, each in self._subscriptions.items()}
            for reader in self._readers.values():
                reader.renumber(numbers)
            await self._declare_handlers()
            await self._broadcast.subscribe_again()

    async def _declare_handlers(self) -> None:
        """So that other clients of the group know what they may leave to us."""
        handlers = [[handler.subscription_id, handler.name] for handler in self._workers]
        await self._database.fetch("select {schema}.declare_handlers_v1(%s, %s)::text", self.id, Jsonb(handlers))
        if self._sharing is not None:
            self._sharing.handlers_changed()

    async def _with_groups(self, work: Callable[[], Awaitable[None]]) -> None:
        """Somebody may remove a group, and a failover may lose one: whoever uses it begins it again."""
        while True:
            try:
                return await persist(work)
            except psycopg.errors.UndefinedObject as error:
                logger.error("%s: it is begun again, from now on", error.diag.message_primary)
                await persist(self._subscribe_again)

    async def _hold(self) -> None:
        while True:
            await asyncio.sleep(HOLD_S)
            for reader in self._readers.values():
                await persist(reader.hold)

    def _told(self, groups: str) -> None:
        """The dispatcher names the groups that have something to read; nothing means all."""
        named = set(groups.split(",")) if groups else None
        for reader in self._readers.values():
            if named is None or reader.gno in named:
                reader.wake()
        if named is None or self._broadcast.gno in named:
            self._broadcast.wake()

    def _note_failure(self, worker: asyncio.Task[None]) -> None:
        error = None if worker.cancelled() else worker.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _fail(self) -> None:
        """A worker that ends by an error of ours would hold the group up silently."""
        if self._failed is not None:
            await asyncio.shield(self._failed)


class Registration:
    """A handler that was registered."""

    def __init__(self, client: BrokerClient, handlers: Sequence[Handler]) -> None:
        self._client, self._handlers = client, handlers  # one in each slot

    @property
    def name(self) -> str:
        return self._handlers[0].name

    @property
    def subscription_id(self) -> int:
        return self._handlers[0].subscription_id

    async def cancel(self, *, unsubscribe: bool = False) -> None:
        """Stop the handler once what was read for it is handled.

        Its subscription stays, and its events wait for the next handler of it; `unsubscribe` removes it for good.
        """
        await self._client.cancel_handlers(self._handlers, unsubscribe)
