"""The circuit breaker against the rules of its docstring, with a clock of our own."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.pipeline.routing.breaker import Breaker, BreakerState


class BreakerMachine(RuleBasedStateMachine):
    """Keeps its own account in other terms: a list of outcomes, and the time until which nothing may be tried."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.breaker = Breaker(clock=lambda: self.now)
        self.in_row = 0
        self.open_until: float | None = None

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 29.5, 30.0, 45.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def success(self) -> None:
        self.breaker.succeeded()
        self.in_row, self.open_until = 0, None

    @rule()
    def failure(self) -> None:
        """The fifth in a row, and any one after a cool-down, close the door for a whole cool-down."""
        self.breaker.failed()
        self.in_row += 1
        if self.in_row >= 5:
            self.open_until = self.now + 30.0

    @invariant()
    def the_state_is_right(self) -> None:
        if self.open_until is None:
            expected = BreakerState.CLOSED
        else:
            expected = BreakerState.OPEN if self.now < self.open_until else BreakerState.HALF_OPEN
        assert self.breaker.state is expected
        assert self.breaker.closes_in_s == max(0.0, (self.open_until or 0.0) - self.now)
        assert self.breaker.failures == self.in_row


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_five_failures_thirty_seconds_one_probe() -> None:
    now = [0.0]
    breaker = Breaker(clock=lambda: now[0])
    for _ in range(4):
        breaker.failed()
    assert breaker.state == "closed"
    breaker.failed()
    assert (breaker.state, breaker.closes_in_s) == (BreakerState.OPEN, 30.0)
    now[0] = 29.9
    assert breaker.state == "open"
    now[0] = 30.0
    assert breaker.state == "half-open"
    breaker.failed()
    assert (breaker.state, breaker.closes_in_s) == (BreakerState.OPEN, 30.0)
    now[0] = 60.0
    breaker.succeeded()
    assert (breaker.state, breaker.failures) == (BreakerState.CLOSED, 0)


def test_a_lower_threshold_of_a_reload_counts_from_the_next_failure() -> None:
    breaker = Breaker(clock=lambda: 0.0)
    for _ in range(3):
        breaker.failed()
    breaker.threshold = 2
    assert breaker.state == "closed"
    breaker.failed()
    assert breaker.state == "open"


def test_a_probe_that_fails_opens_it_again_though_a_reload_asks_for_more_failures() -> None:
    now = [0.0]
    breaker = Breaker(clock=lambda: now[0])
    for _ in range(5):
        breaker.failed()
    breaker.threshold = 10
    now[0] = 30.0
    assert breaker.state == "half-open"
    breaker.failed()
    assert breaker.state == "open"
