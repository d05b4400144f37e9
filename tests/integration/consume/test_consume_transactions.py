"""A transaction is given out when it is whole, never before, however long its publisher pauses and wherever.

What the consumers say is compared with the publisher's own list.
"""

from __future__ import annotations

import asyncio
import random
from typing import Literal

import pytest

from headgate.model import ProtocolError
from tests.integration.consume.reading import Reader, Row, run, until
from tests.snapshots.written import Place, Written

READERS: list[list[str] | Literal["*"]] = ["*", ["a"], ["b"], ["a", "b"]]


class Pausing:
    """Transactions of one to six events over three tables, some events in parts, some announced by a SCHEMA."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._random = random.Random(13)
        self.sent: list[list[Row]] = []

    async def send(self, count: int) -> None:
        for number in range(1, count + 1):
            rows = [(self._random.choice("abbc"), number * 10 + ordinal) for ordinal in range(1 + number % 6)]
            pause_after = number % len(rows)
            if number % 7 == 0:
                await self._written.schema(rows[0][0], number)
                await self._pause()
            for ordinal, row in enumerate(rows):
                is_large = number % 5 == 0 and ordinal == pause_after
                place = Place(number, len(rows), ordinal)
                pause_s = self._seconds() if is_large else 0
                await self._written.event(row, place, parts=3 if is_large else 1, pause_s=pause_s)
                if ordinal == pause_after:
                    await self._pause()
            self.sent.append(rows)

    def _seconds(self) -> float:
        return self._random.uniform(0.018, 0.030)

    async def _pause(self) -> None:
        await asyncio.sleep(self._seconds())


def test_pauses_inside_transactions_lose_nothing() -> None:
    async def test(written: Written) -> None:
        readers = [Reader(tables) for tables in READERS]
        for reader in readers:
            reader.start()
        await asyncio.gather(*(reader.caught_up.wait() for reader in readers))
        publisher = Pausing(written)
        await publisher.send(400)
        expected = [
            [kept for rows in publisher.sent if (kept := [row for row in rows if reader.wants(row[0])])]
            for reader in readers
        ]
        await until(lambda: all(len(r.transactions) >= len(e) for r, e in zip(readers, expected, strict=True)))
        for reader, whole in zip(readers, expected, strict=True):
            await reader.stop()
            assert reader.transactions == whole, reader.wanted

    run(test)


@pytest.mark.parametrize("tables", READERS)
@pytest.mark.parametrize("stops_after", [1, 2, 3, 4])
def test_a_publisher_that_dies_in_the_middle_yields_no_half_transaction(
    tables: list[str] | Literal["*"], stops_after: int
) -> None:
    async def test(written: Written) -> None:
        reader = Reader(tables)
        reader.start()
        await reader.caught_up.wait()
        reader.caught_up.clear()
        rows = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]
        for ordinal, row in enumerate(rows[:stops_after]):
            await written.event(row, Place(1, 5, ordinal))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await until(lambda: bool(reader.transactions) or reader.caught_up.is_set())
        for ordinal, row in enumerate(rows[stops_after:], stops_after):
            await written.event(row, Place(1, 5, ordinal))
        await until(lambda: bool(reader.transactions))
        await reader.caught_up.wait()
        await reader.stop()
        assert reader.transactions == [[row for row in rows if reader.wants(row[0])]]

    run(test)


def test_what_comes_for_a_complete_transaction_is_an_error_and_is_applied_after_a_restart() -> None:
    async def test(written: Written) -> None:
        reader = Reader(["a"])
        task = reader.start()
        await reader.caught_up.wait()
        await written.event(("a", 1), Place(1, 2, 1))  # says that it is the last
        await until(lambda: bool(reader.transactions))
        await written.event(("a", 2), Place(1, 2, 2))
        with pytest.raises(ProtocolError, match="was complete"):
            await task
        reader.start()
        await written.event(("a", 3), Place(2, 1, 0))
        await until(lambda: len(reader.transactions) == 3)
        await reader.stop()
        assert reader.transactions == [[("a", 1)], [("a", 2)], [("a", 3)]]

    run(test)
