"""What is wrong with a gateway at this moment, and tasks that go on whatever happens to them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headgate.runtime.backoff import Backoff

__all__ = ["Health", "Trouble"]

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Since when a part does not do its work, and the first cause: what follows from it says less."""

    since: float  # seconds since the epoch
    why: str


class Health:
    """The parts of a gateway say here when they fail. Only a success of the same part ends its trouble."""

    def __init__(self) -> None:
        self.troubles: dict[str, Trouble] = {}
        self.failures: Counter[str] = Counter()

    def failed(self, part: str, why: object) -> None:
        self.failures[part] += 1
        self.troubles.setdefault(part, Trouble(time.time(), str(why) or repr(why)))

    def works(self, part: str) -> None:
        self.troubles.pop(part, None)

    def failing_s(self, part: str) -> float:
        """For how long a part has failed; 0 if it works."""
        trouble = self.troubles.get(part)
        return time.time() - trouble.since if trouble else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "troubles": {part: {"since": each.since, "why": each.why} for part, each in self.troubles.items()},
            "failures": dict(self.failures),
        }

    async def tend(self, part: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run something that should never end. If it does, for whatever reason, it is told and begun again."""
        backoff = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S)
        while True:
            began = time.monotonic()
            try:
                await run()
            except Exception as error:
                logger.exception("%s has failed, and is begun again", part)
                self.failed(part, repr(error))
            else:
                self.failed(part, "it ended by itself")
            if time.monotonic() - began > _LAST_BACKOFF_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())
