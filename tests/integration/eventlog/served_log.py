"""A log with a server, in the test's own loop, and clients for it."""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

from websockets.asyncio.client import ClientConnection, connect

from headgate.eventlog import EventLog, LogOptions
from headgate.eventlog.doors import Door
from headgate.eventlog.fanout import FanOut, FanOutOptions
from headgate.eventlog.topics import EVENT, TopicDoor, TopicEvent, encode_event, topic_uid
from headgate.runtime.listening import listen

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Live:
    """A log that is served."""

    def __init__(self, log: EventLog, fan_out: FanOut, port: int) -> None:
        self.log = log
        self.fan_out = fan_out
        self.port = port

    async def publish(self, count: int, topic: str = "t", size: int = 0) -> list[int]:
        futures = [self.log.submit(EVENT, topic_uid(topic), event(topic, number, size)) for number in range(count)]
        return list(await asyncio.gather(*futures))

    def connect(self, query: str = "", **options: Any) -> connect:
        return connect(f"ws://127.0.0.1:{self.port}/subscribe{query}", compression=None, max_size=None, **options)

    async def get(self, request: bytes) -> bytes:
        """All that is answered to some bytes, until the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()


def event(topic: str, number: int, size: int = 0) -> bytes:
    return encode_event(TopicEvent(topic, f"m-{number}", None, 1_700_000_000_000_000, b"%d" % number + b" " * size))


async def seqs(client: ClientConnection, count: int) -> list[int]:
    return [json.loads(await asyncio.wait_for(client.recv(), 10))["seq"] for _ in range(count)]


@asynccontextmanager
async def live(
    path: Path,
    options: FanOutOptions | None = None,
    doors: Mapping[str, Door] | None = None,
    log_options: LogOptions | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Live]:
    door = TopicDoor()
    async with EventLog.open(path, log_options or LogOptions(segment_events=50)) as log:
        with log.reader() as reader:
            fan_out = FanOut(reader, doors or {"/subscribe": door}, {"/events": door}, options)
            listener = listen("127.0.0.1", 0, backlog=100, where="test")
            await fan_out.start(listener, tls)
            try:
                yield Live(log, fan_out, listener.getsockname()[1])
            finally:
                await fan_out.close()
