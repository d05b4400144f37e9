"""The destinations a pipeline has used: cap, creation, breakers, reload."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.destinations.base import TopicDefaults
from headgate.model import ConnectError, DeliveryError
from headgate.model.address import Address
from headgate.pipeline.routing.admission import Admission, Patterns, Reason
from headgate.pipeline.routing.table import DestinationTable
from tests.unit.routing.routing_fakes import FakeDestination

A, B, C = (Address("s", topic) for topic in "abc")


def test_a_destination_is_admitted_and_created_at_every_target() -> None:
    one, two = FakeDestination("one", partitions=4), FakeDestination("two")
    table = DestinationTable([one, two], Admission())
    table.admit(iter([A, B, A]))
    assert table.known().partitions == {A: {"one": 4, "two": 1}, B: {"one": 4, "two": 1}}
    assert sorted(one.ensured) == [("s", "a"), ("s", "b")]
    assert (table.active, A in table.known().partitions, C in table.known().partitions) == (2, True, False)
    assert sum(table.create_seconds()["counts"]) == 4


def test_the_cap_is_hard_and_takes_destinations_in_a_fixed_order() -> None:
    target = FakeDestination()
    table = DestinationTable([target], Admission(max_destinations=2))
    table.admit([C, B, A])
    assert list(table.known().partitions) == [A, B]
    assert table.known().is_full
    assert table.refusal(C) is Reason.CAP
    table.admit([C])
    assert C not in table.known().partitions
    assert ("s", "c") not in target.ensured


def test_many_threads_create_a_destination_once() -> None:
    target = FakeDestination()
    target.may_ensure.clear()
    table = DestinationTable([target], Admission())
    ready = threading.Barrier(9)

    def admit() -> None:
        ready.wait()
        table.admit([A])

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(admit) for _ in range(8)]
        ready.wait()
        target.may_ensure.set()
        for job in jobs:
            job.result(10)
    assert target.ensured == [("s", "a")]


def test_a_server_that_is_away_is_nobodys_fault() -> None:
    target = FakeDestination()
    target.ensure_error = ConnectError("away", remedy="wait")
    table = DestinationTable([target], Admission(), failure_threshold=1)
    with pytest.raises(ConnectError, match=r"destinations\.fake: away"):
        table.admit([A])
    table.failed("fake", A, ConnectError("away"))
    (entry,) = table.describe()
    assert (entry["circuit"], entry["failures_total"], entry["error"]["kind"]) == ("closed", 1, "connect")
    assert table.known().open == frozenset()
    target.ensure_error = None
    table.ensure([A])
    assert table.known().partitions[A] == {"fake": 1}


def test_a_refused_creation_counts_and_then_is_left_alone() -> None:
    now = [0.0]
    target = FakeDestination()
    target.ensure_error = DeliveryError("no", remedy="ask")
    table = DestinationTable([target], Admission(), failure_threshold=2, cool_down_s=30, clock=lambda: now[0])
    table.admit([A])
    assert (table.known().partitions[A], table.open_circuits) == ({"fake": 0}, 0)
    table.ensure([A])
    assert table.known().open == {("fake", A)}
    assert (table.refusal(A), table.open_circuits) == (Reason.CIRCUIT_OPEN, 1)
    table.ensure([A])
    assert len(target.ensured) == 2  # the third was not even tried
    now[0] = 30.0
    assert table.refusal(A) is None
    assert table.describe()[0]["circuit"] == "half-open"
    target.ensure_error = None
    table.ensure([A])
    table.succeeded("fake", A, 7)
    entry = table.describe()[0]
    assert (entry["circuit"], entry["rows_total"], entry["partitions"]) == ("closed", 7, 1)


def test_a_breaker_is_of_one_destination_at_one_target() -> None:
    table = DestinationTable([FakeDestination("one"), FakeDestination("two")], Admission(), failure_threshold=1)
    table.admit([A, B])
    table.failed("one", A, DeliveryError("no"))
    assert table.known().open == {("one", A)}


def test_prewarm_waits_for_its_deadline_and_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    """One target hangs: the start goes on without it, and its destinations come with their first row."""
    good, hanging = FakeDestination("good"), FakeDestination("hanging")
    hanging.may_ensure.clear()
    table = DestinationTable([good, hanging], Admission())
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        table.prewarm([A, B], deadline_s=0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert table.known().partitions == {A: {"good": 1, "hanging": 0}, B: {"good": 1, "hanging": 0}}
    assert sum(line.getMessage() == "prewarm is late" for line in caplog.records) == 2
    hanging.may_ensure.set()
    table.ensure([A, B])
    assert table.known().partitions == {A: {"good": 1, "hanging": 1}, B: {"good": 1, "hanging": 1}}
    assert sorted(hanging.ensured) == [("s", "a"), ("s", "b")]


def test_prewarm_tells_what_fails_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    away = FakeDestination("away")
    away.ensure_error = ConnectError("gone", remedy="start it")
    table = DestinationTable([away], Admission())
    with caplog.at_level(logging.WARNING):
        table.prewarm([A], deadline_s=30)
    assert [line.getMessage() for line in caplog.records] == ["prewarm failed"]
    assert table.known().partitions == {A: {"away": 0}}


def test_a_reload_changes_lists_and_limits_and_keeps_what_is_known() -> None:
    table = DestinationTable([FakeDestination()], Admission(), failure_threshold=5)
    table.admit([A, B])
    table.failed("fake", A, DeliveryError("no"))
    table.configure(Admission("denylist", denied=Patterns.of([("s", "b")])), TopicDefaults(partitions=3), 2, 10.0)
    assert set(table.known().partitions) == {A}
    assert table.refusal(B) is Reason.DENYLIST
    table.failed("fake", A, DeliveryError("no"))
    assert table.describe()[0]["circuit"] == "open"
    assert table.describe()[0]["retry_in_seconds"] <= 10.0
    table.admit([C])
    assert table.known().partitions[C] == {"fake": 3}
    table.configure(Admission(), TopicDefaults(), 5, 30.0)
    assert set(table.known().partitions) == {A, B, C}
    assert {entry["topic"]: entry["failures_total"] for entry in table.describe()} == {"a": 2, "b": 0, "c": 0}
