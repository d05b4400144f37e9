"""The publish buffer, whatever the sizes and failures: all is published once, in order, and never more is held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import psycopg
from hypothesis import given
from hypothesis import strategies as st

from headgate.broker.buffer import PublishBuffer
from headgate.broker.messages import Message
from headgate.broker.transactions import Encoded
from headgate.model import DataError


@given(
    count=st.integers(0, 60),
    size=st.integers(1, 10),
    room=st.integers(0, 20),
    refused=st.sets(st.integers(0, 59), max_size=3),
)
def test_order_ids_and_bounds(count: int, size: int, room: int, refused: set[int]) -> None:
    published: list[int] = []

    async def story() -> None:
        async def publish(messages: Sequence[Encoded]) -> list[int]:
            numbers = [json.loads(message.text)["payload"] for message in messages]
            assert len(buffer._waiting) <= size + room
            await asyncio.sleep(0)
            if refused.intersection(numbers):
                raise psycopg.errors.InvalidTextRepresentation("it is refused")
            published.extend(numbers)
            return [number + 1000 for number in numbers]

        buffer = PublishBuffer(publish, size=size, interval_s=0, limit=size + room)
        futures = [await buffer.put(Message("t", number)) for number in range(count)]
        await buffer.end(20)
        for number, future in enumerate(futures):
            if number in refused:
                assert isinstance(future.exception(), DataError)
            else:
                assert future.result() == number + 1000

    asyncio.run(story())
    assert published == [number for number in range(count) if number not in refused]
