"""What gateways tell each other, through PostgreSQL's notifications.

`Announcer` says where partitions end now, at most every few milliseconds and never inside the transaction of an
append, which would cost most of the throughput. `Listener` hears that, and whatever else somebody asked it to hear.
Notifications can get lost with a connection, so the listener also looks for itself, about once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

import psycopg
from psycopg import sql as composed
from psycopg_pool import AsyncConnectionPool

from headgate.gateway.health import Health
from headgate.gateway.store.statements import sql
from headgate.gateway.store.tails import Tails
from headgate.postgres import PromptConnection, open_async

__all__ = ["ANNOUNCING", "LISTENING", "LOG_CHANNEL", "Announcer", "Listener", "read_announcement"]

logger = logging.getLogger(__name__)

LOG_CHANNEL = "kafka_log"
LISTENING, ANNOUNCING = "notifications", "announcements"  # as `Health` knows them
_MAX_PAYLOAD_BYTES = 7900
_BACKOFF_S = 0.5
_CONNECT_TIMEOUT_S = 5
_NAME = "headgate gateway listener"

Pool = AsyncConnectionPool[psycopg.AsyncConnection]
Heard = Callable[[str], None]


class Announcer:
    """Tells other gateways about new batches."""

    def __init__(self, pool: Pool, interval_s: float, health: Health) -> None:
        self._pool = pool
        self._health = health
        self._interval_s = interval_s
        self._news: dict[int, tuple[int, int, int]] = {}
        self._has_news = asyncio.Event()

    def say(self, part_id: int, next_offset: int, log_start_offset: int, stable_offset: int) -> None:
        """Queue an announcement; coalesced per partition, sent every `interval_s`."""
        self._news[part_id] = next_offset, log_start_offset, stable_offset
        self._has_news.set()

    async def run(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            news, self._news = self._news, {}
            try:
                async with self._pool.connection() as connection:
                    for payload in payloads(news):
                        await connection.execute(sql("notify"), [payload])
            except psycopg.Error as error:  # others find out when they look for themselves
                logger.warning("other gateways could not be notified: %s", error)
                self._health.failed(ANNOUNCING, error)
            else:
                self._health.works(ANNOUNCING)
            await asyncio.sleep(self._interval_s)


def payloads(news: Mapping[int, tuple[int, int, int]]) -> list[str]:
    """Return the payloads of NOTIFY, as few as PostgreSQL allows, of part_id:next_offset:log_start_offset.

    While a transaction is open its beginning follows: the last stable offset. Without that, whoever wants to know it
    asks PostgreSQL: pipelines say nothing of it, and gateways of the version before would not understand.
    """
    texts: list[str] = []
    for part_id, (next_offset, log_start_offset, stable_offset) in news.items():
        text = f"{part_id}:{next_offset}:{log_start_offset}"
        if stable_offset < next_offset:
            text += f":{stable_offset}"
        if texts and len(texts[-1]) + len(text) < _MAX_PAYLOAD_BYTES:
            texts[-1] += f",{text}"
        else:
            texts.append(text)
    return texts


def read_announcement(tails: Tails, payload: str) -> None:
    """What another gateway said. Anybody may notify: what cannot be read is ignored."""
    for item in filter(None, payload.split(",")):
        try:
            part_id, next_offset, log_start_offset, *stable = map(int, item.split(":"))
        except ValueError:
            logger.warning("a notification on %s is not ours", LOG_CHANNEL)
            return
        tails.heard(part_id, next_offset, log_start_offset, stable[0] if stable else None)


class Listener:
    """One connection that hears notifications.

    After every new connection callbacks are called once with an empty payload: anything may have happened.
    """

    def __init__(
        self,
        url: str,
        poll_interval_s: float,
        poll: Callable[[psycopg.AsyncConnection], Awaitable[None]],
        health: Health,
        patience_s: float,
    ) -> None:
        self._url = url
        self._patience_s = patience_s
        self._health = health
        self._poll_interval_s = poll_interval_s
        self._poll = poll
        self._callbacks: dict[str, list[Heard]] = defaultdict(list)
        self._heard: set[str] = set()

    def on_notify(self, channel: str, callback: Heard) -> None:
        self._callbacks[channel].append(callback)
        self._heard.discard(channel)

    async def run(self, on_lost: Callable[[], None]) -> None:
        while True:
            try:
                async with await open_async(
                    PromptConnection, self._url, _NAME, timeout_s=_CONNECT_TIMEOUT_S
                ) as connection:
                    connection.patience_s = self._patience_s
                    self._heard.clear()
                    await self._listen(connection)
            except psycopg.Error as error:
                logger.warning("notifications are interrupted: %s", error)
                self._health.failed(LISTENING, error)
            finally:
                on_lost()
            await asyncio.sleep(_BACKOFF_S)

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        while True:
            for channel in set(self._callbacks) - self._heard:
                await connection.execute(composed.SQL("listen {}").format(composed.Identifier(channel)))
                self._heard.add(channel)
                self._call(channel, "")
            await self._poll(connection)
            self._health.works(LISTENING)
            async for notification in connection.notifies(timeout=self._poll_interval_s):
                self._call(notification.channel, notification.payload)
                if set(self._callbacks) - self._heard:
                    break

    def _call(self, channel: str, payload: str) -> None:
        for callback in self._callbacks.get(channel, ()):
            callback(payload)
