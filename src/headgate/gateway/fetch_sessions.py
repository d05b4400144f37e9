"""Fetch sessions (KIP-227): a reader of many partitions names only what is new to it, and hears only of what has moved.

A session belongs to the connection that began it and ends with it; a reader that comes back begins another. How many
partitions all sessions hold is limited: sessions that nobody has used for two minutes make room, and whoever finds none
reads without one, as readers did before there were sessions.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headgate.wire.kafka.refusal import Refused

if TYPE_CHECKING:
    from headgate.gateway.context import Session

__all__ = ["Asked", "FetchSession", "FetchSessions", "Key", "Turn"]

MOST_PARTITIONS = 100_000  # of all sessions; each takes some 400 bytes
EVICTION_S = 120.0
_FULL, _FINAL = 0, -1  # epochs: begin a session with this request, and end one
_LAST_EPOCH = 2**31 - 1

Key: TypeAlias = tuple[str, UUID, int]  # topic by name or by id, and partition
Asked: TypeAlias = tuple[Key, FetchPartition]


class FetchSession:
    """The partitions of one reader, those that it has read longest ago first, and what it was told of each."""

    __slots__ = ("epoch", "number", "partitions", "told", "used_at", "uses_ids")

    def __init__(self, number: int, uses_ids: bool) -> None:
        self.number = number
        self.uses_ids = uses_ids
        self.epoch = 1  # what the next request must say
        self.used_at = 0.0
        self.partitions: dict[Key, FetchPartition] = {}
        self.told: dict[Key, tuple[int, int]] = {}

    def update(self, request: FetchRequest) -> None:
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop((topic.topic, topic.topic_id, index), None)
                self.told.pop((topic.topic, topic.topic_id, index), None)
        for key, partition in _asked(request.topics):
            self.partitions[key] = partition

    def news(self, answers: Iterable[tuple[Key, FetchedPartition]]) -> list[tuple[Key, FetchedPartition]]:
        """What the reader does not know yet. Partitions that had something go to the end: others get their turn."""
        found = []
        for key, answer in answers:
            now = (answer.high_watermark, answer.log_start_offset)
            if answer.records or answer.error_code or self.told.get(key) != now:
                found.append((key, answer))
            if key in self.partitions:
                # After an error all is told again.
                self.told[key] = (-1, -1) if answer.error_code else now
                if answer.records:
                    self.partitions[key] = self.partitions.pop(key)
        return found


class Turn:
    """One request: what to read, and how to say what was there."""

    __slots__ = ("_is_full", "_session", "asked")

    def __init__(self, asked: list[Asked], session: FetchSession | None = None, *, is_full: bool = True) -> None:
        self.asked = asked
        self._session = session
        self._is_full = is_full

    def nothing(self) -> FetchResponse:
        """Tell a reader nothing, because it has to wait: a session goes on, and one is not begun."""
        number = 0 if self._session is None or self._is_full else self._session.number
        return FetchResponse(session_id=number)

    def response(self, answers: Sequence[FetchedPartition]) -> FetchResponse:
        """One answer for each that was asked, in their order."""
        named = [(key, answer) for (key, _), answer in zip(self.asked, answers, strict=True)]
        if self._session is not None:
            news = self._session.news(named)
            named = named if self._is_full else news
        topics = groupby(named, key=lambda each: each[0][:2])
        return FetchResponse(
            session_id=0 if self._session is None else self._session.number,
            responses=tuple(
                FetchedTopic(topic=name, topic_id=uuid, partitions=tuple(answer for _, answer in group))
                for (name, uuid), group in topics
            ),
        )


class FetchSessions:
    """The fetch sessions of all connections of a gateway. A connection has one at most, which is in its `Session`."""

    def __init__(self, most_partitions: int = MOST_PARTITIONS, now: Callable[[], float] = time.monotonic) -> None:
        self._most_partitions = most_partitions
        self._now = now
        self._owners: OrderedDict[int, Session] = OrderedDict()  # by the number, those used longest ago first
        self.partitions = 0

    def turn(self, owner: Session, request: FetchRequest, *, uses_ids: bool) -> Turn:
        """Take note of a request. Raises `Refused` if it is not the next one of its session."""
        if request.session_epoch in (_FULL, _FINAL):
            if owner.fetching is not None and (
                request.session_epoch == _FULL or request.session_id == owner.fetching.number
            ):
                self.close(owner)
            asked = _asked(request.topics)
            return Turn(asked, self._open(owner, asked, uses_ids) if request.session_epoch == _FULL else None)
        session = owner.fetching
        if session is None or session.number != request.session_id:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        session.update(request)
        self.partitions += len(session.partitions) - before
        asked = list(session.partitions.items())
        self._use(owner, session)
        if not asked or not self._has_room(session):
            self.close(owner)
            return Turn(asked)
        return Turn(asked, session, is_full=False)

    def close(self, owner: Session) -> None:
        """The connection is gone, or its session."""
        session, owner.fetching = owner.fetching, None
        if session is not None:
            del self._owners[session.number]
            self.partitions -= len(session.partitions)

    def _open(self, owner: Session, asked: list[Asked], uses_ids: bool) -> FetchSession | None:
        number = secrets.randbelow(2**31 - 1) + 1
        if not asked or number in self._owners:
            return None
        session = FetchSession(number, uses_ids)
        session.partitions = dict(asked)
        owner.fetching = session
        self.partitions += len(session.partitions)
        self._use(owner, session)
        if not self._has_room(session):
            self.close(owner)
            return None
        return session

    def _use(self, owner: Session, session: FetchSession) -> None:
        session.used_at = self._now()
        self._owners[session.number] = owner
        self._owners.move_to_end(session.number)

    def _has_room(self, newest: FetchSession) -> bool:
        while self.partitions > self._most_partitions:
            owner = next(iter(self._owners.values()))
            oldest = owner.fetching
            assert oldest is not None
            if oldest is newest or self._now() - oldest.used_at < EVICTION_S:
                return False
            self.close(owner)
        return True


def _asked(topics: Iterable[FetchTopic]) -> list[Asked]:
    return [((topic.topic, topic.topic_id, each.partition), each) for topic in topics for each in topic.partitions]
