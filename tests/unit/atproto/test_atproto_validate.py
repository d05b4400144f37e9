"""The validator: an honest account is believed, every lie is found out, and each rule has its modes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.demo.network.liars import LIAR_HOST, LIES, Lie
from headgate.demo.network.repository import Repository, create, delete, update
from headgate.relay.validate import FUTURE_US, validate
from headgate.relay.verdict import (
    LENIENT,
    STRICT,
    Accepted,
    Mode,
    NeedsDocument,
    Policy,
    Rejected,
    RepoState,
    Verdict,
)
from headgate.wire.atproto import (
    AtprotoError,
    Identity,
    Kind,
    Reason,
    parse_document,
    read_frame,
    resequence,
    tid_of,
    tid_us,
    write_frame,
)

HOST = "pds.example"
NOW_US = 1_790_000_000_000_000


class Account:
    """A repository, and what a relay knows of it."""

    def __init__(self, name: str = "alice", curve: str = "k256") -> None:
        self.repo = Repository(name, HOST, curve=curve)
        self.document = parse_document(self.repo.did, self.repo.document())
        self.state: RepoState | None = None
        self.take(self.repo.commit([], seq=1, now_us=NOW_US))
        writes = [create(f"app.test.note/{tid_of(NOW_US - n)}", {"n": n}) for n in range(60)]
        self.take(self.repo.commit(writes, seq=2, now_us=NOW_US))

    def judge(self, message: bytes, *, host: str = HOST, fresh: bool = True, policy: Policy = STRICT) -> Verdict:
        return validate(
            read_frame(message),
            host=host,
            state=self.state,
            document=self.document,
            now_us=NOW_US,
            fresh=fresh,
            policy=policy,
        )

    def take(self, message: bytes) -> Accepted:
        verdict = self.judge(message)
        assert isinstance(verdict, Accepted), verdict
        self.state = verdict.state
        return verdict

    def next_commit(self) -> bytes:
        """An update, a delete and two creates, not yet seen by the relay."""
        first, second = f"app.test.note/{tid_of(NOW_US)}", f"app.test.note/{tid_of(NOW_US - 30)}"
        new = [create(f"app.test.note/{tid_of(NOW_US + n)}", {"new": n}) for n in (1, 2)]
        writes = [update(first, {"n": "changed"}), delete(second), *new]
        return self.repo.commit(writes, seq=3, now_us=NOW_US)


@pytest.fixture(params=["k256", "p256"])
def account(request: pytest.FixtureRequest) -> Account:
    return Account(curve=request.param)


def reason(verdict: Verdict) -> Reason:
    assert isinstance(verdict, Rejected), verdict
    return verdict.reason


def test_an_honest_commit_is_accepted_and_its_state_kept(account: Account) -> None:
    verdict = account.take(account.next_commit())
    assert verdict.state == RepoState(rev=account.repo.rev, data=account.repo.data)
    assert verdict.warnings == ()
    assert account.repo.head in verdict.blocks


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_every_lie_is_found_out(account: Account, lie: Lie) -> None:
    forged = lie.tell(account.repo, account.next_commit())
    assert reason(judged(account, forged, lie.host or HOST)) is lie.reason


def judged(account: Account, message: bytes, host: str) -> Verdict:
    """The verdict, with what read_frame refuses as one, too: there it is the connection that ends."""
    try:
        return account.judge(message, host=host)
    except AtprotoError as error:
        return Rejected(error.reason)


def test_a_lie_leaves_the_frame_it_was_made_of_alone(account: Account) -> None:
    message = account.next_commit()
    for lie in LIES.values():
        lie.tell(account.repo, message)
    account.take(message)


def test_a_commit_waits_for_the_document(account: Account) -> None:
    document, account.document = account.document, None  # type: ignore[assignment]
    message = account.next_commit()
    assert account.judge(message) == NeedsDocument(account.repo.did, refresh=False)
    account.document = document
    account.take(message)


def test_junk_costs_no_lookup(account: Account) -> None:
    account.document = None  # type: ignore[assignment]
    message = account.next_commit()
    for name in ("old_rev", "future_rev", "too_many_ops", "too_big_flag", "bad_path"):
        assert reason(account.judge(LIES[name].tell(account.repo, message))) is LIES[name].reason


@pytest.mark.parametrize("name", ["another_key", "wrong_host"])
def test_the_document_is_fetched_anew_once_before_a_commit_is_rejected(account: Account, name: str) -> None:
    lie = LIES[name]
    forged, host = lie.tell(account.repo, account.next_commit()), lie.host or HOST
    expected = NeedsDocument(account.repo.did, refresh=True, because=lie.reason)
    assert account.judge(forged, host=host, fresh=False) == expected
    assert reason(account.judge(forged, host=host, fresh=True)) is lie.reason


def test_an_account_that_moved_is_believed_at_its_new_host(account: Account) -> None:
    message = account.next_commit()
    assert isinstance(account.judge(message, host="new.example", fresh=False), NeedsDocument)
    account.document = replace(account.document, pds="new.example")
    assert isinstance(account.judge(message, host="new.example"), Accepted)


def test_a_document_without_key_or_host_is_said_so(account: Account) -> None:
    message, whole = account.next_commit(), account.document
    for part in ("key", "pds"):
        account.document = replace(whole, **{part: None})  # type: ignore[arg-type]
        assert reason(account.judge(message)) is Reason.BAD_DOCUMENT


def test_a_repeated_commit_is_old(account: Account) -> None:
    message = account.next_commit()
    account.take(message)
    assert reason(account.judge(message)) is Reason.OLD_REV


def test_a_missed_commit_breaks_the_chain_until_a_sync(account: Account) -> None:
    account.next_commit()  # lost
    later = account.repo.commit([create("app.test.note/later", {})], seq=9, now_us=NOW_US)
    verdict = account.judge(later)
    assert reason(verdict) is Reason.CHAIN_BREAK
    assert isinstance(verdict, Rejected)
    assert verdict.out_of_sync
    account.take(account.repo.sync(seq=10, now_us=NOW_US))
    account.take(account.repo.commit([create("app.test.note/last", {})], seq=11, now_us=NOW_US))


def test_an_account_is_taken_in_the_middle_of_its_life(account: Account) -> None:
    account.state = None
    account.take(account.next_commit())


def test_the_first_commit_may_bring_records_and_must_bring_all_of_them() -> None:
    repo = Repository("bob", HOST)
    document = parse_document(repo.did, repo.document())
    message = repo.commit([create(f"app.test.note/{n}", {}) for n in range(5)], seq=1, now_us=NOW_US)
    body = read_frame(message).body
    assert "prevData" not in body
    short = write_frame(Kind.COMMIT, body | {"ops": body["ops"][1:]})
    for frame, expected in ((message, Accepted), (short, Rejected)):
        verdict = validate(read_frame(frame), host=HOST, state=None, document=document, now_us=NOW_US)
        assert isinstance(verdict, expected)


def test_a_record_may_not_be_too_big(account: Account) -> None:
    message = account.repo.commit([create("app.test.note/big", {"x": "x" * 1_000_000})], seq=9, now_us=NOW_US)
    assert reason(account.judge(message)) is Reason.RECORD_TOO_BIG


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("omitted_op", "inversion"),
        ("wrong_path", "inversion"),
        ("missing_node", "inversion"),
        ("path_twice", "inversion"),
        ("no_prev_data", "prev_data"),
        ("wrong_since", "chain"),
        ("missing_record", "records"),
        ("future_rev", "future"),
        ("another_key", "signature"),
        ("high_s", "signature"),
        ("wrong_host", "host"),
    ],
)
def test_each_rule_can_be_lenient_or_off(account: Account, name: str, field: str) -> None:
    lie = LIES[name]
    forged, host = lie.tell(account.repo, account.next_commit()), lie.host or HOST
    for mode, warnings in ((Mode.LENIENT, (lie.reason,)), (Mode.OFF, ())):
        policy = replace(STRICT, **{field: mode})
        verdict = account.judge(forged, host=host, policy=policy)
        assert isinstance(verdict, Accepted), verdict
        assert verdict.warnings == warnings


def test_leniency_does_not_reach_the_signature(account: Account) -> None:
    message = account.next_commit()
    assert isinstance(account.judge(LIES["omitted_op"].tell(account.repo, message), policy=LENIENT), Accepted)
    forged = LIES["another_key"].tell(account.repo, message)
    assert reason(account.judge(forged, policy=LENIENT)) is Reason.BAD_SIGNATURE


def test_the_clock_of_a_host_may_be_five_minutes_ahead() -> None:
    for early, expected in ((FUTURE_US, Accepted), (FUTURE_US + 1, Rejected)):
        account = Account()
        message = account.repo.commit([create("app.test.note/soon", {})], seq=9, now_us=NOW_US + early)
        assert isinstance(account.judge(message), expected)


class TestSync:
    def test_it_sets_the_state(self, account: Account) -> None:
        account.next_commit()
        assert account.take(account.repo.sync(seq=5, now_us=NOW_US)).state.data == account.repo.data

    def test_it_may_repeat_the_state_but_not_contradict_it(self, account: Account) -> None:
        message = account.repo.sync(seq=5, now_us=NOW_US)
        account.take(message)
        assert account.state is not None
        account.state = replace(account.state, data=b"another")
        assert reason(account.judge(message)) is Reason.REV_REUSED

    def test_it_does_not_roll_back(self, account: Account) -> None:
        message = account.repo.sync(seq=5, now_us=NOW_US)
        account.take(account.next_commit())
        assert reason(account.judge(message)) is Reason.OLD_REV

    def test_it_is_of_its_account_rev_and_key(self, account: Account) -> None:
        message = account.repo.sync(seq=5, now_us=NOW_US)
        body = read_frame(message).body
        later = write_frame(Kind.SYNC, body | {"rev": tid_of(tid_us(body["rev"]) + 1)})
        assert reason(account.judge(later)) is Reason.REV_MISMATCH
        other = Account("mallory", account.repo.key.public.curve)
        account.document = replace(account.document, key=other.document.key)
        assert reason(account.judge(message)) is Reason.BAD_SIGNATURE
        assert reason(account.judge(message, host=LIAR_HOST)) is Reason.WRONG_HOST

    def test_it_is_small(self, account: Account) -> None:
        body = read_frame(account.repo.sync(seq=5, now_us=NOW_US)).body
        message = write_frame(Kind.SYNC, body | {"blocks": body["blocks"] + bytes(10_000)})
        assert reason(account.judge(message)) is Reason.BLOCKS_TOO_BIG


class TestIdentity:
    def test_it_is_judged_by_a_fresh_document_only(self, account: Account) -> None:
        message = account.repo.identity(seq=5, now_us=NOW_US)
        assert account.judge(message, fresh=False) == NeedsDocument(account.repo.did, refresh=True)
        assert account.take(message).frame.body["handle"] == "alice.test"

    def test_a_false_handle_is_taken_out(self, account: Account) -> None:
        verdict = account.take(account.repo.identity(seq=5, now_us=NOW_US, handle="famous.test"))
        assert verdict.warnings == (Reason.HANDLE,)
        assert isinstance(verdict.event, Identity)
        assert verdict.event.handle is None
        assert "handle" not in read_frame(resequence(verdict.frame, 77)).body

    def test_it_comes_from_the_host_of_the_account(self, account: Account) -> None:
        message = account.repo.identity(seq=5, now_us=NOW_US)
        assert reason(account.judge(message, host=LIAR_HOST)) is Reason.WRONG_HOST


class TestAccount:
    def test_its_status_is_kept_and_an_inactive_account_is_silent(self, account: Account) -> None:
        account.take(account.repo.account(seq=5, now_us=NOW_US, active=False, status="deactivated"))
        assert account.state is not None
        assert (account.state.active, account.state.status) == (False, "deactivated")
        message = account.next_commit()
        assert reason(account.judge(message)) is Reason.INACTIVE
        account.take(account.repo.account(seq=6, now_us=NOW_US))
        account.take(message)

    def test_another_host_cannot_end_it(self, account: Account) -> None:
        message = account.repo.account(seq=5, now_us=NOW_US, active=False, status="deleted")
        assert reason(account.judge(message, host=LIAR_HOST)) is Reason.WRONG_HOST


def test_accounts_of_unknown_methods_are_never_looked_up(account: Account) -> None:
    body = read_frame(account.repo.account(seq=5, now_us=NOW_US)).body
    message = write_frame(Kind.ACCOUNT, body | {"did": "did:key:zQ3sh"})
    assert reason(account.judge(message)) is Reason.BAD_SYNTAX


def test_what_is_no_event_of_an_account_is_rejected(account: Account) -> None:
    message = write_frame(Kind.INFO, {"name": "OutdatedCursor"})
    assert reason(account.judge(message)) is Reason.BAD_EVENT
