"""The events of `com.atproto.sync.subscribeRepos`, as values.

CIDs are their 36 bytes, `blocks` a CAR as it came. Times are texts as the host wrote them.

Specification: AT Protocol, "Sync", Repository Event Stream; the lexicon `com.atproto.sync.subscribeRepos`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Account", "Action", "Commit", "ErrorNote", "Event", "Identity", "Info", "Kind", "Op", "Sync"]


class Kind(enum.StrEnum):
    """What a frame is."""

    COMMIT = "#commit"
    SYNC = "#sync"
    IDENTITY = "#identity"
    ACCOUNT = "#account"
    INFO = "#info"
    # "Event Stream", Framing: an error ends the connection; unknown ones are passed over.
    ERROR = "error"
    UNKNOWN = "unknown"  # from a later version of the protocol


class Action(enum.StrEnum):
    """What an op does to its path."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Op:
    """One change of a record. `cid` is the new one, `prev` the one before."""

    action: Action
    path: str
    cid: bytes | None
    prev: bytes | None

    @property
    def collection(self) -> str:
        return self.path.partition("/")[0]

    @property
    def rkey(self) -> str:
        return self.path.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Commit:
    """Records of an account changed."""

    did: str
    seq: int
    rev: str
    since: str | None
    time: str
    commit: bytes
    ops: tuple[Op, ...]
    blocks: bytes
    prev_data: bytes | None
    flagged: bool  # `tooBig` or `rebase` is set


@dataclass(frozen=True, slots=True)
class Sync:
    """The state of an account, with no word of how it came about."""

    did: str
    seq: int
    rev: str
    time: str
    blocks: bytes


@dataclass(frozen=True, slots=True)
class Identity:
    """The DID document or the handle of an account may have changed."""

    did: str
    seq: int
    time: str
    handle: str | None


@dataclass(frozen=True, slots=True)
class Account:
    """An account's status at its host."""

    did: str
    seq: int
    time: str
    active: bool
    status: str | None


@dataclass(frozen=True, slots=True)
class Info:
    """A note of the host, such as OutdatedCursor."""

    name: str
    message: str | None


@dataclass(frozen=True, slots=True)
class ErrorNote:
    """Why the host ends the stream, such as FutureCursor."""

    name: str
    message: str | None


Event: TypeAlias = Commit | Sync | Identity | Account | Info | ErrorNote
