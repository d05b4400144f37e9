"""Looks at a stream from the outside, as a consumer would: how much arrived, and what came last?"""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Self

from headgate.destinations.nats import JetStream, NatsOptions
from headgate.model import HeadgateError

__all__ = ["StreamWatch"]


class StreamWatch:
    """Counts what arrives at a stream, and keeps the last few messages seen."""

    def __init__(self, options: NatsOptions, keep: int = 3) -> None:
        self._options = options
        self._jetstream: JetStream | None = None
        self._began_at: int | None = None  # the stream's last sequence when the watch began
        self.began = time.monotonic()
        self.arrived = 0
        self.stored_bytes = 0
        self.first_arrival: float | None = None  # on the monotonic clock
        self.last: deque[tuple[str, str]] = deque(maxlen=keep)

    @property
    def stream(self) -> str:
        return self._options.stream

    def __enter__(self) -> Self:
        self.poll()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._close()

    def poll(self) -> None:
        """Look once. A server that does not answer right now is looked at again next time."""
        try:
            self._look()
        except HeadgateError:
            self._close()

    def _look(self) -> None:
        if self._jetstream is None:
            self._jetstream = JetStream.open(self._options)
        info = self._jetstream.stream_info(self._options.stream)
        if info is None:
            self._began_at = self._began_at or 0
            return
        if self._began_at is None:
            self._began_at = info.last_sequence
        fresh = info.last_sequence - self._began_at - self.arrived
        self.arrived += fresh
        self.stored_bytes = info.bytes
        if fresh:
            self.first_arrival = self.first_arrival or time.monotonic()
            # Not always the very last one: transactions that end alike would look as if nothing else happened.
            message = self._jetstream.message(self._options.stream, info.last_sequence - fresh // 3)
            if message is not None:
                self.last.append((message.subject, message.payload.decode(errors="replace")))

    def _close(self) -> None:
        if self._jetstream is not None:
            self._jetstream.close()
            self._jetstream = None
