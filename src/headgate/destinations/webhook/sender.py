"""Sends the rows of one lane: topics side by side, the rows of each one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pyarrow as pa

from headgate.destinations.base import Failure, Lane, Sender, SendResult
from headgate.destinations.webhook.attempt import attempt
from headgate.destinations.webhook.options import WebhookOptions
from headgate.destinations.webhook.requests import Post, TopicRows, by_topic, posts
from headgate.model import DataError, HeadgateError
from headgate.runtime.backoff import Backoff

__all__ = ["WebhookSender"]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


@dataclass(slots=True)
class _Topic:
    """How one topic fares while the sender is open."""

    name: str
    url: str
    patience_s: float  # what is left of it
    unsafe_rows: int = 0
    error: HeadgateError | None = None  # after which none of its rows is sent: order must hold


class WebhookSender(Sender):
    """`send` returns when the receiver has answered for every row, or the topic is given up. It keeps no rows."""

    def __init__(
        self, name: str, options: WebhookOptions, lane: Lane, runner: asyncio.Runner, client: httpx.AsyncClient
    ) -> None:
        self._name = name
        self._options = options
        self._lane = lane
        self._runner = runner
        self._client = client
        self._topics: dict[str, _Topic] = {}
        self._slots = asyncio.Semaphore(options.connections)
        self._rows = 0
        self._payload_bytes = 0

    def send(self, batch: pa.RecordBatch) -> None:
        groups = by_topic(batch)
        for group in groups:
            self._topic(group.topic)  # a topic that cannot be sent is refused before anything is
        self._runner.run(self._send(groups))

    def finish(self) -> SendResult:
        failures = [
            Failure(topic.name, topic.unsafe_rows, topic.error).as_dict()
            for topic in self._topics.values()
            if topic.error is not None
        ]
        return SendResult(self._name, self._rows, self._payload_bytes, failures=tuple(failures))

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            url = self._options.target(self._lane.stream, name)
            self._topics[name] = _Topic(name, url, self._options.retry_for_s)
        return self._topics[name]

    async def _send(self, groups: list[TopicRows]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in groups:
                    topic = self._topic(group.topic)
                    waiting = posts(group.rows, self._options)
                    workers = 1 if group.keyed else self._options.concurrency
                    for _ in range(workers):
                        tasks.create_task(self._work(topic, waiting))
        except* DataError as found:
            raise _first(found) from None

    async def _work(self, topic: _Topic, waiting: Iterator[Post]) -> None:
        """Several of these may take from one iterator; each request is made when its turn comes."""
        for post in waiting:
            if topic.error is None:
                async with self._slots:
                    error = await self._deliver(topic, post)
                topic.error = topic.error or error
                if error is None:
                    self._rows += post.rows
                    self._payload_bytes += len(post.body)
                    continue
            topic.unsafe_rows += post.rows

    async def _deliver(self, topic: _Topic, post: Post) -> HeadgateError | None:
        """Try until it is there, it makes no sense any more, or the topic's patience has run out."""
        loop = asyncio.get_running_loop()
        headers = self._headers(post)
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            began = loop.time()
            outcome = await attempt(self._client, self._options, topic.url, post, headers)
            if outcome.error is None or not outcome.passing:
                return outcome.error
            wait_s = outcome.retry_after_s
            if wait_s is None:
                wait_s = backoff.next_s()
            topic.patience_s -= loop.time() - began + wait_s
            if topic.patience_s < 0:
                return outcome.error
            await asyncio.sleep(wait_s)

    def _headers(self, post: Post) -> dict[str, str]:
        options = self._options
        lines = options.batch_rows > 1 and options.batch_format == "ndjson"
        batch_type = "application/x-ndjson" if lines else "application/json"
        headers = {
            "user-agent": "headgate",
            **options.headers,
            "content-type": options.content_type if options.batch_rows == 1 else batch_type,
            "idempotency-key": post.message_id,
            "webhook-id": post.message_id,
        }
        if self._lane.epoch is not None:
            headers["headgate-epoch"] = str(self._lane.epoch)
        return headers


def _first(group: BaseExceptionGroup[DataError]) -> DataError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, DataError)
    return error
