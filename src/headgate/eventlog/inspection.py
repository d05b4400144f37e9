"""Looks through a log all the time, slowly, so that damage is known before somebody needs what is lost.

    inspection = Inspection(path)
    await inspection.run()             # for ever
    inspection.damage                  # what the last look at each segment has found

One segment after the other, each in a thread, and then a pause in which nothing is read: the whole costs a small share
of a core, however long the log is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headgate.eventlog.check import Look, look_at, missing_of, segments_of
from headgate.eventlog.records import Damage

__all__ = ["Inspection"]

_log = logging.getLogger(__name__)

_SHARE = 0.05  # of a core
_ROUND_S = 3_600.0  # from one round to the next
_AGAIN_S = 1.0
_RETRY_S = 60.0


class Inspection:
    """What is known of a log's soundness. `rounds` counts how often all of it was looked at."""

    def __init__(self, path: Path, *, share: float = _SHARE, round_s: float = _ROUND_S) -> None:
        self._path, self._share, self._round_s = path, share, round_s
        self._found: dict[int, list[Damage]] = {}
        self.rounds = 0
        self.bytes = 0  # looked at, in all
        self.finished_at = 0.0  # the last round, in seconds since 1970
        self.problem = ""  # why it cannot go on, if so

    @property
    def damage(self) -> list[Damage]:
        return [each for start in sorted(self._found) for each in self._found[start]]

    async def run(self) -> None:
        """Round after round. What is wrong with the looking itself is told, and tried again."""
        with ThreadPoolExecutor(1, "event log inspection") as thread:
            while True:
                try:
                    await self._round(thread)
                    self.problem, pause_s = "", self._round_s
                except Exception as error:
                    _log.exception("an event log cannot be inspected")
                    self.problem, pause_s = str(error) or repr(error), _RETRY_S
                await asyncio.sleep(pause_s)

    async def _round(self, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        starts = await loop.run_in_executor(thread, segments_of, self._path)
        for start in starts:
            look = await self._look(thread, start)
            if look is not None and look.damage and self._found.get(start) != look.damage:
                await asyncio.sleep(_AGAIN_S)  # a record that is taken down at this moment may look like that
                look = await self._look(thread, start)
            self._note(start, look)
        missing = {each.after + 1: each for each in await loop.run_in_executor(thread, missing_of, self._path)}
        for start, damage in missing.items():
            self._note(start, Look(0, [damage]))
        self._found = {start: found for start, found in self._found.items() if start in {*starts, *missing}}
        self.rounds += 1
        self.finished_at = time.time()

    async def _look(self, thread: ThreadPoolExecutor, start: int) -> Look | None:
        began = time.monotonic()
        look = await asyncio.get_running_loop().run_in_executor(thread, look_at, self._path, start)
        await asyncio.sleep((time.monotonic() - began) * (1 / self._share - 1))
        return look

    def _note(self, start: int, look: Look | None) -> None:
        """None: it was removed in the meantime, for its age."""
        known = self._found.pop(start, [])
        if look is None:
            return
        self.bytes += look.bytes
        if look.damage:
            self._found[start] = look.damage
        for damage in look.damage:
            if damage not in known:
                _log.error("an event log is damaged: %s", damage.text, extra=damage._asdict())
