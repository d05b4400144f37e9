"""Limits of clients: buckets, and which limit counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.quotas import ANY, Bucket, Entity, Limit, Limits, Meter, Metric

RATE = "producer_byte_rate"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@given(
    st.floats(1, 1e9),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1e9)), min_size=1, max_size=30),
)
def test_who_waits_as_he_is_told_keeps_the_rate(rate: float, done: list[tuple[float, float]]) -> None:
    """What is done until any moment is not more than the rate allows, but for the last thing that was done."""
    now, total = 0.0, 0.0
    bucket = Bucket.full(rate, now)
    for pause, amount in done:
        now += pause
        wait_s = bucket.take(amount, now)
        assert total <= rate * (now + 1) * (1 + 1e-6)
        total += amount
        now += wait_s
        assert total <= rate * (now + 1) * (1 + 1e-6) + 1e-6


def test_a_bucket() -> None:
    bucket = Bucket.full(100.0, 0.0)
    assert bucket.take(100, 0.0) == 0.0
    assert bucket.take(50, 0.0) == 0.5
    assert bucket.debt_s(0.25) == 0.25
    assert bucket.debt_s(0.1) == 0.25, "a clock that goes back changes nothing"
    assert bucket.take(0, 1e6) == 0.0
    assert bucket.take(200, 1e6) == 1.0, "a long silence is worth a second"


# In Kafka's order: the first that is there counts.
ORDER = [("u", "c"), ("u", ANY), ("u", ""), (ANY, "c"), (ANY, ANY), (ANY, ""), ("", "c"), ("", ANY)]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_exact_limit_counts(first: int) -> None:
    rows = [(user, client, RATE, float(place + 1)) for place, (user, client) in enumerate(ORDER)][first:]
    limit = Limits(rows).of("u", "c")[Metric.PRODUCED]
    assert limit.rate == first + 1
    user, client = ORDER[first]
    assert limit.shared_by == Entity(user and "u", client and "c")


def test_each_metric_has_its_own() -> None:
    rows = [("u", "", RATE, 1.0), ("", ANY, "consumer_byte_rate", 2.0), (ANY, "", "request_percentage", 50.0)]
    limits = Limits(rows)
    found = limits.of("u", "c")
    assert {metric: limit.rate for metric, limit in found.items()} == {
        Metric.PRODUCED: 1.0,
        Metric.CONSUMED: 2.0,
        Metric.REQUESTS: 0.5,
    }
    assert Metric.PRODUCED not in limits.of("U", "c")
    assert limits.of("", "")[Metric.CONSUMED].shared_by == Entity("", "")


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, None, "5", True])
def test_a_row_of_nonsense_limits_nobody(value: object) -> None:
    limits = Limits([("u", "", RATE, value), ("u", "", "what", 1.0), (None, "", RATE, 1.0), ("v", "", RATE, 7.0)])
    assert limits.strange_rows == 3
    assert limits.of("u", "c") == {}
    assert limits.of("v", "c")[Metric.PRODUCED].rate == 7.0


def test_a_meter_counts_together_who_shares_a_limit() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.limits = Limits([("u", "", RATE, 100.0), ("", ANY, RATE, 100.0)])
    one, other = (meter.limits.of("u", client)[Metric.PRODUCED] for client in ("a", "b"))
    assert meter.take(one, Metric.PRODUCED, 100) == 0
    assert meter.take(other, Metric.PRODUCED, 100) == 1.0
    apart = meter.limits.of("v", "a")[Metric.PRODUCED]
    assert meter.take(apart, Metric.PRODUCED, 100) == 0
    assert meter.take(meter.limits.of("v", "b")[Metric.PRODUCED], Metric.PRODUCED, 100) == 0
    clock.now += 0.5
    assert meter.debt_s(one, Metric.PRODUCED) == 0.5
    assert meter.take(one, Metric.PRODUCED, 1e9) == 30.0, "nobody waits longer at a time"
    assert meter.take(Limit(50.0, one.shared_by), Metric.PRODUCED, 50) == 0, "a new limit begins anew"
    assert meter.take(None, Metric.PRODUCED, 1e9) == 0


def test_client_ids_do_not_fill_the_memory() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.limits = Limits([("", ANY, RATE, 1.0)])
    for number in range(30_000):
        meter.take(meter.limits.of("u", str(number))[Metric.PRODUCED], Metric.PRODUCED, 100)
    assert len(meter._buckets) <= 20_000
    assert meter.debt_s(meter.limits.of("u", "29999")[Metric.PRODUCED], Metric.PRODUCED) > 0
