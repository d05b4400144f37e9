"""Publishers that outlive a batch: Spark reuses its Python workers, so a worker may reuse its connection.

A borrowed publisher belongs to its borrower alone. It is given back if the work succeeded and closed otherwise, so the
pool holds only connections without anything in flight.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headgate.destinations.nats.publisher import Publisher

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions

__all__ = ["borrow_publisher", "close_idle_publishers"]

_MAX_IDLE_PER_OPTIONS = 4

_lock = threading.Lock()
_idle: dict[NatsOptions, list[Publisher]] = {}


@contextmanager
def borrow_publisher(options: NatsOptions, *, is_checked: bool = True) -> Iterator[Publisher]:
    """A connected publisher for these options, from the pool or new; flush it before the end of the block.

    `is_checked` asks the server first whether an idle connection still works, which takes a round trip.
    """
    publisher = _take(options) or Publisher(options)
    try:
        if is_checked:
            publisher.check()
        yield publisher
    except BaseException:
        publisher.close()
        raise
    _give_back(publisher)


def close_idle_publishers() -> None:
    """Close what nobody has borrowed."""
    with _lock:
        publishers = [publisher for idle in _idle.values() for publisher in idle]
        _idle.clear()
    for publisher in publishers:
        publisher.close()


def _take(options: NatsOptions) -> Publisher | None:
    with _lock:
        idle = _idle.get(options)
        return idle.pop() if idle else None


def _give_back(publisher: Publisher) -> None:
    if not publisher.reusable:
        publisher.close()
        return
    with _lock:
        idle = _idle.setdefault(publisher.options, [])
        if len(idle) < _MAX_IDLE_PER_OPTIONS:
            idle.append(publisher)
            return
    publisher.close()


def _forget_after_fork() -> None:
    """A child must not write to its parent's connections; closing its copies of the sockets does not end them."""
    global _lock
    _lock = threading.Lock()
    close_idle_publishers()


os.register_at_fork(after_in_child=_forget_after_fork)
