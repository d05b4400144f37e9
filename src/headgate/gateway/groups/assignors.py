"""Assignors: which member gets which partitions. Those that groups of the new protocol (KIP-848) can choose from.

    range      per topic, each member gets a run of partitions; topics with equal counts are cut alike
    uniform    as even as subscriptions allow, and as few partitions move as possible

Both are functions of who wants what, and who has what, so that every coordinator comes to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeAlias
from uuid import UUID

__all__ = ["ASSIGNORS", "Assignor", "Partition", "Want", "assign_range", "assign_uniform"]

Partition: TypeAlias = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Want:
    """A member: the topics it wants, and the partitions it has. Members are ordered by `order`."""

    order: str
    topics: frozenset[UUID]
    has: frozenset[Partition]


Assignor: TypeAlias = Callable[[Mapping[str, Want], Mapping[UUID, int]], dict[str, set[Partition]]]


def assign_range(wants: Mapping[str, Want], counts: Mapping[UUID, int]) -> dict[str, set[Partition]]:
    """Runs of partitions, topic by topic."""
    result: dict[str, set[Partition]] = {key: set() for key in wants}
    members = sorted(wants, key=lambda key: (wants[key].order, key))
    for topic, count in counts.items():
        takers = [key for key in members if topic in wants[key].topics]
        for place, key in enumerate(takers):
            first, last = count * place // len(takers), count * (place + 1) // len(takers)
            result[key].update((topic, index) for index in range(first, last))
    return result


def assign_uniform(wants: Mapping[str, Want], counts: Mapping[UUID, int]) -> dict[str, set[Partition]]:
    """Everybody keeps what they have and want; the rest goes to who has least; then the richest give to the poorest."""
    takers = _takers(wants, counts)
    result: dict[str, set[Partition]] = {key: set() for key in wants}
    free = {(topic, index) for topic in takers for index in range(counts[topic])}
    for key, want in wants.items():
        kept = {each for each in want.has & free if each[0] in want.topics}
        result[key] = kept
        free -= kept
    scales = _Scales(result, set(takers.values()))
    # Partitions that few members want first: the others can still go anywhere then.
    for partition in sorted(free, key=lambda each: (len(takers[each[0]]), each)):
        scales.give(partition, scales.poorest(takers[partition[0]]))
    _level(result, takers, scales)
    return result


def _takers(wants: Mapping[str, Want], counts: Mapping[UUID, int]) -> dict[UUID, frozenset[str]]:
    """Return which members want each topic. Equal sets are one object: there are few of them in most groups."""
    takers: dict[UUID, frozenset[str]] = {}
    known: dict[frozenset[str], frozenset[str]] = {}
    for topic in counts:
        who = frozenset(key for key, want in wants.items() if topic in want.topics)
        if who:
            takers[topic] = known.setdefault(who, who)
    return takers


class _Scales:
    """How much everybody has, and who has least of a set of members: a heap per set, with stale entries left in."""

    def __init__(self, result: dict[str, set[Partition]], sets: set[frozenset[str]]) -> None:
        self.result = result
        self._heaps = {who: [(len(result[key]), key) for key in who] for who in sets}
        self._memberships: dict[str, list[list[tuple[int, str]]]] = {key: [] for key in result}
        for who, heap in self._heaps.items():
            heapify(heap)
            for key in who:
                self._memberships[key].append(heap)

    def poorest(self, who: frozenset[str]) -> str:
        heap = self._heaps[who]
        while heap[0][0] != len(self.result[heap[0][1]]):
            heappop(heap)
        return heap[0][1]

    def give(self, partition: Partition, key: str) -> None:
        self.result[key].add(partition)
        self._weigh(key)

    def take(self, partition: Partition, key: str) -> None:
        self.result[key].remove(partition)
        self._weigh(key)

    def _weigh(self, key: str) -> None:
        for heap in self._memberships[key]:
            heappush(heap, (len(self.result[key]), key))


def _level(result: dict[str, set[Partition]], takers: Mapping[UUID, frozenset[str]], scales: _Scales) -> None:
    """Move partitions until no single move makes it more even. Every move does, so this ends.

    The richest gives first, so that nobody gives what they get back later.
    """
    moved = True
    while moved:
        moved = False
        heap = [(-len(share), key) for key, share in result.items()]
        heapify(heap)
        while heap:
            size, rich = heappop(heap)
            move = _best_move(result[rich], takers, scales) if -size == len(result[rich]) else None
            if move is not None:
                partition, poor = move
                scales.take(partition, rich)
                scales.give(partition, poor)
                heappush(heap, (size + 1, rich))
                heappush(heap, (-len(result[poor]), poor))
                moved = True


def _best_move(
    share: set[Partition], takers: Mapping[UUID, frozenset[str]], scales: _Scales
) -> tuple[Partition, str] | None:
    """A partition of this share, and who is so poor that it should have it."""
    poorest = {topic: scales.poorest(takers[topic]) for topic in {topic for topic, _ in share}}
    movable = {topic for topic, key in poorest.items() if len(scales.result[key]) + 1 < len(share)}
    partition = min((each for each in share if each[0] in movable), default=None)
    return (partition, poorest[partition[0]]) if partition else None


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
