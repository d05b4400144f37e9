"""What goes to the broker and comes from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic

from typing_extensions import TypeVar

__all__ = ["Event", "Message", "Payload", "Subscription"]

Payload = TypeVar("Payload", default=Any)


@dataclass(frozen=True, slots=True)
class Message(Generic[Payload]):
    """Something to be published, now or when it is due. The payload is JSON, or an object that JSON can be made of."""

    topic: str
    payload: Payload
    metadata: Any = None
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Event(Generic[Payload]):
    """Something that was published, as a handler gets it."""

    id: int
    topic: str
    payload: Payload
    metadata: Any
    at: datetime
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a handler wants: a condition over `e` and `s`, with parameters. All events, unless it says otherwise."""

    condition: str = "true"
    params: Any = None
    expiry: timedelta | None = None

    @classmethod
    def to_topics(cls, *topics: str, expiry: timedelta | None = None) -> Subscription:
        """Events of these topics, which are looked up and not compared."""
        params = {"topics": sorted(set(topics))}
        return cls("s.params @> jsonb_build_object('topics', ARRAY[e.topic])", params, expiry)

    @classmethod
    def to_patterns(cls, *patterns: str, expiry: timedelta | None = None) -> Subscription:
        """Events whose topics match a pattern: in `order.*` the star is one word, in `order.>` the rest is any."""
        params = {"patterns": sorted(set(patterns))}
        return cls("topic_matches(e.topic, s.params -> 'patterns')", params, expiry)
