"""How fast a handler is called, and how many calls of it run side by side."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.broker.messages import Event
from headgate.model import UsageError

__all__ = ["NO_LIMITS", "Limits", "Pace"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one handler in one client.

    `parallel` calls run side by side. Events with the same `key` stay in order; without a key, none do.
    """

    rate_per_s: float | None = None  # events a second, over a while
    parallel: int = 1
    key: Callable[[Event[Any]], Hashable] | None = None

    def __post_init__(self) -> None:
        if self.parallel < 1 or (self.rate_per_s is not None and not 0 < self.rate_per_s < math.inf):
            raise UsageError("limits must let something through", remedy="give parallel >= 1 and rate_per_s > 0")
        if self.key is not None and self.parallel == 1:
            raise UsageError("a key is for calls side by side", remedy="give parallel, or no key")

    @property
    def call_size(self) -> int | None:
        """The most events of one call: a second's worth, so that they do not all come at once."""
        return None if self.rate_per_s is None else max(1, math.floor(self.rate_per_s))

    def lanes(self, events: Sequence[Event]) -> Iterator[Sequence[Event]]:
        """What may be handled side by side; the order counts within each."""
        if self.parallel == 1:
            yield events
            return
        lanes: dict[Hashable, list[Event]] = {}
        for event in events:
            lanes.setdefault(self._key(event), []).append(event)
        yield from lanes.values()

    def _key(self, event: Event) -> Hashable:
        """An event whose key cannot be told goes alone: the handler says what is wrong with it."""
        if self.key is not None:
            try:
                key = self.key(event)
                hash(key)
                return ("key", key)
            except Exception as error:
                logger.warning("the key of event %d cannot be told: %s", event.id, type(error).__name__)
        return ("event", event.id)


NO_LIMITS = Limits()


@dataclass
class Pace:
    """Lets a number of events through in a second; what was not used for a while does not add up."""

    rate_per_s: float | None
    _free_at: float = field(default=0.0, init=False)

    async def wait(self, count: int) -> None:
        """Until it is the turn of so many more."""
        if self.rate_per_s is None:
            return
        now = asyncio.get_running_loop().time()
        begins = max(now, self._free_at)
        self._free_at = begins + count / self.rate_per_s
        await asyncio.sleep(begins - now)
