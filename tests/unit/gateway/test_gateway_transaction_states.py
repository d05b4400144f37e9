"""What requests make of a transactional id: the rules, and that no sequence of requests breaks them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.gateway.transactions.states import (
    LAST_EPOCH,
    Asked,
    Change,
    Identity,
    Marker,
    State,
    Transactional,
    aborted,
    check_producer,
    ended,
    initialized,
    needs_new_id,
)
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

NOBODY = Identity(-1, -1)
ASKED = Asked(60_000, None, is_implicit=False)


def stored(state: State = State.ONGOING, epoch: int = 5, last: Identity = NOBODY) -> Transactional:
    return Transactional("x", 3, Identity(7, epoch), last, 60_000, state, False, 0, (1,), ())


def refusal(code: ErrorCode) -> pytest.RaisesExc[Refused]:
    return pytest.RaisesExc(Refused, check=lambda refused: refused.code is code)


def test_the_first_producer_gets_an_id() -> None:
    change = initialized(None, ASKED, 9)
    assert change == Change(State.EMPTY, Identity(9, 0), NOBODY, 60_000, False)
    # One whose place has expired gets a new one, too.
    assert initialized(None, ASKED._replace(expected=Identity(4, 4)), 9) == change


def test_a_new_producer_fences_and_aborts() -> None:
    change = initialized(stored(), ASKED, None)
    assert change is not None
    assert (change.state, change.identity, change.last) == (State.EMPTY, Identity(7, 6), NOBODY)
    assert change.marker == Marker(Identity(7, 6), is_commit=False)
    done = initialized(stored(State.COMMITTED), ASKED, None)
    assert done is not None
    assert done.marker is None


def test_a_producer_that_knows_its_place_gets_on() -> None:
    change = initialized(stored(State.ABORTED), ASKED._replace(expected=Identity(7, 5)), None)
    assert change is not None
    assert (change.identity, change.last) == (Identity(7, 6), Identity(7, 5))
    # Who did not hear the answer hears it again.
    after = replace(stored(State.EMPTY, epoch=6), last=Identity(7, 5))
    assert initialized(after, ASKED._replace(expected=Identity(7, 5)), None) is None


@pytest.mark.parametrize("expected", [Identity(7, 4), Identity(8, 5), Identity(7, 6)])
@pytest.mark.parametrize("state", list(State))
def test_a_zombie_is_fenced_and_aborts_nothing(expected: Identity, state: State) -> None:
    with refusal(ErrorCode.PRODUCER_FENCED):
        initialized(stored(state), ASKED._replace(expected=expected), None)


def test_a_place_that_somebody_uses_is_not_given_again() -> None:
    with refusal(ErrorCode.PRODUCER_FENCED):
        initialized(stored(last=Identity(7, 4)), ASKED._replace(expected=Identity(7, 4)), None)


def test_epochs_that_end_continue_with_another_id() -> None:
    last = stored(epoch=LAST_EPOCH - 1)
    assert needs_new_id(last)
    change = initialized(last, ASKED, 11)
    assert change is not None
    assert change.identity == Identity(11, 0)
    assert change.marker == Marker(Identity(7, LAST_EPOCH), is_commit=False)
    swept = aborted(last)
    assert swept.identity == Identity(7, LAST_EPOCH)
    fenced = replace(last, state=State.ABORTED, identity=swept.identity, last=swept.last)
    again = initialized(fenced, ASKED._replace(expected=last.identity), 12)
    assert again is not None
    assert again.identity == Identity(12, 0), "no producer ever gets the last epoch"


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_is_one_whatever_is_repeated(is_commit: bool) -> None:
    state = State.COMMITTED if is_commit else State.ABORTED
    change = ended(stored(), Identity(7, 5), None, is_commit=is_commit, bumps=False)
    assert change is not None
    assert (change.state, change.identity) == (state, Identity(7, 5))
    assert change.marker == Marker(Identity(7, 5), is_commit)
    assert ended(stored(state), Identity(7, 5), None, is_commit=is_commit, bumps=False) is None
    with refusal(ErrorCode.INVALID_TXN_STATE):
        ended(stored(state), Identity(7, 5), None, is_commit=not is_commit, bumps=False)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_second_protocol_gives_each_transaction_an_epoch(is_commit: bool) -> None:
    state = State.COMMITTED if is_commit else State.ABORTED
    change = ended(stored(), Identity(7, 5), None, is_commit=is_commit, bumps=True)
    assert change is not None
    assert (change.identity, change.last) == (Identity(7, 6), Identity(7, 5))
    assert change.marker == Marker(Identity(7, 6), is_commit)
    after = stored(state, epoch=6, last=Identity(7, 5))
    assert ended(after, Identity(7, 5), None, is_commit=is_commit, bumps=True) is None
    with refusal(ErrorCode.INVALID_TXN_STATE):
        ended(after, Identity(7, 5), None, is_commit=not is_commit, bumps=True)


def test_what_is_empty_can_be_aborted_by_the_second_protocol_only() -> None:
    for state in (State.EMPTY, State.COMMITTED):
        change = ended(stored(state), Identity(7, 5), None, is_commit=False, bumps=True)
        assert change is not None
        assert (change.state, change.identity, change.marker) == (State.ABORTED, Identity(7, 6), None)
        with refusal(ErrorCode.INVALID_TXN_STATE):
            ended(stored(state), Identity(7, 5), None, is_commit=False, bumps=False)
    with refusal(ErrorCode.INVALID_TXN_STATE):
        ended(stored(State.EMPTY), Identity(7, 5), None, is_commit=True, bumps=True)


def test_who_is_not_the_producer() -> None:
    with refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        check_producer(None, Identity(7, 5))
    with refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        check_producer(stored(), Identity(8, 5))
    for epoch in (4, 6):
        with refusal(ErrorCode.PRODUCER_FENCED):
            check_producer(stored(), Identity(7, epoch))
    with refusal(ErrorCode.PRODUCER_FENCED):
        check_producer(stored(last=Identity(3, 9)), Identity(3, 9))


class Producers(RuleBasedStateMachine):
    """Any requests, by producers that know any place that was ever given."""

    def __init__(self) -> None:
        super().__init__()
        self.known: Transactional | None = None
        self.given = [Identity(99, 0)]
        self.latest: Identity | None = None
        self.ids = iter(range(1000, 10**6))
        self.markers = 0
        self.begun = 0

    def take(self, change: Change | None) -> None:
        if change is None:
            assert self.known is not None
            self.latest = self.known.identity
            return
        was_open = self.known is not None and self.known.state is State.ONGOING
        assert (change.marker is not None) == was_open, "an open transaction ends with its change, and no other does"
        if change.marker is not None and self.known is not None:
            assert change.marker.identity.producer_id == self.known.identity.producer_id
            assert change.marker.identity.epoch >= self.known.identity.epoch
            self.markers += 1
        version = self.known.version + 1 if self.known else 0
        self.known = Transactional(
            "x", version, change.identity, change.last, 1, change.state, change.is_implicit, 0, (), ()
        )
        self.given.append(change.identity)
        self.latest = change.identity

    @rule(at=st.integers(0, 50), knows=st.booleans())
    def init(self, at: int, knows: bool) -> None:
        expected = self.given[-1 - at % len(self.given)] if knows else None
        new_id = next(self.ids) if needs_new_id(self.known) else None
        try:
            change = initialized(self.known, Asked(1, expected, False), new_id)
        except Refused:
            assert expected is not None
            assert expected != (self.known and self.known.identity)
        else:
            self.take(change)

    @rule(at=st.integers(0, 50))
    def write(self, at: int) -> None:
        identity = self.given[-1 - at % len(self.given)]
        try:
            known = check_producer(self.known, identity)
        except Refused:
            assert self.known is None or identity != self.known.identity
            return
        self.begun += known.state is not State.ONGOING
        self.known = replace(known, state=State.ONGOING, version=known.version + 1, parts=(1,))

    @rule(at=st.integers(0, 50), is_commit=st.booleans(), bumps=st.booleans())
    def end(self, at: int, is_commit: bool, bumps: bool) -> None:
        identity = self.given[-1 - at % len(self.given)]
        new_id = next(self.ids) if needs_new_id(self.known) else None
        was_open = self.known is not None and self.known.state is State.ONGOING
        try:
            change = ended(self.known, identity, new_id, is_commit=is_commit, bumps=bumps)
        except Refused:
            assert not (was_open and self.known is not None and identity == self.known.identity)
        else:
            assert change is None or self.known is None or identity == self.known.identity, "a zombie has ended it"
            self.take(change)

    @rule()
    def sweep(self) -> None:
        if self.known is not None and self.known.state is State.ONGOING:
            self.take(aborted(self.known))

    @invariant()
    def every_transaction_ends_once(self) -> None:
        is_open = self.known is not None and self.known.state is State.ONGOING
        assert self.begun - self.markers == is_open


Producers.TestCase.settings = settings(deadline=None, max_examples=200, stateful_step_count=30)
TestProducers = Producers.TestCase
