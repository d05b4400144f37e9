"""From commit to acknowledgement: what is counted, and that nothing is counted twice."""

from __future__ import annotations

import msgspec

from headgate.pipeline.acks import ACK_BUCKETS_S, Acks
from headgate.pipeline.following import Progress


def test_a_time_falls_between_its_limits() -> None:
    acks = Acks()
    acks.observe(1000.0, 1000.2)
    told = acks.as_dict()
    assert told["counts"][told["limits"].index(0.25)] == 1
    assert abs(told["sum"] - 0.2) < 1e-6


def test_a_clock_that_is_ahead_counts_as_no_time() -> None:
    acks = Acks()
    acks.observe(1000.0, 990.0)
    assert (acks.counts[0], acks.seconds) == (1, 0.0)


def test_what_nobody_knows_is_not_counted() -> None:
    acks = Acks()
    acks.observe(None, 990.0)
    assert acks.as_dict() == {}


def test_a_day_is_beyond_the_last_limit() -> None:
    acks = Acks()
    acks.observe(0.0, 86400.0)
    assert acks.counts == [0] * len(ACK_BUCKETS_S) + [1]


def test_only_what_is_new_is_told() -> None:
    acks = Acks()
    acks.observe(0.0, 1.0)
    before = Progress("r", 0, 1, 1, 1, 0, {}, acks.copy())
    acks.observe(0.0, 2.0)
    after = msgspec.json.decode(msgspec.json.encode(Progress("r", 0, 1, 2, 2, 0, {}, acks)), type=Progress)
    assert (sum(after.since(before).acks.counts), after.since(before).acks.seconds) == (1, 2.0)
    other_attempt = msgspec.structs.replace(before, attempt=7)
    assert sum(after.since(other_attempt).acks.counts) == 2


def test_progress_of_a_version_without_them_can_be_read() -> None:
    old = b'{"run":"r","batch_id":0,"attempt":1,"rows":1,"payload_bytes":1,"duplicates":0,"end":{}}'
    assert msgspec.json.decode(old, type=Progress).acks == Acks()
