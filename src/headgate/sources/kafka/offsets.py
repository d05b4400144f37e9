"""How far each partition is read, and what to read next.

An offset of the stream names the next offset of every partition, so reading a batch again needs nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from headgate.model import StateError, UsageError

__all__ = ["Bounds", "Partition", "Range", "Reached", "lost", "next_end", "parse_start", "ranges"]


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Bounds(NamedTuple):
    """The first offset that is still there, and the one that the next message will get."""

    earliest: int
    latest: int


class Range(NamedTuple):
    """Messages from `start` to before `end`."""

    partition: Partition
    start: int
    end: int


class Reached(dict[Partition, int]):
    """The next offset to read of every partition."""

    def to_offset(self) -> dict[str, Any]:
        """Spark's offsets are made of numbers and texts."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, index), offset in sorted(self.items()):
            topics.setdefault(topic, {})[str(index)] = offset
        return {"offsets": msgspec.json.encode(topics).decode()}

    @classmethod
    def from_offset(cls, offset: Mapping[str, Any]) -> Reached:
        try:
            return cls.from_json(offset["offsets"])
        except (KeyError, TypeError, ValueError):
            raise StateError(
                "the checkpoint holds no offsets of topics",
                remedy="it belongs to another source; use another checkpoint, or headgate reset",
            ) from None

    @classmethod
    def from_json(cls, text: str) -> Reached:
        """`{"orders": {"0": 23, "1": 7}}`, as Spark's own Kafka source writes it."""
        topics = msgspec.json.decode(text, type=dict[str, dict[int, int]])
        return cls({Partition(topic, index): n for topic, parts in topics.items() for index, n in parts.items()})


def parse_start(text: str, bounds: Mapping[Partition, Bounds]) -> Reached:
    """Where a new stream begins: `earliest`, `latest`, or offsets as JSON in which -2 and -1 mean these two."""
    if text in ("earliest", "latest"):
        return Reached({partition: getattr(found, text) for partition, found in bounds.items()})
    try:
        given = Reached.from_json(text)
    except ValueError:
        raise UsageError(
            f"startingOffsets is {text[:80]!r}",
            remedy='give earliest, latest, or {"topic": {"0": 23}}',
        ) from None
    named = {-2: "earliest", -1: "latest"}
    return Reached(
        {
            partition: getattr(found, named[at]) if (at := given.get(partition, -2)) in named else at
            for partition, found in bounds.items()
        }
    )


def next_end(start: Reached, bounds: Mapping[Partition, Bounds], most: int | None) -> Reached:
    """Where the next batch ends. With a limit, every partition gives in proportion to what it has.

    A partition that is new since the stream began only gets its beginning here, so that this is on record when its
    messages are read. One that is gone, or that has been emptied or made anew, goes on from what is there.
    """
    begins = {p: min(max(start.get(p, found.earliest), found.earliest), found.latest) for p, found in bounds.items()}
    waiting = {p: bounds[p].latest - begin if p in start else 0 for p, begin in begins.items()}
    total = sum(waiting.values())
    share = 1.0 if most is None or total <= most else most / total
    # Never less than one message: a busy partition must not keep a quiet one waiting for ever.
    return Reached({p: begin + (max(1, int(waiting[p] * share)) if waiting[p] else 0) for p, begin in begins.items()})


def lost(start: Reached, bounds: Mapping[Partition, Bounds]) -> list[str]:
    """What was to be read and is not there any more, in words."""
    found = []
    for partition, at in sorted(start.items()):
        there = bounds.get(partition)
        if there is None:
            found.append(f"{partition} is gone")
        elif not there.earliest <= at <= there.latest:
            found.append(f"{partition} was read up to {at}, and now has {there.earliest} to {there.latest}")
    return found


def ranges(start: Reached, end: Reached) -> list[Range]:
    """What lies between two offsets of the stream."""
    return [
        Range(partition, start[partition], stop)
        for partition, stop in sorted(end.items())
        if partition in start and start[partition] < stop
    ]
