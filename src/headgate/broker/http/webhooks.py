"""Delivers the events of webhooks: each in order, none held up by another, at least once.

A webhook is a group of its own, so whoever holds its lease delivers, and the others wait for their turn. The cursor
moves when a request was answered, or in one transaction with the note of what is to be tried again: whoever dies in
between leaves the same batch, under the same key, to the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any
from uuid import uuid4

import httpx
import psycopg

from headgate.broker.database import persist
from headgate.broker.http.database import ServerDatabase
from headgate.broker.http.keys import HeldKeys
from headgate.broker.http.posting import TIMEOUT_S, Endpoint, Item, Post, Verdict, posts
from headgate.model import HeadgateError
from headgate.runtime.ending import end

__all__ = ["WebhookWorker"]

_log = logging.getLogger(__name__)

_LEASE_LOST = "HG001"
_LOOK_S = 5.0  # notifications get lost with a connection
_HOLD_S = 5.0  # a third of a lease
# The server looks for the key, whatever the payload is, and makes one length of it, as an index needs.
_NEXT = (
    "select id, topic, payload, retry, pos, md5(payload::jsonb #>> %s::text[]), gap is not null, epoch"
    " from {schema}.next_webhook_batch_v1(%s, %s)"
)
_LIST = (
    "select w.id, w.name, w.subscription_id, g.gno, w.url, w.secret, w.headers, w.retries_s, w.ordered,"
    " w.order_key, w.updated_at"
    " from {schema}.webhooks as w join {schema}.subscription_groups as g on g.id = 'webhook:' || w.name where w.enabled"
)


@dataclass(frozen=True, slots=True)
class _Webhook:
    id: int
    name: str
    subscription_id: int
    group_number: int
    endpoint: Endpoint
    retries_s: Sequence[float]
    ordered: bool
    order_key: str | None

    @property
    def group(self) -> str:
        return f"webhook:{self.name}"

    def delay_s(self, attempt: int, verdict: Verdict) -> float | None:
        """How long to wait after this attempt, not less than the receiver asks for; None: it was the last."""
        if verdict.hopeless or attempt > len(self.retries_s):
            return None
        return max(self.retries_s[attempt - 1], verdict.retry_after_s or 0.0)


@dataclass(slots=True)
class Counters:
    """What a worker has done."""

    delivered: int = 0
    retried: int = 0
    buried: int = 0


@dataclass(eq=False)
class WebhookWorker:
    """Runs one task for each webhook, and follows changes of their table."""

    database: ServerDatabase
    allow_private: bool = False
    owner: str = field(default_factory=lambda: f"webhooks-{uuid4().hex[:12]}")
    counters: Counters = field(default_factory=Counters)
    _tasks: dict[tuple[Any, ...], asyncio.Task[None]] = field(default_factory=dict)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def webhooks(self) -> int:
        return len(self._tasks)

    async def run(self) -> None:
        """Until `stop`, which lets the requests come to their end that are under way."""
        look = asyncio.Event()
        self.database.wake(look)
        try:
            while not self._stopping.is_set():
                look.clear()
                await persist(self._look, whatever=True)
                await _first_of(_LOOK_S, look, self._stopping)
        finally:
            self.database.forget(look)
            await self._end(list(self._tasks.values()))

    def stop(self) -> None:
        self._stopping.set()

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        if tasks and self._stopping.is_set():
            await asyncio.wait(tasks, timeout=TIMEOUT_S + 1)
        await end(*tasks)

    async def _look(self) -> None:
        """Begin with what is new, end what is gone; what has changed is both."""
        rows = {(row[0], row[-1]): row for row in await self.database.fetch(_LIST)}
        gone = [self._tasks.pop(key) for key in list(self._tasks) if key not in rows or self._tasks[key].done()]
        await self._end(gone)
        for key in rows.keys() - self._tasks.keys():
            number, name, subscription_id, group_number, url, secret, headers, retries_s, *order, _ = rows[key]
            try:
                endpoint = Endpoint(url, secret, headers, self.allow_private)
            except HeadgateError as error:
                _log.error("the webhook %s cannot be used: %s", name, error.message)
                continue
            webhook = _Webhook(number, name, subscription_id, group_number, endpoint, retries_s, *order)
            self._tasks[key] = asyncio.create_task(self._deliver(webhook), name=f"webhook {name}")

    async def _deliver(self, webhook: _Webhook) -> None:
        wake = asyncio.Event()
        self.database.wake(wake, webhook.group_number)
        try:
            async with webhook.endpoint.client() as client:
                await persist(partial(self._deliver_all, webhook, client, wake), whatever=True)
        finally:
            self.database.forget(wake)

    async def _deliver_all(self, webhook: _Webhook, client: httpx.AsyncClient, wake: asyncio.Event) -> None:
        while not self._stopping.is_set():
            wake.clear()
            if not await self._deliver_batch(webhook, client):
                await _first_of(_LOOK_S, wake, self._stopping)
        await self.database.fetch("select {schema}.release_group_v1(%s, %s)", webhook.group, self.owner)

    async def _deliver_batch(self, webhook: _Webhook, client: httpx.AsyncClient) -> bool:
        """False: there is nothing to send, or another worker does."""
        path = None if webhook.order_key is None else webhook.order_key.split(".")
        rows = await self.database.fetch(_NEXT, path, webhook.id, self.owner)
        if not rows:
            return False
        epoch = rows[0][-1]
        try:
            if gone := [row[4] for row in rows if row[6]]:
                _log.error("the webhook %s was too far behind: positions up to %d are gone", webhook.name, gone[-1])
            items = [_item(*row[:6]) for row in rows if not row[6]]
            held = HeldKeys(self.database, webhook.id)
            await held.find(items)
            for number, post in enumerate(posts(items)):
                if self._stopping.is_set() or (number and not await self._still_ours(webhook, epoch)):
                    return True
                if not await self._deliver_post(webhook, client, post, epoch, held):
                    return True
            if gone and gone[-1] == rows[-1][4]:
                async with self.database.transaction() as connection:
                    await self._move(connection, webhook, gone[-1], epoch)
        except psycopg.Error as error:
            if error.sqlstate != _LEASE_LOST:
                raise
        return True

    async def _deliver_post(
        self, webhook: _Webhook, client: httpx.AsyncClient, post: Post, epoch: int, held: HeldKeys
    ) -> bool:
        """Send it, without what has to wait for others of its key. False: we have to stop."""
        for is_blocked, items in groupby(post.items, held.blocks):
            part = Post(list(items))
            if is_blocked:
                await self._put_behind(webhook, part, epoch, held)
            elif not await self._send(webhook, client, part, epoch, held):
                return False
        return True

    async def _send(self, webhook: _Webhook, client: httpx.AsyncClient, post: Post, epoch: int, held: HeldKeys) -> bool:
        """False: we have to stop, and it is for whoever comes next."""
        verdict = await webhook.endpoint.post(client, post)
        if verdict.hopeless and len(post.items) > 1:
            # One of them is refused for good, and none of the others may go with it.
            for item in post.items:
                if not await self._deliver_post(webhook, client, Post([item]), epoch, held):
                    return False
            return True
        attempt = post.items[0].attempt
        while webhook.ordered and verdict.error and (delay_s := webhook.delay_s(attempt, verdict)) is not None:
            self._warn(webhook, post, verdict, attempt)
            if not await self._wait(webhook, epoch, delay_s):
                return False
            verdict = await webhook.endpoint.post(client, post)
            attempt += 1
        await self._settle(webhook, post, verdict, epoch, attempt, held)
        # What it asks for is for all requests, not for this one only.
        return await self._wait(webhook, epoch, verdict.retry_after_s) if verdict.retry_after_s else True

    async def _wait(self, webhook: _Webhook, epoch: int, delay_s: float) -> bool:
        """Hold the group for so long; False if it is another's by then, or we have to stop."""
        loop = asyncio.get_running_loop()
        until = loop.time() + delay_s
        while (left_s := until - loop.time()) > 0:
            await _first_of(min(left_s, _HOLD_S), self._stopping)
            if self._stopping.is_set() or not await self._still_ours(webhook, epoch):
                return False
        return True

    async def _still_ours(self, webhook: _Webhook, epoch: int) -> bool:
        [(held,)] = await self.database.fetch("select {schema}.hold_group_v1(%s, %s)", webhook.group, self.owner)
        return bool(held == epoch)

    async def _settle(
        self, webhook: _Webhook, post: Post, verdict: Verdict, epoch: int, attempt: int, held: HeldKeys
    ) -> None:
        delay_s = None if verdict.error is None else webhook.delay_s(attempt, verdict)
        async with self.database.transaction() as connection:
            await self._move(connection, webhook, post.items[-1].pos, epoch)
            if verdict.error is None:
                await held.release(connection, post.items)
            elif delay_s is None:
                await held.release(connection, post.items)
                await self._bury(connection, webhook, post, verdict.error, attempt)
            else:
                await held.hold(connection, post.items, delay_s)
                await self._put_off(connection, webhook, post, verdict.error, attempt + 1, delay_s)
        if verdict.error is None:
            self.counters.delivered += len(post.items)
        else:
            self._warn(webhook, post, verdict, attempt)

    async def _put_behind(self, webhook: _Webhook, post: Post, epoch: int, held: HeldKeys) -> None:
        """They have not been tried, and come when what they wait for has been."""
        delay_s = held.delay_s(post.items)
        async with self.database.transaction() as connection:
            await self._move(connection, webhook, post.items[-1].pos, epoch)
            await held.hold(connection, post.items, delay_s)
            reason = "an earlier event of the same key has not been delivered yet"
            await self._put_off(connection, webhook, post, reason, post.items[0].attempt, delay_s)

    def _warn(self, webhook: _Webhook, post: Post, verdict: Verdict, attempt: int) -> None:
        _log.warning(
            "the webhook %s failed on %d events: %s", webhook.name, len(post.items), verdict.error,
            extra={"address": webhook.endpoint.address, "attempt": attempt},
        )  # fmt: skip

    async def _move(self, connection: psycopg.AsyncConnection[Any], webhook: _Webhook, pos: int, epoch: int) -> None:
        """First of all: it is refused if another one delivers by now, and then nothing else is written."""
        move = self.database.text("select {schema}.set_group_cursor_v1(%s, %s, false, %s, %s)")
        await connection.execute(move, [webhook.group, pos, self.owner, epoch])

    async def _put_off(
        self, connection: psycopg.AsyncConnection[Any], webhook: _Webhook, post: Post, error: str, attempt: int,
        delay_s: float,
    ) -> None:  # fmt: skip
        ids = [item.event_id for item in post.items]
        values = [webhook.subscription_id, _handler(post), ids, attempt, error, timedelta(seconds=delay_s)]
        await connection.execute(self.database.text("select {schema}.retry_v1(%s, %s, %s, %s, %s, %s)"), values)
        self.counters.retried += len(ids)

    async def _bury(
        self, connection: psycopg.AsyncConnection[Any], webhook: _Webhook, post: Post, error: str, attempt: int
    ) -> None:
        ids = [item.event_id for item in post.items]
        values = [webhook.subscription_id, _handler(post), ids, attempt, error]
        await connection.execute(self.database.text("select {schema}.bury_v1(%s, %s, %s, %s, %s)"), values)
        self.counters.buried += len(ids)


def _handler(post: Post) -> str:
    """So that those come back together that failed together."""
    return f"webhook {post.key}"


def _item(event_id: int, topic: str, payload: str, retry: dict[str, Any] | None, pos: int, key: str | None) -> Item:
    if retry is None:
        return Item(event_id, event_id, topic, payload, pos, key=key)
    return Item(retry["of"], event_id, topic, payload, pos, retry["attempt"], retry["handler"], key)


async def _first_of(timeout_s: float, *events: asyncio.Event) -> None:
    """Wait until one of them is set, or the time has passed."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
