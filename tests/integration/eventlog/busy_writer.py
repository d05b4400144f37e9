"""A process that appends without end and prints each number once it is told: `python -m ... DIRECTORY`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from headgate.eventlog import EventLog, LogOptions


async def main(path: Path) -> None:
    async with EventLog.open(path, LogOptions(segment_events=300)) as log:

        async def work(uid: int) -> None:
            while True:
                seq = await log.append(1, uid, lambda seq: b"%d " % seq * 50)
                sys.stdout.write(f"{seq}\n")

        async def flush() -> None:
            while True:
                sys.stdout.flush()
                await asyncio.sleep(0.001)

        await asyncio.gather(flush(), *map(work, range(20)))


asyncio.run(main(Path(sys.argv[1])))
