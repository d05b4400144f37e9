"""Reads JetStream streams with the official client, as any consumer would."""

from __future__ import annotations

import asyncio

import nats
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

__all__ = ["read_stream"]


def read_stream(url: str | None, stream: str, expected: int, timeout_s: float = 100) -> list[Msg]:
    """All messages of a stream in order; waits for the expected number, and returns any beyond it, too."""
    assert url is not None
    return asyncio.run(_read(url, stream, expected, timeout_s))


async def _read(url: str, stream: str, expected: int, timeout_s: float) -> list[Msg]:
    client = await nats.connect(url)
    try:
        js = client.jetstream()
        subscription = await js.subscribe(
            ">", stream=stream, ordered_consumer=True, config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        )
        messages: list[Msg] = []
        total = (await js.stream_info(stream)).state.messages
        async with asyncio.timeout(timeout_s):
            while len(messages) < max(expected, total):
                messages.append(await subscription.next_msg(timeout=timeout_s))
        return messages
    finally:
        await client.close()
