"""Decide on an event, by everything that is known: a pure function of its arguments.

    verdict = validate(frame, host="pds.example", state=state, document=document, now_us=now_us)
    match verdict:
        case Accepted(frame, event, state): ...      # keep the state, send resequence(frame, seq)
        case Rejected(reason): ...                   # count it
        case NeedsDocument(did, refresh): ...        # resolve, then ask again; fresh=True after a refresh

Cheap checks come first, so that junk costs no lookup and no signature. An event whose document is not at hand waits
for it: nothing goes out unverified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.relay.verdict import STRICT, Accepted, Mode, NeedsDocument, Policy, Rejected, RepoState, Verdict
from headgate.wire.atproto import (
    Account,
    AtprotoError,
    Car,
    Commit,
    DidDocument,
    Frame,
    Identity,
    Reason,
    RepoCommit,
    Sync,
    cbor,
    check_ops,
    invert,
    is_handle,
    is_supported,
    read_car,
    read_commit,
    read_event,
    tid_us,
    without_handle,
)
from headgate.wire.atproto.cid import CBOR_PREFIX
from headgate.wire.atproto.frames import MAX_RECORD_BYTES
from headgate.wire.atproto.mst_node import EMPTY_ROOT

__all__ = ["FUTURE_US", "validate"]

FUTURE_US = 5 * 60 * 1_000_000  # how far the clock of a host may be ahead
# A newer document may put these right.
_RESOLVABLE = frozenset((Reason.WRONG_HOST, Reason.BAD_SIGNATURE, Reason.BAD_DOCUMENT))
_UNKNOWN = RepoState()


def validate(
    frame: Frame,
    *,
    host: str,
    state: RepoState | None,
    document: DidDocument | None,
    now_us: int,
    fresh: bool = False,
    policy: Policy = STRICT,
) -> Verdict:
    """What becomes of a #commit, #sync, #identity or #account.

    `host` is where the frame came from, `state` what was last accepted of its account, `document` the DID document as
    far as it is known. `fresh` says that it was fetched for this event, or so lately that fetching it again is no use.
    """
    case = _Case(host, state or _UNKNOWN, document, fresh, now_us, policy, [])
    try:
        event = read_event(frame)
        if isinstance(event, Commit):
            return _commit(case, frame, event)
        if isinstance(event, Sync):
            return _sync(case, frame, event)
        if isinstance(event, Identity):
            return _identity(case, frame, event)
        if isinstance(event, Account):
            return _account(case, frame, event)
    except _DocumentWanted:
        return NeedsDocument(frame.did, refresh=False)
    except AtprotoError as error:
        if error.reason in _RESOLVABLE and document is not None and not fresh:
            return NeedsDocument(frame.did, refresh=True, because=error.reason)
        return Rejected(error.reason, error.message)
    return Rejected(Reason.BAD_EVENT, "not an event of an account")


class _DocumentWanted(Exception):  # noqa: N818  a question, not a fault
    """The case cannot go on without the DID document."""


@dataclass(frozen=True, slots=True)
class _Case:
    """All that is known, and the warnings so far."""

    host: str
    state: RepoState
    document: DidDocument | None
    fresh: bool
    now_us: int
    policy: Policy
    warnings: list[Reason]

    def rule(self, mode: Mode, check: Callable[[], None]) -> bool:
        """Look after a rule in its mode. Was it kept?"""
        if mode is Mode.OFF:
            return True
        try:
            check()
        except AtprotoError as error:
            if mode is Mode.STRICT or (error.reason in _RESOLVABLE and not self.fresh):
                raise
            self.warnings.append(error.reason)
            return False
        return True

    def accepted(self, frame: Frame, event: Commit | Sync | Identity | Account, state: RepoState) -> Accepted:
        return Accepted(frame, event, state, warnings=tuple(self.warnings))


def _commit(case: _Case, frame: Frame, event: Commit) -> Verdict:
    if event.flagged:
        raise AtprotoError(Reason.FLAGGED, "tooBig and rebase are no longer allowed")
    policy = case.policy
    _check_rev(case, event.rev)
    if case.state.rev is not None and event.rev == case.state.rev:
        raise AtprotoError(Reason.OLD_REV, f"rev {event.rev} has been seen")
    case.rule(policy.inactive, lambda: _check_active(case.state))
    _check_host(case, event.did)
    car = read_car(event.blocks)
    if _root(car) != event.commit:
        raise AtprotoError(Reason.BAD_CAR, "the root of the blocks is another than the commit")
    blocks = car.blocks
    commit = _signed(case, event, blocks.get(event.commit))
    case.rule(policy.records, lambda: _check_records(event, blocks))
    case.rule(policy.prev_data, lambda: _check_prev_data(event))
    if event.prev_data is not None or event.since is None:
        case.rule(policy.inversion, lambda: _check_inversion(event, commit, blocks))
    case.rule(policy.chain, lambda: _check_chain(case.state, event))
    state = replace(case.state, rev=commit.rev, data=commit.data)
    return Accepted(frame, event, state, blocks, tuple(case.warnings))


def _sync(case: _Case, frame: Frame, event: Sync) -> Verdict:
    _check_rev(case, event.rev)
    case.rule(case.policy.inactive, lambda: _check_active(case.state))
    _check_host(case, event.did)
    car = read_car(event.blocks)
    root = _root(car)
    commit = _signed(case, event, car.blocks.get(root))
    if event.rev == case.state.rev and commit.data != case.state.data:
        raise AtprotoError(Reason.REV_REUSED, f"rev {event.rev} has been seen with other data")
    return case.accepted(frame, event, replace(case.state, rev=commit.rev, data=commit.data))


def _identity(case: _Case, frame: Frame, event: Identity) -> Verdict:
    """It says that the document may have changed, so only a fresh one can judge it."""
    _check_supported(event.did)
    if not case.fresh:
        return NeedsDocument(event.did, refresh=True)
    _check_host(case, event.did)
    is_one = event.handle is None or is_handle(event.handle)
    if not (case.rule(case.policy.handle, lambda: _check_handle(case.document, event)) and is_one):
        return case.accepted(without_handle(frame), replace(event, handle=None), case.state)
    return case.accepted(frame, event, case.state)


def _account(case: _Case, frame: Frame, event: Account) -> Verdict:
    _check_host(case, event.did)
    return case.accepted(frame, event, replace(case.state, active=event.active, status=event.status))


def _check_supported(did: str) -> None:
    if not is_supported(did):
        raise AtprotoError(Reason.BAD_SYNTAX, f"{did[:80]} is of no DID method that accounts have")


def _check_rev(case: _Case, rev: str) -> None:
    if case.state.rev is not None and rev < case.state.rev:
        raise AtprotoError(Reason.OLD_REV, f"rev {rev} is before {case.state.rev}")
    case.rule(case.policy.future, lambda: _check_future(rev, case.now_us))


def _check_future(rev: str, now_us: int) -> None:
    if tid_us(rev) > now_us + FUTURE_US:
        raise AtprotoError(Reason.FUTURE_REV, f"rev {rev} is of the future")


def _check_active(state: RepoState) -> None:
    if not state.active:
        raise AtprotoError(Reason.INACTIVE, f"the account is {state.status or 'not active'}")


def _check_host(case: _Case, did: str) -> None:
    """Every event waits for the document here, even if nobody looks at the host."""
    _check_supported(did)
    document = case.document
    if document is None:
        raise _DocumentWanted

    def check() -> None:
        if document.pds is None:
            raise AtprotoError(Reason.BAD_DOCUMENT, "the DID document names no host")
        if document.pds != case.host:
            raise AtprotoError(Reason.WRONG_HOST, f"the account lives at {document.pds}, not at {case.host}")

    case.rule(case.policy.host, check)


def _root(car: Car) -> bytes:
    """The one root: consumers begin with it, and some refuse a second one."""
    if len(car.roots) != 1:
        raise AtprotoError(Reason.BAD_CAR, f"blocks have one root, the commit, and not {len(car.roots)}")
    return car.roots[0]


def _signed(case: _Case, event: Commit | Sync, block: bytes | None) -> RepoCommit:
    """The commit object of an event: of the same account and rev, and signed by the account's key."""
    if block is None:
        raise AtprotoError(Reason.MISSING_BLOCK, "the commit is not among the blocks")
    commit = read_commit(block)
    if commit.did != event.did:
        raise AtprotoError(Reason.DID_MISMATCH, f"the commit is of {commit.did[:80]}")
    if commit.rev != event.rev:
        raise AtprotoError(Reason.REV_MISMATCH, f"the commit has rev {commit.rev}, its event {event.rev}")
    case.rule(case.policy.signature, lambda: _check_signature(case.document, commit))
    return commit


