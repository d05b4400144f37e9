"""What the package promises by name, and small rules of handlers."""

from __future__ import annotations

from collections.abc import Sequence

from headgate import broker
from headgate.broker import Event, Subscription
from headgate.broker.handlers import Handler


def test_public_names() -> None:
    assert set(broker.__all__) == {
        "DEFAULT_SCHEMA",
        "BrokerClient",
        "Event",
        "Message",
        "Phase",
        "Subscription",
        "install",
        "installed",
        "migrations",
        "publish",
        "send",
        "subscribe",
        "uninstall",
    }
    assert all(hasattr(broker, name) for name in broker.__all__)


def test_equal_topics_make_equal_subscriptions() -> None:
    assert Subscription.to_topics("b", "a", "b") == Subscription.to_topics("a", "b")


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
