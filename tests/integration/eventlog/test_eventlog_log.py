"""The log for asyncio: groups, order, limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.eventlog import EventLog, LogWriter
from headgate.model import CapacityError, StateError
from tests.integration.eventlog.served_log import in_loop


@in_loop
async def test_numbers_follow_the_order_of_the_calls_in_few_groups(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path) as log:
        groups = 0
        append = log._writer.append

        def counting(entries: object) -> object:
            nonlocal groups
            groups += 1
            return append(entries)  # type: ignore[arg-type]

        log._writer.append = counting  # type: ignore[method-assign, assignment]
        numbers = await asyncio.gather(*(log.append(1, 1, b"x") for _ in range(1000)))
        assert numbers == list(range(1, 1001))
        assert groups <= 3


@in_loop
async def test_a_number_is_told_only_when_it_can_be_read(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path) as log:
        with log.reader() as reader:
            for _ in range(50):
                seq = await log.append(1, 1, b"x")
                assert reader.head_seq == seq
                assert [record.seq for records in reader.read(seq - 1) for record in records] == [seq]


@in_loop
async def test_what_waits_is_written_before_it_closes(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path) as log:
        futures = [log.submit(1, 1, b"x") for _ in range(10)]
    assert [await future for future in futures] == list(range(1, 11))
    with pytest.raises(StateError, match="closed"):
        log.submit(1, 1, b"x")


@in_loop
async def test_only_so_many_wait(tmp_path: Path) -> None:
    log = EventLog(LogWriter(tmp_path), max_waiting=5)
    try:
        futures = [log.submit(1, 1, b"x") for _ in range(5)]
        with pytest.raises(CapacityError, match="wait for the disk"):
            log.submit(1, 1, b"x")
        assert await asyncio.gather(*(log.append(1, 1, b"x") for _ in range(20))) == list(range(6, 26))
        assert [await future for future in futures] == [1, 2, 3, 4, 5]
    finally:
        await log.close()


@in_loop
async def test_who_no_longer_waits_disturbs_nobody(tmp_path: Path) -> None:
    async with EventLog.open(tmp_path) as log:
        first, second = log.submit(1, 1, b"a"), log.submit(1, 1, b"b")
        first.cancel()
        assert await second == 2


@in_loop
async def test_an_error_of_a_payload_is_its_own(tmp_path: Path) -> None:
    def fail(seq: int) -> bytes:
        raise ZeroDivisionError

    async with EventLog.open(tmp_path) as log:
        bad, good = log.submit(1, 1, fail), log.submit(1, 1, b"b")
        with pytest.raises(ZeroDivisionError):
            await bad
        assert await good == 1
