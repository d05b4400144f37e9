"""Why bytes, an event or a claim of the AT Protocol is not taken: one list of reasons, and the error that carries one.

The reasons are also the labels of counters, so they are few, stable and each has one meaning. Most are lines of the
AT Protocol's "Sync", Message Validation Checklist.
"""

from __future__ import annotations

import enum

from headgate.model import Kind, ProtocolError

__all__ = ["AtprotoError", "Reason"]

_REMEDY = "Look at what the host sends: the reason names the rule of the AT Protocol that it breaks."


class Reason(enum.StrEnum):
    """The rule that was broken."""

    # The stream: after one of these the connection is not worth keeping.
    BAD_FRAME = "bad_frame"  # not two DAG-CBOR maps, or a header without `op`
    FRAME_TOO_BIG = "frame_too_big"
    # The event.
    BAD_CBOR = "bad_cbor"  # malformed, or not in the one form that DAG-CBOR allows
    BAD_EVENT = "bad_event"  # a field is missing or has the wrong type
    BAD_SYNTAX = "bad_syntax"  # a DID, TID, path, ... that is none
    BLOCKS_TOO_BIG = "blocks_too_big"
    RECORD_TOO_BIG = "record_too_big"
    TOO_MANY_OPS = "too_many_ops"
    BAD_OPS = "bad_ops"  # a path twice, or an op without the CIDs that its action needs
    FLAGGED = "flagged"  # `tooBig` or `rebase`, which are no longer allowed
    # The blocks.
    BAD_CAR = "bad_car"
    BLOCK_HASH = "block_hash"  # a block is not what its CID says
    MISSING_BLOCK = "missing_block"
    # The commit object.
    BAD_COMMIT = "bad_commit"
    DID_MISMATCH = "did_mismatch"  # the commit is of another account than the event
    REV_MISMATCH = "rev_mismatch"  # the commit has another rev than the event
    # The signature.
    BAD_KEY = "bad_key"
    BAD_SIGNATURE = "bad_signature"
    HIGH_S = "high_s"  # valid, but in the form that anybody could have made of the other one
    # The tree.
    BAD_NODE = "bad_node"
    OP_MISMATCH = "op_mismatch"  # the tree does not hold what an op says
    INVERSION = "inversion"  # undoing the ops does not lead to `prevData`
    NO_PREV_DATA = "no_prev_data"
    # The account.
    CHAIN_BREAK = "chain_break"  # `since` or `prevData` is not what was last seen
    OLD_REV = "old_rev"
    FUTURE_REV = "future_rev"
    REV_REUSED = "rev_reused"  # the same rev with other data
    INACTIVE = "inactive"  # a commit of an account that is not active
    WRONG_HOST = "wrong_host"  # the account lives at another host
    UNRESOLVED = "unresolved"  # the DID document cannot be had
    BAD_DOCUMENT = "bad_document"  # the DID document says too little, or is of another DID
    HANDLE = "handle"  # the handle is not the one of the DID document


class AtprotoError(ProtocolError, kind=Kind.PROTOCOL):
    """Something that the AT Protocol does not allow, with its `reason`."""

    def __init__(self, reason: Reason, message: str, *, remedy: str = _REMEDY, where: str = "") -> None:
        super().__init__(message, remedy=remedy, where=where)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.reason, self.message, self.remedy, self.where)


def _rebuild(reason: Reason, message: str, remedy: str, where: str) -> AtprotoError:
    return AtprotoError(reason, message, remedy=remedy, where=where)
