"""What is said of sample rows, and why they go where they go; how their values come about is Spark's."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from headgate.destinations.base import TopicDefaults
from headgate.model import ConnectError, DeliveryError
from headgate.model.address import Address
from headgate.pipeline.routing.admission import Admission
from headgate.pipeline.routing.rules import Encoding, Lookup, Rules
from headgate.pipeline.routing.settings import KeyPaths, RoutingSettings
from headgate.pipeline.routing.table import DestinationTable
from tests.unit.routing.routing_fakes import FakeDestination, explained


def by_kind(
    admission: Admission = Admission(),  # noqa: B008 - frozen
    encoding: Encoding = "bytes",
    partitions: int = 4,
) -> RoutingSettings:
    rules = Rules(by_topic_column="kind", default_topic="rest", partition_key_column="p", encoding=encoding)
    paths = KeyPaths(topic="kind", partition_key="p")
    return RoutingSettings(paths, rules, admission, "error", "dlq", defaults=TopicDefaults(partitions))


def admissions(rows: list[dict[str, Any]], *arguments: Any, **more: Any) -> list[str]:
    return [said.verdicts[0].admission for said in explained(rows, *arguments, **more)]


def test_one_row() -> None:
    target = FakeDestination()
    (said,) = explained([{"kind": "a", "p": "k"}], by_kind(), [target])
    crc = zlib.crc32(b"k") % 4
    assert said.as_dict() == {
        "row": {"kind": "a", "p": "k"},
        "looked_at": {"kind": "a", "p": "k"},
        "rule": "columns",
        "verdicts": [
            {
                "destination": "a",
                "partition": f"by key 'k', partition {crc} of 4 in NATS",
                "admission": "admitted",
                "creates": ["fake: topic a"],
            }
        ],
        "note": "",
    }
    assert (target.ensured, target.sent) == ([], [])
    target.existing.add("a")
    assert explained([{"kind": "a"}], by_kind(), [target])[0].verdicts[0].creates == ()
    target.error_of_lane = ConnectError("gone")
    assert explained([{"kind": "a"}], by_kind(), [target])[0].verdicts[0].creates == ("fake: unknown, gone",)
    target.error_of_lane = DeliveryError("the stream keeps others")
    assert admissions([{"kind": "a"}], by_kind(), [target]) == ["fails: the stream keeps others"]


def test_a_row_that_goes_nowhere() -> None:
    settings = RoutingSettings(KeyPaths(lookups=(("a.b",),)), Rules(lookups=(Lookup({}),)), Admission(), "dlq", "drop")
    (said,) = explained([{"a.b": "1"}], settings)
    assert (said.verdicts, said.note, said.looked_at) == ((), "no destination: dlq", {"a.b": "1"})


@pytest.mark.parametrize(
    ("key", "encoding", "partition", "admitted"),
    [
        (None, "partition_id", "any (the key is NULL)", True),
        ("3", "partition_id", "3 of 4", True),
        ("4", "partition_id", "4 of 4", False),
        ("-1", "partition_id", "-1 of 4", False),
        ("²", "partition_id", "any (the key is no number)", True),
        ("--5", "partition_id", "any (the key is no number)", True),
        ("9" * 5000, "partition_id", "any (the key is no number)", True),
        ("x", "key_u32", "any (the key is no number)", True),
        ("7", "key_u32", f"by key '7', partition {zlib.crc32(bytes([7, 0, 0, 0])) % 4} of 4 in NATS", True),
    ],
)
def test_partitions(key: str | None, encoding: Encoding, partition: str, admitted: bool) -> None:
    (said,) = explained([{"kind": "a", "p": key}], by_kind(encoding=encoding), [FakeDestination()])
    (verdict,) = said.verdicts
    assert verdict.partition == partition
    expected = "admitted" if admitted else "refused: partition_id_out_of_range -> dlq"
    assert verdict.admission == expected


def test_partitions_are_those_that_the_topic_has() -> None:
    target = FakeDestination(partitions=2)
    rows = [{"kind": "a", "p": "1"}, {"kind": "a", "p": "2"}]
    said = explained(rows, by_kind(encoding="partition_id"), [target])
    assert [each.verdicts[0].partition for each in said] == ["1 of 2", "2 of 2"]
    assert admissions(rows, by_kind(encoding="partition_id"), [target])[1].startswith("refused: partition_id")


def test_the_limit_counts_across_rows_in_the_order_of_admission() -> None:
    settings = by_kind(Admission(max_destinations=1))
    rows = [{"kind": kind} for kind in ("b", "a", "b")]
    # New destinations of a batch are admitted by name, not as rows come.
    assert admissions(rows, settings, [FakeDestination()]) == ["refused: cap -> dlq", "admitted", "refused: cap -> dlq"]


def test_a_running_pipeline_is_asked_and_left_as_it_is() -> None:
    target = FakeDestination()
    settings = by_kind(Admission(max_destinations=1))
    table = DestinationTable([target], settings.admission, failure_threshold=1)
    table.admit([Address("", "z")])
    assert admissions([{"kind": "a"}], settings, [target], table) == ["refused: cap -> dlq"]
    table.failed("fake", Address("", "z"), DeliveryError("no"))
    assert admissions([{"kind": "z"}], settings, [target], table) == ["refused: circuit_open -> dlq"]
    assert (table.active, table.describe()[0]["rows_total"], target.sent) == (1, 0, [])


def test_several_destinations_of_the_configuration_may_differ() -> None:
    good, bad = FakeDestination("good"), FakeDestination("bad")
    table = DestinationTable([good, bad], Admission(), failure_threshold=1)
    table.admit([Address("", "a")])
    table.failed("bad", Address("", "a"), DeliveryError("no"))
    assert admissions([{"kind": "a"}], by_kind(), [good, bad], table) == ["admitted; bad: refused: circuit_open -> dlq"]
