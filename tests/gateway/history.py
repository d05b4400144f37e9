"""What clients saw of a log, and what must never be among it.

A history is what producers were told and what consumers were given, in the order of each client. `check` compares it
with the log as it is in the end and names every contradiction. Values are unique, so that a message is known again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

__all__ = ["Anomaly", "History", "Place", "check"]

Outcome = Literal["ok", "refused", "unknown"]


class Place(NamedTuple):
    """Where a message lies."""

    partition: int
    offset: int


class Sent(NamedTuple):
    """A message in the order in which its producer sent it. Unknown: nobody can say whether it was written."""

    value: str
    partition: int
    outcome: Outcome
    offset: int | None = None


class Polled(NamedTuple):
    """A message that a consumer was given."""

    place: Place
    value: str


class Assigned(NamedTuple):
    """From here on a consumer reads this partition from a position of its own choice."""

    partition: int


class Anomaly(NamedTuple):
    """One contradiction."""

    kind: str
    about: str


@dataclass
class History:
    """What every client did and saw, by its name."""

    sent: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[str, list[Polled | Assigned]] = field(default_factory=lambda: defaultdict(list))

    def produced(self, producer: str, value: str, partition: int, outcome: Outcome, offset: int | None = None) -> None:
        self.sent[producer].append(Sent(value, partition, outcome, offset))

    def polled(self, consumer: str, partition: int, offset: int, value: str) -> None:
        self.seen[consumer].append(Polled(Place(partition, offset), value))

    def assigned(self, consumer: str, partitions: Iterable[int]) -> None:
        self.seen[consumer] += [Assigned(partition) for partition in partitions]


def check(history: History, log: Mapping[int, Sequence[tuple[int, str]]], *, exactly_once: bool) -> list[Anomaly]:
    """Every contradiction between a history and the log, which has `(offset, value)` in order for every partition.

    `exactly_once` is for idempotent producers: no value may lie in the log twice.
    """
    places = _places(log)
    return [
        *_gaps(log),
        *_lost(history, places),
        *_refused_but_there(history, places),
        *(_duplicated(places) if exactly_once else ()),
        *_misplaced(history, log),
        *_reordered(history, places),
        *_polls(history, log),
        *_unseen(history, log),
    ]


def _places(log: Mapping[int, Sequence[tuple[int, str]]]) -> dict[str, list[Place]]:
    places: dict[str, list[Place]] = defaultdict(list)
    for partition, messages in log.items():
        for offset, value in messages:
            places[value].append(Place(partition, offset))
    return places


def _gaps(log: Mapping[int, Sequence[tuple[int, str]]]) -> Iterable[Anomaly]:
    for partition, messages in log.items():
        offsets = [offset for offset, _ in messages]
        if offsets != list(range(len(offsets))):
            yield Anomaly("gap", f"the offsets of partition {partition} are not 0..{len(offsets) - 1}")


def _lost(history: History, places: Mapping[str, list[Place]]) -> Iterable[Anomaly]:
    for producer, sent in history.sent.items():
        for message in sent:
            if message.outcome == "ok" and message.value not in places:
                yield Anomaly("lost", f"{message.value} of {producer} was acknowledged")


def _refused_but_there(history: History, places: Mapping[str, list[Place]]) -> Iterable[Anomaly]:
    for producer, sent in history.sent.items():
        for message in sent:
            if message.outcome == "refused" and message.value in places:
                yield Anomaly("aborted read", f"{message.value} of {producer} was refused, and is there")


def _duplicated(places: Mapping[str, list[Place]]) -> Iterable[Anomaly]:
    for value, found in places.items():
        if len(found) > 1:
            yield Anomaly("duplicated", f"{value} lies at {found}")


def _misplaced(history: History, log: Mapping[int, Sequence[tuple[int, str]]]) -> Iterable[Anomaly]:
    """The offset that a producer was told, or a consumer given, holds another message."""
    values = {Place(partition, offset): value for partition, messages in log.items() for offset, value in messages}
    for producer, sent in history.sent.items():
        for message in sent:
            if message.outcome != "ok" or message.offset is None:
                continue
            if (there := values.get(Place(message.partition, message.offset))) != message.value:
                yield Anomaly("misplaced", f"{producer} was told {message.offset} for {message.value}, not {there}")
    for consumer, seen in history.seen.items():
        for event in seen:
            if isinstance(event, Polled) and (there := values.get(event.place)) != event.value:
                yield Anomaly("misplaced", f"{consumer} was given {event.value} at {event.place}; there is {there}")


def _reordered(history: History, places: Mapping[str, list[Place]]) -> Iterable[Anomaly]:
    """First occurrences of a producer's messages in a partition must come in the order in which they were sent."""
    for producer, sent in history.sent.items():
        last: dict[int, Place] = {}
        for message in sent:
            if message.value not in places:
                continue
            place = places[message.value][0]
            if place.partition in last and place < last[place.partition]:
                yield Anomaly("reordered", f"{message.value} of {producer} at {place} is before its predecessor")
            last[place.partition] = max(place, last.get(place.partition, place))


def _polls(history: History, log: Mapping[int, Sequence[tuple[int, str]]]) -> Iterable[Anomaly]:
    """Between two assignments a consumer gets a partition's messages one after the other, without going back."""
    for consumer, seen in history.seen.items():
        position: dict[int, int] = {}
        for event in seen:
            if isinstance(event, Assigned):
                position.pop(event.partition, None)
                continue
            partition, offset = event.place
            before = position.get(partition)
            if before is not None and offset <= before:
                yield Anomaly("non-monotonic poll", f"{consumer} was given {event.place} after offset {before}")
            elif before is not None and offset > before + 1:
                yield Anomaly("skipped", f"{consumer} was given {event.place} after offset {before}")
            position[partition] = offset


def _unseen(history: History, log: Mapping[int, Sequence[tuple[int, str]]]) -> Iterable[Anomaly]:
    """What is in the log in the end, and no consumer was given, once all of them had caught up."""
    if not history.seen:
        return
    given = Counter(event.place for seen in history.seen.values() for event in seen if isinstance(event, Polled))
    for partition, messages in log.items():
        for offset, value in messages:
            if Place(partition, offset) not in given:
                yield Anomaly("unseen", f"{value} at {Place(partition, offset)}")
