"""What both kinds of groups have in common: members with deadlines, answers to give, changes to keep.

A group is a state machine without I/O and without a clock. Whoever drives it passes the time in, hands a *ticket* to
each request that may have to wait, and after every call takes the changes, stores them, and then gives the answers: an
answer never leaves before what it says is durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from headgate.gateway.groups.settings import GroupSettings
from headgate.wire.kafka import Body
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["Changes", "Client", "Group", "Member", "Stored", "Ticket"]

Ticket: TypeAlias = object
"""Stands for a request that waits; only the driver knows what it is."""


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request, and the version of its API."""

    id: str
    host: str
    version: int


class Member(msgspec.Struct, kw_only=True):
    """What every member has, as it is stored."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


_M = TypeVar("_M", bound=Member)


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to be stored: the group's head, the members that changed, and those that are gone."""

    kind: str
    state: str
    protocol_type: str
    generation: int
    head: bytes
    members: dict[str, tuple[str | None, str, str, bytes]]  # instance id, client id, host, everything
    gone: list[str]


@dataclass(frozen=True, slots=True)
class Stored:
    """A group as it was stored."""

    kind: str
    head: bytes
    members: list[bytes]


class Group(ABC, Generic[_M]):
    """One group. The members are in the order in which they came."""

    kind: ClassVar[str]

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.members: dict[str, _M] = {}
        self._instances: dict[str, str] = {}
        self._deadlines: dict[str, float] = {}  # when a member's session ends
        self._answers: list[tuple[Ticket, Body]] = []
        self._touched: set[str] = set()
        self._is_unsaved = False

    @property
    @abstractmethod
    def state(self) -> str:
        """The group's state, by the protocol's name."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Grows with every change of the assignment."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """What the members are to each other; `consumer` for consumers."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if the group were read again from where it is stored."""
        return self.is_empty

    @abstractmethod
    def tick(self, now: float) -> None:
        """Do what is due."""

    @abstractmethod
    def next_deadline(self) -> float | None:
        """When `tick` should be called next."""

    @abstractmethod
    def waiting(self) -> list[Ticket]:
        """Every request that waits for an answer."""

    @abstractmethod
    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, version: int, now: float) -> None:
        """Raise `Refused` unless this member may store offsets."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise `Refused` unless this member may ask for offsets."""

    @abstractmethod
    def subscribed(self) -> set[str]:
        """The topics that some member wants."""

    @abstractmethod
    def _head(self) -> bytes:
        """What is stored of the group besides its members."""

    def take_answers(self) -> list[tuple[Ticket, Body]]:
        """The answers that may be given once the changes are stored."""
        answers, self._answers = self._answers, []
        return answers

    def take_changes(self) -> Changes | None:
        """What has to be stored now, if anything."""
        if not self._is_unsaved:
            return None
        changes = Changes(
            self.kind,
            self.state,
            self.protocol_type,
            self.generation,
            self._head(),
            {key: _row(self.members[key]) for key in self._touched if key in self.members},
            [key for key in self._touched if key not in self.members],
        )
        self._touched.clear()
        self._is_unsaved = False
        return changes

    def save_new(self) -> None:
        """Have a group stored that nobody has joined, because somebody stores offsets in it."""
        self._is_unsaved = True

    def _find(self, member_id: str, instance_id: str | None) -> _M:
        """The member that sends a request; a stranger is refused, and so is one whose place another has taken."""
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is not None and holder != member_id:
                raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"another member is {instance_id!r} now")
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member")
        return member

    def _put(self, member: _M) -> None:
        self.members[member.member_id] = member
        self._touched.add(member.member_id)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def _drop(self, member: _M) -> None:
        del self.members[member.member_id]
        self._touched.add(member.member_id)
        self._deadlines.pop(member.member_id, None)
        if member.instance_id is not None and self._instances.get(member.instance_id) == member.member_id:
            del self._instances[member.instance_id]

    def _overdue(self, now: float) -> Iterator[_M]:
        """Members whose session has ended."""
        for member_id in [key for key, deadline in self._deadlines.items() if deadline <= now]:
            if member_id in self.members:
                yield self.members[member_id]


def _row(member: Member) -> tuple[str | None, str, str, bytes]:
    return member.instance_id, member.client_id, member.client_host, msgspec.json.encode(member)
