"""Handlers of events: one queue each, a timeout, and retries that concern nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.broker.messages import Event

__all__ = ["Batch", "Handle", "Handler", "Settle"]

logger = logging.getLogger(__name__)

Handle = Callable[[Sequence[Event]], Awaitable[None]]
# Makes a failure durable: (handler, events, the error).
Settle = Callable[["Handler", Sequence[Event], str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one read that go to one handler, and what is told when they are done."""

    events: Sequence[Event]
    done: Callable[[], None]


@dataclass(eq=False)
class Handler:
    """A function that handles the events of a subscription, one batch at a time and in order."""

    name: str
    subscription_id: int
    handle: Handle
    retries_s: Sequence[float]
    timeout_s: float
    queue: asyncio.Queue[Batch] = field(default_factory=asyncio.Queue)

    async def run(self, settle: Settle) -> None:
        """Work until cancelled. Whatever happens to a batch has been written down before it counts as done."""
        while True:
            batch = await self.queue.get()
            error = await self._try(batch.events)
            if error is not None:
                await settle(self, batch.events, error)
            batch.done()

    def delay_s(self, attempt: int) -> float | None:
        """How long to wait after this attempt has failed; None: it was the last."""
        return self.retries_s[attempt - 1] if attempt <= len(self.retries_s) else None

    def wants(self, subscription_ids: Sequence[int], retry: dict[str, Any] | None) -> bool:
        """A retry is for the handler that failed; all others have handled it."""
        return self.subscription_id in subscription_ids and (retry is None or retry["handler"] == self.name)

    async def _try(self, events: Sequence[Event]) -> str | None:
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.handle(events)
        except Exception as error:
            logger.warning("handler %s failed on %d events: %s", self.name, len(events), type(error).__name__)
            return f"{type(error).__name__}: {error}"
        return None
