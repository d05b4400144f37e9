"""What is said of sample rows: hostile ones, and why they go where they go."""

from __future__ import annotations

import datetime
import decimal
import uuid
import zlib
from typing import Any

import pytest

from headgate.destinations.base import TopicDefaults
from headgate.model import ConnectError, DeliveryError
from headgate.model.destination import Destination as Wanted
from headgate.pipeline.routing.admission import Admission
from headgate.pipeline.routing.explain import explain_row
from headgate.pipeline.routing.rules import Encoding, Lookup, Rules
from headgate.pipeline.routing.settings import KeyPaths, RoutingSettings
from headgate.pipeline.routing.table import DestinationTable
from tests.unit.routing.routing_fakes import FakeDestination


def by_kind(
    admission: Admission = Admission(),  # noqa: B008 - frozen
    encoding: Encoding = "bytes",
    partitions: int = 4,
) -> RoutingSettings:
    rules = Rules(by_topic_column="kind", default_topic="rest", partition_key_column="p", encoding=encoding)
    paths = KeyPaths(topic="kind", partition_key="p")
    return RoutingSettings(paths, rules, admission, "error", "dlq", defaults=TopicDefaults(partitions))


def test_one_row() -> None:
    target = FakeDestination()
    said = explain_row({"kind": "a", "p": "k"}, by_kind(), [target]).as_dict()
    crc = zlib.crc32(b"k") % 4
    assert said == {
        "row": {"kind": "a", "p": "k"},
        "looked_at": {"kind": "a"},
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
    assert target.ensured == []
    target.existing.add("a")
    assert explain_row({"kind": "a"}, by_kind(), [target]).verdicts[0].creates == ()
    target.error_of_lane = ConnectError("gone")
    assert explain_row({"kind": "a"}, by_kind(), [target]).verdicts[0].creates == ("fake: unknown, gone",)


def test_a_row_that_goes_nowhere() -> None:
    settings = RoutingSettings(KeyPaths(lookups=(("a.b",),)), Rules(lookups=(Lookup({}),)), Admission(), "dlq", "drop")
    said = explain_row({"a": {"b": 1}}, settings)
    assert (said.verdicts, said.note, said.looked_at) == ((), "no destination: dlq", {"a.b": "1"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (1, "1"),
        (1.5, "1.5"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (datetime.date(2024, 5, 1), "2024-05-01"),
        ({"x": 1}, '{"x":1}'),
        (None, None),
    ],
)
def test_values_of_any_type_are_looked_at_as_text(value: Any, text: str | None) -> None:
    assert explain_row({"kind": value}, by_kind()).looked_at == {"kind": text}


@pytest.mark.parametrize(
    ("key", "encoding", "partition", "admitted"),
    [
        (None, "partition_id", "any (the key is NULL)", True),
        ("3", "partition_id", "3 of 4", True),
        (3, "partition_id", "3 of 4", True),
        ("4", "partition_id", "4 of 4", False),
        ("-1", "partition_id", "-1 of 4", False),
        ("²", "partition_id", "any (the key is no number)", True),
        ("--5", "partition_id", "any (the key is no number)", True),
        ("9" * 5000, "partition_id", "any (the key is no number)", True),
        ("x", "key_u32", "any (the key is no number)", True),
        ("7", "key_u32", f"by key '7', partition {zlib.crc32(bytes([7, 0, 0, 0])) % 4} of 4 in NATS", True),
    ],
)
def test_partitions(key: Any, encoding: Encoding, partition: str, admitted: bool) -> None:
    (verdict,) = explain_row({"kind": "a", "p": key}, by_kind(encoding=encoding)).verdicts
    assert verdict.partition == partition
    expected = "admitted" if admitted else "refused: partition_id_out_of_range -> dlq"
    assert verdict.admission == expected


def test_the_limit_without_and_with_a_running_pipeline() -> None:
    settings = by_kind(Admission(max_destinations=1))
    seen: set[Wanted] = set()
    verdicts = [explain_row({"kind": kind}, settings, seen=seen).verdicts[0].admission for kind in ("a", "b", "a")]
    assert verdicts == ["admitted", "refused: cap -> dlq", "admitted"]
    table = DestinationTable([FakeDestination()], settings.admission, failure_threshold=1)
    table.admit([Wanted("", "z")])
    assert explain_row({"kind": "a"}, settings, table=table).verdicts[0].admission == "refused: cap -> dlq"
    table.failed("fake", Wanted("", "z"), DeliveryError("no"))
    assert explain_row({"kind": "z"}, settings, table=table).verdicts[0].admission == "refused: circuit_open -> dlq"
    assert table.active == 1


@pytest.mark.parametrize(
    "row", [{}, {"a": None}, {"a": []}, {"a": "{"}, {"a": "[" * 10_000}, {"a": '{"b": {}}'}, {"a": 1}]
)
def test_paths_into_what_is_not_there(row: dict[str, Any]) -> None:
    lookup = Lookup({"v": (Wanted("", "t"),)})
    settings = RoutingSettings(KeyPaths(lookups=(("a.b.c",),)), Rules(lookups=(lookup,)), Admission(), "drop", "drop")
    assert explain_row(row, settings).looked_at == {"a.b.c": None}


@pytest.mark.parametrize("row", [{"a": {"b": "v"}}, {"a": '{"b": "v"}'}, {"a.b": "v"}])
def test_paths_into_objects_and_json_text(row: dict[str, Any]) -> None:
    lookup = Lookup({"v": (Wanted("", "t"),)}, field="a.b")
    settings = RoutingSettings(KeyPaths(lookups=(("a.b",),)), Rules(lookups=(lookup,)), Admission(), "drop", "drop")
    said = explain_row(row, settings)
    assert (said.rule, said.verdicts[0].destination) == ("route a.b = v", "t")
