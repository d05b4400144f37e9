"""What becomes of a transactional id: the rules of Kafka's coordinator, without a clock or a database.

Each function takes what is stored and what is asked, and returns the change to make, or nothing if all is as it should
be; it raises `Refused` with Kafka's code. An open transaction ends with the change that says so, in one commit: the
states in which Kafka has decided on an end and not yet written it do not exist here.

    Empty -> Ongoing -> CompleteCommit | CompleteAbort -> Ongoing ...

An epoch fences: of two producers with one transactional id only the one that came last may go on. With the first
protocol it rises when a producer begins, with the second (KIP-890) with every transaction as well.

Specification: KIP-98, KIP-360 (a producer that lost its place goes on), KIP-588 (after a timeout), KIP-890.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = [
    "LAST_EPOCH",
    "Asked",
    "Change",
    "Identity",
    "Marker",
    "State",
    "Transactional",
    "aborted",
    "check_producer",
    "ended",
    "initialized",
    "needs_new_id",
]

LAST_EPOCH = 32767  # never a producer's: markers that fence the epoch before may have it


class State(enum.StrEnum):
    """The states of a transactional id, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


class Identity(NamedTuple):
    """The id and the epoch of a producer."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


@dataclass(frozen=True, slots=True)
class Transactional:
    """A transactional id, as it is stored. `last` is what its producer was before, for one who did not hear of that."""

    transactional_id: str
    version: int
    identity: Identity
    last: Identity
    timeout_ms: int
    state: State
    is_implicit: bool
    started_ms: int
    parts: tuple[int, ...]
    groups: tuple[str, ...]


class Asked(NamedTuple):
    """What InitProducerId asks for."""

    timeout_ms: int
    expected: Identity | None  # who the producer thinks it is
    is_implicit: bool  # whether it adds partitions by writing to them


class Marker(NamedTuple):
    """How an open transaction ends."""

    identity: Identity
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What a transactional id becomes, and how its open transaction ends, if there is one."""

    state: State
    identity: Identity
    last: Identity
    timeout_ms: int
    is_implicit: bool
    marker: Marker | None = None


def needs_new_id(known: Transactional | None) -> bool:
    """Whether the next epoch is that of another producer id."""
    return known is None or known.identity.epoch >= LAST_EPOCH - 1


def _next(known: Transactional, new_id: int | None) -> Identity:
    if needs_new_id(known):
        assert new_id is not None
        return Identity(new_id, 0)
    return Identity(known.identity.producer_id, known.identity.epoch + 1)


def _fence(known: Transactional) -> Identity:
    """The epoch behind all that a producer has had."""
    return Identity(known.identity.producer_id, min(known.identity.epoch + 1, LAST_EPOCH))


def initialized(known: Transactional | None, asked: Asked, new_id: int | None) -> Change | None:
    """A producer begins: whoever was there before is fenced, and its open transaction aborted."""
    if known is None:
        assert new_id is not None
        return Change(State.EMPTY, Identity(new_id, 0), NOBODY, asked.timeout_ms, asked.is_implicit)
    is_open = known.state is State.ONGOING
    if asked.expected is not None:
        # Whoever did not hear the answer asks again; but not once somebody has used it.
        if asked.expected == known.last and not is_open and known.identity.epoch < LAST_EPOCH:
            return None
        is_late = asked.expected == known.last and not is_open
        if asked.expected != known.identity and not is_late:
            raise Refused(ErrorCode.PRODUCER_FENCED, "another producer has this transactional id now")
    return Change(
        State.EMPTY,
        _next(known, new_id),
        asked.expected or NOBODY,
        asked.timeout_ms,
        asked.is_implicit,
        Marker(_fence(known), is_commit=False) if is_open else None,
    )


def check_producer(known: Transactional | None, identity: Identity) -> Transactional:
    """The state of a transactional id, for the producer that has it."""
    if known is None or identity.producer_id not in (known.identity.producer_id, known.last.producer_id):
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "another producer id has this transactional id")
    if identity != known.identity:
        raise Refused(ErrorCode.PRODUCER_FENCED, "another producer has this transactional id now")
    return known


def ended(
    known: Transactional | None, identity: Identity, new_id: int | None, *, is_commit: bool, bumps: bool
) -> Change | None:
    """A producer ends its transaction. `bumps`: by the second protocol, in which each has an epoch of its own."""
    wanted = State.COMMITTED if is_commit else State.ABORTED
    if bumps and known is not None and identity == known.last and known.state in (State.COMMITTED, State.ABORTED):
        if known.state is not wanted:
            raise Refused(ErrorCode.INVALID_TXN_STATE, "the transaction has ended otherwise")
        return None  # it did not hear the answer
    known = check_producer(known, identity)
    if known.state is State.ONGOING:
        if not bumps:
            marker = Marker(identity, is_commit)
            return Change(wanted, identity, known.last, known.timeout_ms, known.is_implicit, marker)
        marker = Marker(_fence(known), is_commit)
        return Change(wanted, _next(known, new_id), identity, known.timeout_ms, known.is_implicit, marker)
    if bumps and not is_commit:  # nothing has arrived: what is still on its way comes too late
        return Change(State.ABORTED, _next(known, new_id), identity, known.timeout_ms, known.is_implicit)
    if bumps or known.state is not wanted:
        raise Refused(ErrorCode.INVALID_TXN_STATE, f"there is no transaction to end: {known.state}")
    return None


def aborted(known: Transactional) -> Change:
    """Somebody else ends an open transaction. Its producer may find its place again, if nobody else has it."""
    assert known.state is State.ONGOING
    fence = _fence(known)
    return Change(State.ABORTED, fence, known.identity, known.timeout_ms, known.is_implicit, Marker(fence, False))
