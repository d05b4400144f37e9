"""The books: they add up, and remember why."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from headgate.relay.ledger import DropReason, Ledger
from headgate.relay.store import AccountRow

FATES: list[Callable[[Ledger, str], None]] = [
    lambda ledger, host: ledger.accepted(host, ("inversion",)),
    lambda ledger, host: ledger.ignored(host),
    lambda ledger, host: ledger.dropped(host, DropReason.REPEATED_SEQ, did="did:plc:x"),
    lambda ledger, host: ledger.abandoned(host),
]


@given(fates=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([*FATES, None]))))
def test_the_books_balance_whatever_becomes_of_frames(
    fates: list[tuple[str, Callable[[Ledger, str], None] | None]],
) -> None:
    ledger = Ledger()
    for host, fate in fates:
        ledger.received(host)
        if fate is not None:
            fate(ledger, host)
        assert ledger.total.balanced
    books = ledger.hosts().values()
    assert all(book.balanced for book in books)
    assert sum(book.received for book in books) == ledger.total.received


def test_only_the_last_drops_of_an_account_are_kept_the_latest_first() -> None:
    ledger = Ledger()
    for seq in range(50):
        ledger.received("h")
        ledger.dropped("h", "old_rev", did="did:plc:x", seq=seq, kind="#commit", detail="x" * 1_000)
    drops = ledger.why("did:plc:x")
    assert [drop.seq for drop in drops] == list(range(49, 29, -1))
    assert len(drops[0].detail) == 200
    assert ledger.why("did:plc:y") == []


def test_only_accounts_with_drops_of_late_are_kept() -> None:
    ledger = Ledger()
    for number in range(10_001):
        ledger.received("h")
        ledger.dropped("h", "old_rev", did=f"did:plc:{number}")
    assert ledger.why("did:plc:0") == []
    assert ledger.why("did:plc:10000")


def test_what_is_decided_here_weighs_more_than_what_the_host_says() -> None:
    assert AccountRow("did:plc:x", "h").combined == (True, None)
    assert AccountRow("did:plc:x", "h", active=False, status="deactivated").combined == (False, "deactivated")
    assert AccountRow("did:plc:x", "h", active=True, local_status="takendown").combined == (False, "takendown")
