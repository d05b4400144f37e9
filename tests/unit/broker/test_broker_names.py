"""What the package promises by name, and small rules of handlers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from headgate import broker
from headgate.broker import Event, LaggedError, Subscription
from headgate.broker.handlers import Handler
from headgate.model import CapacityError, Retry


def test_public_names() -> None:
    assert set(broker.__all__) == {
        "DEFAULT_SCHEMA",
        "BrokerClient",
        "DeadLetter",
        "Event",
        "EventStream",
        "FailoverError",
        "InMemoryBroker",
        "LaggedError",
        "Limits",
        "Message",
        "Phase",
        "Registration",
        "Slots",
        "Subscription",
        "SyncBrokerClient",
        "SyncEventStream",
        "SyncRegistration",
        "install",
        "installed",
        "migrations",
        "publish",
        "publish_sync",
        "send",
        "send_sync",
        "subscribe",
        "uninstall",
    }
    assert all(hasattr(broker, name) for name in broker.__all__)


def test_equal_topics_make_equal_subscriptions() -> None:
    assert Subscription.to_topics("b", "a", "b") == Subscription.to_topics("a", "b")


def test_a_lagging_listener_is_told_how_much() -> None:
    error = LaggedError("3 events", lost=3)
    assert (error.lost, error.retry, isinstance(error, CapacityError)) == (3, Retry.BACKOFF, True)


@pytest.mark.parametrize(
    ("attempts", "size", "calls"),
    [
        ([], 2, []),
        ([1, 1, 1], None, [[1, 1, 1]]),
        ([1, 1, 1], 2, [[1, 1], [1]]),
        ([1, 2, 2, 1, 1], None, [[1], [2], [2], [1, 1]]),
    ],
    ids=["nothing", "all", "two at a time", "retries alone"],
)
def test_what_goes_into_one_call(attempts: list[int], size: int | None, calls: list[list[int]]) -> None:
    handler = Handler("h", 1, nothing, batch_size=size)
    events = [Event(number, "t", None, None, datetime.now(UTC), attempt) for number, attempt in enumerate(attempts)]
    assert [[event.attempt for event in together] for together in handler.calls(events)] == calls


async def nothing(events: Sequence[Event]) -> None:
    """Handles."""


def test_attempts_end() -> None:
    handler = Handler("h", 1, nothing, (0, 5), 1.0)
    assert [handler.delay_s(attempt) for attempt in (1, 2, 3, 4)] == [0, 5, None, None]


def test_a_retry_is_for_its_handler() -> None:
    handler = Handler("h", 1, nothing, (), 1.0)
    assert handler.wants([1, 2], None)
    assert not handler.wants([2], None)
    assert handler.wants([1], {"handler": "h"})
    assert not handler.wants([1], {"handler": "other"})
