"""Reads a stream in order, without a gap, and never more at a time than was asked for.

An ephemeral pull consumer without acknowledgements, made anew from the last sequence whenever something is odd: a
number that does not follow, a heartbeat that does not come, another connection. What the stream itself lost to its
retention is noticed and raised as `SequenceGone`, and another stream under its name as `StreamReplaced`: only a new
snapshot helps then.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from headgate.consume.link import Link

__all__ = ["Message", "SequenceGone", "StreamReader", "StreamReplaced"]

logger = logging.getLogger(__name__)

_BATCH = 2000
_MAX_BYTES = 16 << 20  # of one request; more than any message may have
_EXPIRES_S = 30
_HEARTBEAT_S = 5
_INACTIVE_S = 120.0
_QUESTIONS = 100  # at a time: a reader of a thousand tables has a thousand subjects


class SequenceGone(Exception):  # noqa: N818 - a fact about the stream; the consumer acts on it
    """The stream no longer has what comes next; it begins with `first`."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


class StreamReplaced(Exception):  # noqa: N818 - a fact about the stream; the consumer acts on it
    """The stream was deleted and made again: `created` is when."""

    def __init__(self, created: str) -> None:
        super().__init__(created)
        self.created = created


class Message(NamedTuple):
    """One message of a stream."""

    sequence: int
    payload: bytes
    headers: dict[str, str] | None
    subject: str


class StreamReader:
    """From the message behind `after` on. `filters` are subjects; without any, everything is read.

    `may_skip` is for streams of which only certain messages matter, and whoever reads them counts them. `created` is
    that of the stream that is meant; none: whichever has the name.
    """

    def __init__(
        self,
        link: Link,
        stream: str,
        after: int,
        filters: Sequence[str] = (),
        *,
        may_skip: bool = False,
        created: str = "",
    ) -> None:
        self.sequence = after
        self.pending = 0  # messages in the stream behind the last one that was read
        self._link = link
        self._stream = stream
        self._filters = list(filters)
        self._may_skip = may_skip
        self._created = created
        self._queue: deque[tuple[int, Message]] = deque()
        self._arrived = asyncio.Event()
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._reconnects = 0
        self._odd = True  # needs to be opened
        self._next_delivery = 1
        self._asked = 0
        self._heard = 0.0

    async def read(self, timeout_s: float | None = None) -> list[Message]:
        """All that has arrived, at least one; none after the timeout."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            if self._odd or self._reconnects != self._link.reconnects:
                await self._open()
            if self._queue:
                return await self._take()
            await self._request()
            now = loop.time()
            if deadline is not None and now >= deadline:
                return []
            silent_until = self._heard + 2.5 * _HEARTBEAT_S
            if now >= silent_until:
                logger.warning("nothing heard from the stream %s for a while; reading it anew", self._stream)
                self._odd = True
                continue
            await self._wait(min(silent_until, now + 0.5, deadline or silent_until) - now)

    async def has_read_all(self, last: int) -> bool:
        """Whether everything of the stream up to `last` was given out. Ask for `last` first, then this.

        What the last message said of others behind it is as old as that message, so it proves nothing. The stream
        itself is asked for the next message behind what was given out.
        """
        if self._queue or last <= self.sequence:
            return not self._queue
        subjects, begin = self._filters or [">"], self.sequence + 1
        for at in range(0, len(subjects), _QUESTIONS):
            asked = [self._link.next_on(self._stream, each, begin) for each in subjects[at : at + _QUESTIONS]]
            found = await asyncio.gather(*asked)
            if self._queue or any(each is not None and each <= last for each in found):
                return False
        self.sequence = max(self.sequence, last)
        return True

    async def close(self) -> None:
        await self._drop()

    async def _wait(self, seconds: float) -> None:
        self._arrived.clear()
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._arrived.wait()
        except TimeoutError:
            pass

    async def _take(self) -> list[Message]:
        before = self.sequence
        taken = [message for _, message in self._queue]
        self.pending = self._queue[-1][0]
        self._queue.clear()
        self.sequence = taken[-1].sequence
        if self.sequence - before != len(taken) and not self._may_skip:  # others between, or some are gone
            state = await self._link.state(self._stream)
            if state.first > before + 1:
                raise SequenceGone(state.first)
        await self._request()
        return taken

    async def _request(self) -> None:
        """Keep a request open; what is asked for and what lies here stay bounded."""
        if self._asked > _BATCH // 2 or self._odd:
            return
        body = {
            "batch": _BATCH,
            "max_bytes": _MAX_BYTES,
            "expires": _EXPIRES_S * 1_000_000_000,
            "idle_heartbeat": _HEARTBEAT_S * 1_000_000_000,
        }
        assert self._subscription is not None
        self._asked += _BATCH
        self._heard = asyncio.get_running_loop().time()
        try:
            await self._link.client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                json.dumps(body).encode(),
                reply=self._subscription.subject,
            )
        except nats.errors.Error:
            self._odd = True

    async def _open(self) -> None:
        await self._drop()
        self._reconnects = self._link.reconnects
        state = await self._link.state_when_back(self._stream)
        if self._created and state.created != self._created:
            raise StreamReplaced(state.created)
        if not self._may_skip and (state.first > self.sequence + 1 or state.last < self.sequence):
            raise SequenceGone(state.first)
        self._consumer = f"headgate-{uuid4().hex[:16]}"
        config = ConsumerConfig(
            name=self._consumer,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self.sequence + 1,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._filters[0] if len(self._filters) == 1 else None,
            filter_subjects=self._filters if len(self._filters) > 1 else None,
            inactive_threshold=_INACTIVE_S,
            mem_storage=True,
            num_replicas=1,
        )
        try:
            info = await self._link.ask(lambda: self._link.jetstream.add_consumer(self._stream, config))
        except nats.js.errors.NotFoundError:
            return  # deleted at this moment; the next turn sees
        self.pending = info.num_pending or 0
        inbox = self._link.client.new_inbox()
        self._subscription = await self._link.client.subscribe(
            inbox, cb=self._receiver(), pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._next_delivery, self._asked, self._odd = 1, 0, False
        self._heard = asyncio.get_running_loop().time()

    async def _drop(self) -> None:
        self._queue.clear()
        if self._subscription is None:
            return
        subscription, self._subscription = self._subscription, None
        try:
            await subscription.unsubscribe()
            if self._link.client.is_connected:
                await self._link.jetstream.delete_consumer(self._stream, self._consumer)
        except (nats.errors.Error, nats.js.errors.Error):
            pass  # the server forgets it by itself

    def _receiver(self) -> Any:
        consumer = self._consumer

        async def receive(msg: Msg) -> None:
            if consumer != self._consumer:
                return
            self._heard = asyncio.get_running_loop().time()
            if not msg.reply.startswith("$JS.ACK."):
                self._note_status(msg)
                return
            tokens = msg.reply.split(".")
            place = 5 if len(tokens) < 11 else 7  # newer servers put a domain and an account before
            sequence, delivery, pending = int(tokens[place]), int(tokens[place + 1]), int(tokens[place + 3])
            if delivery != self._next_delivery:
                self._odd = True
            if not self._odd:
                self._next_delivery += 1
                self._asked -= 1
                self._queue.append((pending, Message(sequence, msg.data, msg.headers, msg.subject)))
            self._arrived.set()

        return receive

    def _note_status(self, msg: Msg) -> None:
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == "100":
            return
        left = headers.get("Nats-Pending-Messages")
        if status in ("404", "408") or (status == "409" and left is not None):
            self._asked -= int(left or self._asked)  # a request ended before it was served in full
        else:
            self._odd = True
        self._arrived.set()
