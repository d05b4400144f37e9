"""The audit log without a gateway: what it keeps to itself, and how much it says."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headgate.gateway.audit import LOGGER, MOST_FAILURES, WINDOW_S, Audit, Flood
from headgate.gateway.audited import changes_of
from headgate.gateway.context import Session
from headgate.gateway.handlers import HANDLERS
from headgate.gateway.metrics import Metrics
from headgate.wire.kafka import APIS
from headgate.wire.kafka.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
    IncrementallyAlteredResource,
)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def test_a_flood_is_counted_by_its_key_and_begins_anew_after_a_minute() -> None:
    clock = Clock()
    flood = Flood(2, clock)
    assert [flood.admits(("a",)) for _ in range(5)] == [True, True, False, False, False]
    assert flood.admits(("b",))
    assert flood.over() == []
    clock.time = WINDOW_S
    assert flood.over() == [(("a",), 3)]
    assert flood.admits(("a",))


def test_a_million_addresses_cost_no_more_than_a_thousand() -> None:
    flood = Flood(1, Clock())
    told = sum(flood.admits((str(number),)) for number in range(20_000))
    assert told == 1001
    assert flood.over(at_once=True) == [(("others",), 20_000 - 1001)]


def test_denials_have_their_principal_and_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    metrics, clock = Metrics(), Clock()
    audit = Audit(metrics, now=clock)
    session = Session(peer="10.0.0.9:5", address="10.0.0.9", user="bob")
    for _ in range(MOST_FAILURES + 4):
        audit.denied(session, api="Produce", operation="WRITE", resource="topic " + "x" * 5000)
    lines: list[Any] = list(caplog.records)
    assert len(lines) == MOST_FAILURES
    assert (lines[0].principal, lines[0].address, lines[0].operation) == ("User:bob", "10.0.0.9:5", "WRITE")
    assert len(lines[0].resource) < 1000
    assert metrics.denied_total == MOST_FAILURES + 4
    clock.time = WINDOW_S
    audit.sweep()
    last: Any = caplog.records[-1]
    assert (last.audited, last.count, last.address, last.principal) == ("denied", 4, "10.0.0.9", "User:bob")


@pytest.mark.parametrize(
    "api", [api for api in APIS.values() if api.request in HANDLERS], ids=lambda api: str(api.name)
)
def test_every_answer_can_be_looked_at(api: Any) -> None:
    assert changes_of(api.request(), api.response()) == []


def test_what_is_only_tried_changes_nothing_and_an_unknown_code_is_no_fault() -> None:
    setting = IncrementallyAlterableConfig(name="a", value="secret")
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name="t", configs=(setting,))
    answer = IncrementalAlterConfigsResponse(
        responses=(IncrementallyAlteredResource(error_code=12345, resource_type=2, resource_name="t"),)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,))
    assert changes_of(request, answer) == [{"kind": "topic", "what": "t", "outcome": "12345", "settings": "a"}]
    assert changes_of(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=True), answer) == []
