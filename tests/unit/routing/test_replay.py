"""Dead letters on their way again."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.destinations.base import TopicDefaults
from headgate.destinations.memory import MemoryDestination
from headgate.model import DeliveryError, record
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter
from headgate.pipeline.routing.admission import Admission, Patterns
from headgate.pipeline.routing.replay import replay
from headgate.pipeline.routing.rules import Rules
from headgate.pipeline.routing.settings import KeyPaths, RoutingSettings
from headgate.spool.dead_letters import DeadLetters
from tests.unit.routing.routing_fakes import FakeDestination


def settings(admission: Admission = Admission(), partitions: int = 1) -> RoutingSettings:  # noqa: B008 - frozen
    rules = Rules(epoch=5)
    return RoutingSettings(KeyPaths(), rules, admission, "drop", "drop", defaults=TopicDefaults(partitions))


def letter(number: int, topic: str, destination: str = "", partition: int | None = None) -> DeadLetter:
    return DeadLetter(
        f"m{number}", destination, Address("s", topic), "cap", "p", b"x", partition=partition, partition_key=None
    )


@pytest.fixture
def store(tmp_path: Path) -> DeadLetters:
    return DeadLetters(tmp_path / "d.sqlite")


def test_a_letter_goes_to_those_that_lack_it(store: DeadLetters) -> None:
    one, two, memory = FakeDestination("one"), FakeDestination("two"), MemoryDestination("memory")
    store.add([letter(1, "a"), letter(2, "b", destination="two")])
    result = replay(store.list(), store, (one, two, memory), settings())
    assert result.as_dict() == {"delivered": 2, "kept": {}}
    assert one.rows == [("s", "a", "m1")]
    assert sorted(two.rows) == [("s", "a", "m1"), ("s", "b", "m2")]
    assert [message.message_id for message in memory.messages] == ["m1"]
    assert store.list() == []
    lane, _ = one.sent[0]
    assert (lane.is_late, lane.epoch) == (True, 5)
    assert one.completed[0] < 0


def test_what_is_still_refused_stays(store: DeadLetters) -> None:
    target = FakeDestination()
    target.errors["b"] = DeliveryError("full", remedy="wait")
    nowhere = DeadLetter("m4", "", Address("", ""), "missing_destination", "p", b"x")
    store.add([letter(1, "a"), letter(2, "b"), letter(3, "c"), nowhere])
    denied = Admission("denylist", denied=Patterns.of([("*", "c")]))
    result = replay(store.list(), store, (target,), settings(denied))
    assert (result.delivered, result.kept) == (1, {"full": 1, "denylist": 1, "missing_destination": 1})
    assert [each.message_id for each in store.list()] == ["m2", "m3", "m4"]
    elsewhere = replay(store.list(), store, (target,), settings(), to=Address("s", "rest"))
    assert (elsewhere.delivered, store.list()) == (3, [])


def test_an_explicit_partition_is_kept_where_there_is_one(store: DeadLetters) -> None:
    target = FakeDestination(partitions=4)
    store.add([letter(1, "a", partition=3), letter(2, "a", partition=99), letter(3, "a", partition=-1), letter(4, "a")])
    assert replay(store.list(), store, (target,), settings()).delivered == 4
    assert [row[record.PARTITION] for _, rows in target.sent for row in rows] == [3, None, None, None]
