"""Handlers of events: one queue each, a timeout, and retries that concern nobody else.

A call that fails says nothing about the single event: its events are tried one by one, in order, before one of them is
put off or put aside. Only those that fail alone have failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from headgate.broker.limits import NO_LIMITS, Limits, Pace
from headgate.broker.messages import Event
from headgate.broker.payloads import check_readable
from headgate.broker.tenure import Tenure
from headgate.broker.tracing import handling
from headgate.model import DataError

__all__ = ["RETRIES_S", "Batch", "Handle", "Handler", "Settle"]

logger = logging.getLogger(__name__)

ERROR_CHARS = 4000
RETRIES_S = (1.0, 10.0, 60.0, 300.0, 1800.0)  # a glitch, a restart, a deployment, an outage that somebody repairs

Handle = Callable[[Sequence[Event[Any]]], Awaitable[None]]
_Note = Callable[[Event, str, float | None], Awaitable[None]]
# Makes a failure durable: (whose event it is, handler, event, the error, when to try again or None: never).
Settle = Callable[[Tenure, "Handler", Event, str, float | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of one read that go to one handler, and what is told when they are done."""

    events: Sequence[Event]
    done: Callable[[], None]
    tenure: Tenure  # when it is over, others handle them


@dataclass(eq=False)
class Handler:
    """A function that handles the events of a subscription, one batch at a time and in order."""

    name: str
    subscription_id: int
    handle: Handle
    retries_s: Sequence[float] = RETRIES_S
    timeout_s: float = 60.0
    batch_size: int | None = None  # at most so many events in a call; None: all of a read
    decode: Callable[[Any], Any] | None = None
    group: str = ""
    # Bounded by the reader, which does not read ahead any further while batches are waiting.
    queue: asyncio.Queue[Batch | None] = field(default_factory=asyncio.Queue)
    limits: Limits = NO_LIMITS
    pace: Pace | None = None  # that it shares with others; None: its own

    def __post_init__(self) -> None:
        self._pace = self.pace or Pace(self.limits.rate_per_s)
        self._places = asyncio.Semaphore(self.limits.parallel)
        sizes = [size for size in (self.batch_size, self.limits.call_size) if size is not None]
        self._call_size = min(sizes, default=None)

    async def run(self, settle: Settle) -> None:
        """Work until told to stop. Whatever happens to a batch has been written down before it counts as done."""
        while (batch := await self.queue.get()) is not None:
            note = partial(settle, batch.tenure, self)
            events = await self._decoded(batch.events, note)
            lanes = [self._lane(lane, batch.tenure, note) for lane in self.limits.lanes(events)]
            if len(lanes) == 1:
                await lanes[0]
            elif lanes:
                async with asyncio.TaskGroup() as side_by_side:
                    for lane in lanes:
                        side_by_side.create_task(lane)
            batch.done()

    async def _lane(self, events: Sequence[Event], tenure: Tenure, note: _Note) -> None:
        async with self._places:
            for together in self.calls(events):
                await self._pace.wait(len(together))
                if not tenure.over:
                    await self._handle(together, tenure, note)

    def stop(self) -> None:
        """Finish what is waiting, then end."""
        self.queue.put_nowait(None)

    def forget(self) -> None:
        """Drop what is waiting: somebody else will handle it."""
        waiting = []
        while not self.queue.empty():
            waiting.append(self.queue.get_nowait())
        if None in waiting:
            self.stop()

    def delay_s(self, attempt: int) -> float | None:
        """How long to wait after this attempt has failed; None: it was the last."""
        return self.retries_s[attempt - 1] if attempt <= len(self.retries_s) else None

    def calls(self, events: Sequence[Event]) -> Iterator[Sequence[Event]]:
        """What goes into one call. A retry goes alone: who failed with a bad event must not fail with it again."""
        together: list[Event] = []
        for event in events:
            if together and (event.attempt > 1 or together[-1].attempt > 1 or len(together) == self._call_size):
                yield together
                together = []
            together.append(event)
        if together:
            yield together

    def wants(self, subscription_ids: Sequence[int], retry: dict[str, Any] | None) -> bool:
        """A retry is for the handler that failed; all others have handled it."""
        return self.subscription_id in subscription_ids and (retry is None or retry["handler"] == self.name)

    async def _decoded(self, events: Sequence[Event], note: _Note) -> Sequence[Event]:
        """With payloads of the type that was asked for. One that does not fit never will: it is a dead letter."""
        fitting = []
        for event in events:
            try:
                check_readable(event.payload, event.metadata)
                fitting.append(replace(event, payload=self.decode(event.payload)) if self.decode else event)
            except DataError as error:
                logger.warning("handler %s cannot take event %d: its payload does not fit", self.name, event.id)
                await note(event, _in_words(error), None)
        return fitting

    async def _handle(self, events: Sequence[Event], tenure: Tenure, note: _Note) -> None:
        error = await self._try(events)
        if error is not None and len(events) > 1:
            for event in events:
                if not tenure.over:
                    await self._handle([event], tenure, note)
        elif error is not None:
            await note(events[0], error, self.delay_s(events[0].attempt))

    async def _try(self, events: Sequence[Event]) -> str | None:
        try:
            with handling(self.name, self.group, events):
                async with asyncio.timeout(self.timeout_s):
                    await self.handle(events)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _in_words(error)  # of something that the handler awaited: its failure, not our end
        except Exception as error:
            logger.warning("handler %s failed on %d events: %s", self.name, len(events), type(error).__name__)
            return _in_words(error)
        return None


def _in_words(error: BaseException) -> str:
    """An error as PostgreSQL can keep it: no matter what a handler puts into its text, a failure must be noted."""
    text = f"{type(error).__name__}: {error}"[:ERROR_CHARS]
    return text.replace("\0", "").encode(errors="replace").decode()
