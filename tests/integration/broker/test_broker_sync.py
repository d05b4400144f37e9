"""The client for programs that are not async."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from headgate.broker import Event, Message, Subscription, SyncBrokerClient
from headgate.model import StateError, UsageError
from tests.integration.broker.clients import ALL


def test_plain_functions_handle(database: str, db: psycopg.Connection[Any]) -> None:
    seen: list[Any] = []
    threads: set[threading.Thread] = set()
    with SyncBrokerClient(database, group="g", chunk=2) as broker:

        def handle(events: Sequence[Event]) -> None:
            threads.add(threading.current_thread())
            seen.extend(event.payload for event in events)
            if events[0].payload == 0 and events[0].attempt == 1:
                raise ValueError("not yet")
            if len(seen) == 7:
                broker.stop()

        registered = broker.register_reliable_handler(ALL, handle, name="h", retries_s=[0], batch_size=1)
        assert (registered.name, registered.subscription_id > 0) == ("h", True)
        broker.publish(*[Message("t", number) for number in range(4)])
        future = broker.enqueue(Message("t", 4))
        broker.flush()
        assert future.result(20) is not None
        broker.send(registered.subscription_id, Message("x", 5))
        broker.run()
        assert sorted(seen) == [0, 0, 1, 2, 3, 4, 5]
        assert threading.main_thread() not in threads
        registered.cancel(unsubscribe=True)
    assert db.execute("select cursor = last_pos, owner from group_status where group_id = 'g'").fetchone() == (
        True,
        None,
    )


def test_an_async_function_may_handle_too(database: str) -> None:
    with SyncBrokerClient(database, group="g") as broker:
        refused: list[BaseException] = []

        async def handle(events: Sequence[Event]) -> None:
            try:
                broker.publish(Message("t", 2))
            except UsageError as error:
                refused.append(error)
            broker.stop()

        broker.register_reliable_handler(ALL, handle, name="h")
        broker.publish(Message("t", 1))
        broker.run()
        assert "wait for itself" in str(refused[0])


def test_streams_are_iterators(database: str) -> None:
    with SyncBrokerClient(database, group="g") as broker, ThreadPoolExecutor(1) as pool:
        running = pool.submit(broker.run)
        with broker.register_fire_and_forget(Subscription.to_topics("tick"), payload_type=int) as ticks:
            broker.publish(Message("tick", 1), Message("tick", 2))
            got = [next(ticks).payload, next(ticks).payload]
            assert (got, ticks.lost) == ([1, 2], 0)
        assert list(ticks) == []
        broker.stop()
        running.result(20)


def test_it_is_used_in_a_with_statement(database: str) -> None:
    broker = SyncBrokerClient(database, group="g")
    for use in (lambda: broker.publish(Message("t", 1)), broker.stop, lambda: broker.id):
        with pytest.raises(UsageError, match="not open"):
            use()
    with broker:
        assert broker.subscribe(ALL) > 0
        assert broker.id
        broker.end()
        broker.end()
    with pytest.raises(StateError), SyncBrokerClient(database, group="g", schema="none"):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "headgate broker"]
