"""Every field of every event with every wrong kind of value: only what all consumers can read is accepted."""

from __future__ import annotations

import pytest

from headgate.demo.network.poison import PoisonCase, poison
from headgate.demo.network.repository import Repository
from headgate.relay.validate import validate
from headgate.relay.verdict import LENIENT, STRICT, Accepted, Policy, Rejected, RepoState, Verdict
from headgate.wire.atproto import AtprotoError, parse_document, read_frame

HOST, NOW_US = "pds.example", 1_790_000_000_000_000
REPO = Repository("alice", HOST)
CASES = {case.name: case for case in poison(REPO, now_us=NOW_US)}


def judged(case: PoisonCase, policy: Policy) -> Verdict:
    state = RepoState(rev=REPO.rev, data=REPO.data)
    document = parse_document(REPO.did, REPO.document())
    try:
        frame = read_frame(case.message)
    except AtprotoError as error:
        return Rejected(error.reason)
    return validate(frame, host=HOST, state=state, document=document, now_us=NOW_US + 10, fresh=True, policy=policy)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_only_what_consumers_can_read_is_accepted(case: PoisonCase) -> None:
    verdict = judged(case, STRICT)
    assert isinstance(verdict, Accepted if case.is_sound else Rejected), verdict


def test_a_lenient_relay_is_strict_about_what_consumers_decode() -> None:
    """It may believe a host about its tree and its records; types of fields, roots and times are not up for belief."""
    lies = ("ops: empty list", "ops[].cid: link", "ops[].cid: null", "ops[].prev: link", "prevData: ", "since: null")
    refused = [case for case in CASES.values() if not case.is_sound and isinstance(judged(case, STRICT), Rejected)]
    let_through = {case.name for case in refused if isinstance(judged(case, LENIENT), Accepted)}
    assert all(name.removeprefix("#commit ").startswith(("record: ", *lies)) for name in let_through), let_through


def test_a_handle_that_is_none_is_taken_out() -> None:
    for name in ("text", "long text"):
        verdict = judged(CASES[f"#identity handle: {name}"], STRICT)
        assert isinstance(verdict, Accepted)
        assert "handle" not in verdict.frame.body
