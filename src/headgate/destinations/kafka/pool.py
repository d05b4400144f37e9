"""Producers that outlive a batch: Spark reuses its Python workers, so a worker may reuse its producer.

A borrowed client belongs to its borrower alone, because dropping what one sender has in flight must not touch
another's. It is given back if the work succeeded and closed otherwise.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.destinations.kafka.client import Client
from headgate.destinations.kafka.options import KafkaOptions

__all__ = ["borrow_client", "close_idle_clients"]

_MAX_IDLE_PER_OPTIONS = 4

_Key = tuple[KafkaOptions, bool]

_lock = threading.Lock()
_idle: dict[_Key, list[Client]] = {}


@contextmanager
def borrow_client(options: KafkaOptions, *, gapless: bool) -> Iterator[Client]:
    """A connected client for these options, from the pool or new; flush it before the end of the block."""
    client = _take((options, gapless)) or _connected(options, gapless)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _give_back(client)


def close_idle_clients() -> None:
    """Close what nobody has borrowed."""
    with _lock:
        clients = [client for idle in _idle.values() for client in idle]
        _idle.clear()
    for client in clients:
        client.close()


def _connected(options: KafkaOptions, gapless: bool) -> Client:
    client = Client(options, gapless=gapless)
    try:
        client.check()
    except BaseException:
        client.close()
        raise
    return client


def _take(key: _Key) -> Client | None:
    while True:
        with _lock:
            idle = _idle.get(key)
            client = idle.pop() if idle else None
        if client is None or client.reusable:
            return client
        client.close()  # its brokers went away meanwhile


def _give_back(client: Client) -> None:
    if client.reusable:
        with _lock:
            idle = _idle.setdefault((client.options, client.gapless), [])
            if len(idle) < _MAX_IDLE_PER_OPTIONS:
                idle.append(client)
                return
    client.close()


def _forget_after_fork() -> None:
    """A child has its parent's clients without their threads. librdkafka does not say what ending one does then."""
    global _lock
    _lock = threading.Lock()
    for idle in _idle.values():
        for client in idle:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))  # never to be finalised
    _idle.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
