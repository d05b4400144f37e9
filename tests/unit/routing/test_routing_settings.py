"""Routing as it will run: what the configuration leaves out is filled in."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from headgate.config.models import PipelineSection
from headgate.model import ConfigError
from headgate.model.address import Address
from headgate.pipeline.routing.settings import RoutingSettings, _parse_mapping, routing_settings
from headgate.sources.base import CDC, DESTRUCTIVE_POLLING, OPAQUE, POLLING, Mode


def settings(mode: Mode = CDC, **section: Any) -> RoutingSettings:
    parsed = PipelineSection.model_validate({"source": "s", "destinations": ["d"], **section})
    return routing_settings(parsed, mode, where="pipelines.p")


BY_KIND = {"topic_column": "kind", "default_topic": "other"}


@pytest.mark.parametrize(
    ("mode", "action"), [(CDC, "error"), (DESTRUCTIVE_POLLING, "error"), (POLLING, "drop"), (OPAQUE, "drop")]
)
def test_what_is_refused_depends_on_the_source(mode: Mode, action: str) -> None:
    assert settings(mode, routing=BY_KIND).on_refusal == action
    chosen = settings(mode, routing={**BY_KIND, "admission": {"on_admission_failure": "dlq"}})
    assert chosen.on_refusal == "dlq"


def test_the_defaults_of_the_table_of_keys() -> None:
    found = settings(routing=BY_KIND)
    assert (found.admission.mode, found.admission.max_destinations, found.admission.max_concurrent) == ("open", 256, 16)
    assert (found.breaker_threshold, found.breaker_cool_down_s, found.prewarm_deadline_s) == (5, 30.0, 60.0)
    assert (found.on_missing, found.rules.use_default, found.rules.encoding) == ("error", True, "bytes")
    assert (found.defaults.partitions, found.literal, found.rules.epoch) == (1, (), 1)
    section = PipelineSection.model_validate({"source": "s", "destinations": ["d"], "routing": BY_KIND})
    assert (section.failure_threshold, section.stop_grace) == (16, 30.0)


@pytest.mark.parametrize("action", ["drop", "error", "dlq"])
def test_without_the_default_rows_may_be_missing_one(action: str) -> None:
    found = settings(routing={**BY_KIND, "admission": {"on_missing_destination": action}})
    assert (found.on_missing, found.rules.use_default) == (action, False)


def test_tables_have_a_schema() -> None:
    found = settings(routing={"by_table": {"orders": "o", "crm.users": {"stream": "s", "topic": "u"}}})
    assert found.rules.by_table == {"public.orders": Address("", "o"), "crm.users": Address("s", "u")}
    assert found.paths.tables


def test_a_prewarm_creates_what_an_allowlist_names_in_full() -> None:
    listed = [{"stream": "s", "topic": "a"}, {"stream": "s"}, {"topic": "b"}]
    admission = {"mode": "allowlist", "allowlist": listed}
    assert settings(routing={**BY_KIND, "admission": admission}).literal == (Address("s", "a"),)
    assert settings(routing={**BY_KIND, "admission": {**admission, "mode": "open"}}).literal == ()


def test_routes() -> None:
    first = {
        "type": "route",
        "field": "event.type",
        "mapping": {"a": ["x", {"stream": "t", "topic": "y"}]},
        "stream": "s",
    }
    second = {"type": "route", "field": ["k", "l"], "mapping": {"1/2": "z"}, "match": "all", "default_topic": "rest"}
    found = settings(transforms=[first, second])
    one, two = found.rules.lookups
    assert one.mapping == {"a": (Address("s", "x"), Address("t", "y"))}
    assert (one.stops, two.stops, two.mapping) == (True, False, {"1/2": (Address("", "z"),)})
    assert (found.rules.default_stream, found.rules.default_topic) == (None, "rest")
    assert found.paths.lookups == (("event.type",), ("k", "l"))
    assert [(pick.name, pick.paths) for pick in found.paths.picks()][-2:] == [
        ("_route_0", ("event.type",)), ("_route_1", ("k", "l")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ({"routing": {"topic_column": "k"}}, "needs default_topic"),
        ({"routing": {"stream_column": "k", "default_topic": "t"}}, "needs default_stream"),
        ({"routing": {**BY_KIND, "partition_key_encoding": "partition_id"}}, "needs partition_key_column"),
        (
            {"routing": {**BY_KIND, "partition_key_column": "p", "partition_key_encoding": "partition_id"}},
            "partitions_count above 1",
        ),
        ({"routing": BY_KIND, "topic": "t"}, "exclude one another"),
        ({"routing": {"admission": {"max_destinations": 3}}}, "nothing that says where a row goes"),
        ({"routing": {**BY_KIND, "max_in_flight_batches": 2}}, "Extra inputs"),
        ({"transforms": [{"type": "route", "field": "a[0]", "mapping": {"x": "y"}}]}, "objects only"),
        ({"transforms": [{"type": "route", "field": "a..b", "mapping": {"x": "y"}}]}, "objects only"),
        ({"transforms": [{"type": "route", "field": "a"}]}, "mapping or mapping_url"),
        ({"transforms": [{"type": "route", "field": "a", "mapping": {"x": "a b"}}]}, "pattern"),
        ({"transforms": [{"type": "route", "field": "a", "mapping": {"x": []}}]}, "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(section: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        settings(**section)


@pytest.mark.parametrize("keys", [BY_KIND, {"by_table": {"a": "b"}}, {"default_topic": "x"}])
def test_a_route_and_routing_keys_exclude_one_another(keys: dict[str, Any]) -> None:
    route = {"type": "route", "field": "a", "mapping": {"x": "y"}}
    with pytest.raises(ValidationError, match="exclude one another"):
        settings(transforms=[route], routing=keys)
    assert settings(transforms=[route], routing={"admission": {"max_destinations": 3}}).admission.max_destinations == 3


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"1", b'{"a": 1}', b'{"a": []}', b'{"a": {"topic": "a b"}}', b'{"a": {"x": "y"}}',
     b"\xff\xfe", b"[" * 100_000, b'{"a": {"topic": null}}'],
)  # fmt: skip
def test_a_mapping_that_cannot_be_used(body: bytes) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        _parse_mapping(body, "http://x", "here")
    assert (caught.value.where, bool(caught.value.remedy)) == ("here", True)
