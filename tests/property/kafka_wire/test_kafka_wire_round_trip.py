"""What is written is read back, in every version of every API, and kio and kafka-python read and write the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.wire.kafka import Api, Body
from tests.property.kafka_wire.kafka_wire_oracles import oracles, versions_of
from tests.property.kafka_wire.kafka_wire_strategies import EVERY_API, EVERY_VERSION, busy, message_class, messages


def encoded(api: Api[Any, Any], message: Body, version: int) -> bytes:
    write = api.encode_request if isinstance(message, api.request) else api.encode_response
    return b"".join(write(message, version))


def decoded(api: Api[Any, Any], cls: type[Body], data: bytes, version: int) -> Body:
    message: Body = (api.decode_request if cls is api.request else api.decode_response)(data, version)
    return message


@pytest.mark.parametrize("is_request", [True, False], ids=["request", "response"])
@pytest.mark.parametrize("api", EVERY_API, ids=lambda api: api.name)
def test_every_field_of_every_version_means_the_same_to_others(api: Api[Any, Any], is_request: bool) -> None:
    cls = message_class(api, is_request=is_request)
    for version in range(api.first, api.last + 1):
        for message in (busy(cls, version), cls()):
            data = encoded(api, message, version)
            assert decoded(api, cls, data, version) == message
            for through in oracles(api, version):
                assert through(api, data, version, is_request) == data, (through, version)


@pytest.mark.parametrize("api", EVERY_API, ids=lambda api: api.name)
@settings(max_examples=15)
@given(data=st.data())
def test_any_message_means_the_same_to_others(api: Api[Any, Any], data: st.DataObject) -> None:
    is_request = data.draw(st.booleans())
    version = data.draw(st.integers(api.first, api.last))
    cls = message_class(api, is_request=is_request)
    message = data.draw(messages(cls, version, tame=True))
    raw = encoded(api, message, version)
    assert decoded(api, cls, raw, version) == message
    for through in oracles(api, version):
        assert decoded(api, cls, through(api, raw, version, is_request), version) == message


@settings(max_examples=100)
@given(data=st.data())
def test_any_message_survives(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(EVERY_VERSION))
    cls = message_class(api, is_request=data.draw(st.booleans()))
    message = data.draw(messages(cls, version))
    assert decoded(api, cls, encoded(api, message, version), version) == message


def test_every_version_of_kafka_4_is_known() -> None:
    for api in EVERY_API:
        versions = versions_of(api)
        assert max(versions) == api.last, api.name
        assert min(versions) == api.first or api.name == "ListOffsets", api.name
