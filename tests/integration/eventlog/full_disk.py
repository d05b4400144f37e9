"""A process whose files may not grow beyond a limit, for a while: `python -m ... DIRECTORY`."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from headgate.eventlog import EventLog
from headgate.model import CapacityError

LIMIT = 100_000


async def main(path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    told: list[int] = []
    async with EventLog.open(path) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
        failed = 0
        while not failed:
            outcomes = await asyncio.gather(*(append(log) for _ in range(30)))
            failed = outcomes.count(None)
            told += [outcome for outcome in outcomes if outcome]
        while seq := await append(log):  # a smaller group may still fit
            told.append(seq)
        with log.reader() as reader:
            seen = [record.seq for records in reader.read(0) for record in records]
        assert seen == told, (seen[-3:], told[-3:])
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        told.append(await log.append(1, 1, b"after"))
        assert told == sorted(set(told))
    sys.stdout.write(f"{told[-2]} {told[-1]} {failed}\n")


async def append(log: EventLog) -> int | None:
    try:
        return await log.append(1, 1, b"x" * 700)
    except CapacityError:
        return None


asyncio.run(main(Path(sys.argv[1])))