def _check_signature(document: DidDocument | None, commit: RepoCommit) -> None:
    if document is None or document.key is None:
        raise AtprotoError(Reason.BAD_DOCUMENT, "the DID document has no signing key that can be read")
    document.key.verify(commit.signature, commit.unsigned)


def _check_records(event: Commit, blocks: dict[bytes, bytes]) -> None:
    for op in event.ops:
        if op.cid is not None:
            record = blocks.get(op.cid)
            if record is None:
                raise AtprotoError(Reason.MISSING_BLOCK, f"the record of {op.path} is not among the blocks")
            if len(record) > MAX_RECORD_BYTES:
                raise AtprotoError(Reason.RECORD_TOO_BIG, f"the record of {op.path} has {len(record)} bytes")
            if not op.cid.startswith(CBOR_PREFIX):
                raise AtprotoError(Reason.BAD_CBOR, f"the record of {op.path} is no DAG-CBOR by its CID")
            cbor.check_depth(cbor.decode_map(record))


def _check_prev_data(event: Commit) -> None:
    if event.prev_data is None and event.since is not None:
        raise AtprotoError(Reason.NO_PREV_DATA, "a commit that is not the first says nothing of what was before")


def _check_inversion(event: Commit, commit: RepoCommit, blocks: dict[bytes, bytes]) -> None:
    check_ops(event.ops)
    if invert(commit.data, blocks, event.ops) != (event.prev_data or EMPTY_ROOT):
        raise AtprotoError(Reason.INVERSION, "undoing the ops does not lead to what is said to have been before")


def _check_chain(state: RepoState, event: Commit) -> None:
    if state.rev is None:
        return
    if event.since != state.rev or (event.prev_data is not None and event.prev_data != state.data):
        raise AtprotoError(Reason.CHAIN_BREAK, f"since {event.since}, but rev {state.rev} was the last one seen")


def _check_handle(document: DidDocument | None, event: Identity) -> None:
    if event.handle is not None and (document is None or event.handle.lower() != document.handle):
        raise AtprotoError(Reason.HANDLE, "the handle is not the one of the DID document")
