"""Frames that the relay writes itself: the combined status of an account, and the #sync of a commit after a gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from headgate.relay.store import AccountRow
from headgate.relay.verdict import Accepted, Policy
from headgate.relay.workers import Question, decide
from headgate.wire.atproto import Commit, Frame, Kind, read_car, read_event, read_frame, write_car, write_frame

__all__ = ["account_frame", "resynced"]


def account_frame(row: AccountRow, body: Mapping[str, Any]) -> Frame:
    """An #account with what its host and this relay say of it together; on top of the host's, if there is one."""
    active, status = row.combined
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields = {"seq": 1, "did": row.did, "time": now} | dict(body) | {"active": active}
    fields.pop("status", None)
    return _frame(Kind.ACCOUNT, fields | ({} if status is None else {"status": status}))


def resynced(question: Question, policy: Policy) -> Accepted | None:
    """For a commit that is sound but has a gap before it: its #sync, which tells consumers that they missed something.

    None if there is no gap: then the commit is a lie about what was before.
    """
    event, state = read_event(question.frame), question.state
    if not isinstance(event, Commit) or state is None or (event.since or "") <= (state.rev or ""):
        return None
    verdict = decide(replace(question, frame=_sync_of(question.frame, event), fresh=True), policy)
    return verdict if isinstance(verdict, Accepted) else None


def _sync_of(frame: Frame, event: Commit) -> Frame:
    """The state that a commit leads to, without the way."""
    block = read_car(event.blocks).blocks[event.commit]
    return _frame(
        Kind.SYNC,
        {
            "did": event.did,
            "rev": event.rev,
            "seq": frame.seq,
            "time": event.time,
            "blocks": write_car(event.commit, [(event.commit, block)]),
        },
    )


def _frame(kind: Kind, fields: dict[str, Any]) -> Frame:
    return read_frame(write_frame(kind, fields))
