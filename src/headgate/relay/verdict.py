"""What is known of an account, what to insist on, and what became of an event."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headgate.wire.atproto import Event, Frame, Reason

__all__ = ["LENIENT", "STRICT", "Accepted", "Mode", "NeedsDocument", "Policy", "Rejected", "RepoState", "Verdict"]


class Mode(enum.StrEnum):
    """What happens when a rule is broken."""

    STRICT = "strict"  # the event is rejected
    LENIENT = "lenient"  # it is accepted, with a warning
    OFF = "off"  # nobody looks


@dataclass(frozen=True, slots=True)
class Policy:
    """A mode for each rule that there can be two minds about.

    Everything else is always strict: frames, sizes, syntax, the hash of every block, the form of the commit, and that
    it is of the DID and rev of its event; and an event that is not newer than the last one is never sent on.
    """

    host: Mode = Mode.STRICT  # an event comes from the account's own host
    signature: Mode = Mode.STRICT
    future: Mode = Mode.STRICT  # a rev is not of the future
    records: Mode = Mode.STRICT  # the records are there, and no bigger than allowed
    prev_data: Mode = Mode.STRICT  # every commit but the first says what was before
    inversion: Mode = Mode.STRICT  # undoing the ops leads there
    chain: Mode = Mode.STRICT  # that is what was seen last
    inactive: Mode = Mode.STRICT  # an account that is not active is silent
    handle: Mode = Mode.LENIENT  # an #identity has the handle of the DID document, or loses it


STRICT: Final = Policy()
# What hosts of before Sync 1.1 can keep. Signatures are not for discussion.
LENIENT: Final = Policy(prev_data=Mode.LENIENT, inversion=Mode.LENIENT, chain=Mode.LENIENT, records=Mode.LENIENT)


@dataclass(frozen=True, slots=True)
class RepoState:
    """What was last accepted of an account: its rev, the root of its tree, and its status at its host."""

    rev: str | None = None
    data: bytes | None = None
    active: bool = True
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The event may go out: `resequence(verdict.frame, seq)`. `state` is to be kept.

    `frame` is not always the one that came in: a wrong handle has been taken out. `blocks` are the commit's, checked.
    """

    frame: Frame
    event: Event
    state: RepoState
    blocks: Mapping[bytes, bytes] = field(default_factory=dict)
    warnings: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The event must not go out."""

    reason: Reason
    detail: str = ""

    @property
    def out_of_sync(self) -> bool:
        """Is the event sound in itself, and only does not follow from what is known? A look at the host may help."""
        return self.reason is Reason.CHAIN_BREAK


@dataclass(frozen=True, slots=True)
class NeedsDocument:
    """The event waits for the DID document. Then `validate` is called again.

    With `refresh`, the one at hand does not fit or may be old: it is to be fetched, past every cache, and given with
    `fresh=True`, after which there is no third time.
    """

    did: str
    refresh: bool
    because: Reason | None = None


Verdict: TypeAlias = Accepted | Rejected | NeedsDocument
