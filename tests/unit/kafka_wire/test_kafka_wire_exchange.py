"""Frames, headers and the rules of the schema, byte by byte."""

from __future__ import annotations

import ast
import pickle
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headgate.model import ProtocolError
from headgate.wire import kafka as wire
from headgate.wire.kafka import (
    APIS,
    FrameSplitter,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from headgate.wire.kafka.messages.cluster import METADATA, AskedTopic, MetadataRequest
from headgate.wire.kafka.messages.consumer_groups import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatResponse
from headgate.wire.kafka.messages.fetch import FETCH, FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from headgate.wire.kafka.messages.membership import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from headgate.wire.kafka.messages.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from headgate.wire.kafka.messages.security import AlterUserScramCredentialsRequest, ScramUpsertion
from headgate.wire.kafka.messages.session import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


# A heartbeat in version 3 (not flexible) and 4 (flexible), written down by hand.
_BODY_3 = raw("0001 67000000050001 6dffff")
_BODY_4 = raw("02 670000000502 6d0000")
_HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=5, member_id="m", group_instance_id=None)


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (3, raw("000c 0003 00000009 0002 6d65") + _BODY_3),
        (4, raw("000c 0004 00000009 0002 6d65 00") + _BODY_4),
    ],
)
def test_requests_are_the_bytes_that_the_protocol_says(version: int, frame: bytes) -> None:
    written = b"".join(encode_request(HEARTBEAT, version, 9, "me", _HEARTBEAT))
    assert written == len(frame).to_bytes(4, "big") + frame
    request = decode_request(frame)
    assert request.body == _HEARTBEAT
    header = request.header
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (12, version, 9, "me")
    assert header.api is HEARTBEAT


@pytest.mark.parametrize(
    ("version", "frame"),
    [(0, raw("00000009 0000")), (3, raw("00000009 00000000 0000")), (4, raw("00000009 00 00000000 0000 00"))],
)
def test_responses_have_the_header_of_their_version(version: int, frame: bytes) -> None:
    header = decode_request(b"".join(encode_request(HEARTBEAT, version, 9, None, _HEARTBEAT))[4:]).header
    assert b"".join(encode_response(header, HeartbeatResponse())) == len(frame).to_bytes(4, "big") + frame
    assert decode_response(HEARTBEAT, version, frame) == (9, HeartbeatResponse())


def test_the_header_of_an_api_versions_response_is_never_flexible() -> None:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    header = decode_request(b"".join(encode_request(API_VERSIONS, 3, 1, None, request))[4:]).header
    frame = b"".join(encode_response(header, ApiVersionsResponse()))[4:]
    assert frame == raw("00000001 0000 01 00000000 00")
    assert decode_response(API_VERSIONS, 3, frame) == (1, ApiVersionsResponse())


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    header = read_request_header(raw("0012 0063 00000001 ffff") + b"something of the future")
    assert header.api is None
    answer = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))
    frame = b"".join(encode_response(header, answer))[4:]
    assert frame == raw("00000001 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize("frame", [raw("0063 0000 00000001 ffff"), raw("0000 0063 00000001 ffff")])
def test_other_unknown_requests_are_refused_but_their_header_is_read(frame: bytes) -> None:
    header = read_request_header(frame)
    assert header.api is None
    assert header.correlation_id == 1
    with pytest.raises(ProtocolError) as caught:
        decode_request(frame)
    assert caught.value.remedy
    with pytest.raises(ProtocolError):
        encode_response(header, HeartbeatResponse())


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0" * 7,
        raw("000c 0004 00000009 0005 6d"),
        raw("000c 0004 00000009 0001 ff 00"),
        raw("000c 0004 00000009 fffe"),
    ],
)
def test_bytes_that_are_no_header_are_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="request header"):
        read_request_header(frame)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", raw("00000009"), raw("00000009 01 00 05")])
def test_bytes_that_are_no_response_are_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_response(HEARTBEAT, 4, frame)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("02 67 00000005 02 6d 00", "ends too early"),
        ("02 67 00000005 02 6d 00 00 00", "follow the message"),
        ("00 00000005 02 6d 00 00", "null"),
        ("02 ff 00000005 02 6d 00 00", "UTF-8"),
        ("ffffffffff01 67", "varint"),
        ("ffffffff1f 67", "varint"),
        ("ffffffffffff01 67", "varint"),
        ("ffffffff0f 67", "ends too early"),
        ("02 67 00000005 02 6d 00 01 05 09 00", "ends too early"),
        ("02 67 00000005 02 6d 00 02 05 00 05 00", "twice"),
        ("02 67 00000005 02 6d 00 02 05 00 04 00", "out of order"),
        ("02 67 00000005 02 6d 00 ffffffff0f 05 00", "ends too early"),
    ],
)
def test_malformed_flexible_bodies_name_their_fault(body: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        HEARTBEAT.decode_request(raw(body), 4)
    assert caught.value.where == "HeartbeatRequest v4"
    assert caught.value.remedy
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("body", "reason"), [("fffe", "length of -2"), ("ffff 00000005 0000 ffff", "null"), ("7fff 67", "too early")]
)
def test_malformed_classic_bodies_name_their_fault(body: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        HEARTBEAT.decode_request(raw(body), 3)


def test_the_last_text_must_be_there_as_well() -> None:
    with pytest.raises(ProtocolError, match="too early"):
        SASL_HANDSHAKE.decode_request(raw("0005 61"), 0)


@pytest.mark.parametrize("count", ["7fffffff", "00000002", "fffffffe"])
def test_a_count_is_measured_by_the_bytes_that_are_left(count: str) -> None:
    with pytest.raises(ProtocolError, match=r"array of|length of"):
        METADATA.decode_request(raw(count) + raw("0000 00"), 8)


def test_unknown_tagged_fields_are_skipped() -> None:
    assert HEARTBEAT.decode_request(raw("02 67 00000005 02 6d 00 02 05 01 ff 86 01 00"), 4) == _HEARTBEAT


def test_a_known_tagged_field_must_be_as_long_as_it_says() -> None:
    frame = b"".join(FETCH.encode_request(FetchRequest(cluster_id="abc"), 12))
    assert frame.endswith(raw("01 00 04 04 616263"))
    with pytest.raises(ProtocolError, match="as long as it says"):
        FETCH.decode_request(frame[:-5] + raw("05 04 616263 00"), 12)


def test_null_and_empty_are_not_the_same() -> None:
    for version in (1, 9):
        everything = b"".join(METADATA.encode_request(MetadataRequest(topics=None), version))
        nothing = b"".join(METADATA.encode_request(MetadataRequest(topics=()), version))
        assert METADATA.decode_request(everything, version).topics is None
        assert METADATA.decode_request(nothing, version).topics == ()


def test_a_version_leaves_out_what_it_does_not_have() -> None:
    topic = ProduceTopic(name="t", topic_id=UUID(int=5), partition_data=(ProducePartition(records=b"r"),))
    for version, kept in ((12, ("t", UUID(int=0))), (13, ("", UUID(int=5)))):
        frame = b"".join(PRODUCE.encode_request(ProduceRequest(topic_data=(topic,)), version))
        (read,) = PRODUCE.decode_request(frame, version).topic_data
        assert (read.name, read.topic_id) == kept


def test_records_are_views_when_read_and_are_not_copied_when_written() -> None:
    topic = ProduceTopic(name="t", partition_data=(ProducePartition(records=b"records"),))
    frame = b"".join(PRODUCE.encode_request(ProduceRequest(topic_data=(topic,)), 9))
    records = PRODUCE.decode_request(frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    answer = FetchResponse(responses=(FetchedTopic(partitions=(FetchedPartition(records=records),)),))
    assert any(buffer is records for buffer in FETCH.encode_response(answer, 12))


def test_a_struct_may_be_null() -> None:
    frame = b"".join(CONSUMER_GROUP_HEARTBEAT.encode_response(ConsumerGroupHeartbeatResponse(assignment=None), 0))
    assert frame.endswith(raw("ff 00"))
    assert CONSUMER_GROUP_HEARTBEAT.decode_response(frame, 0).assignment is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (HeartbeatRequest(group_id="x" * 32768), "too long"),
        (HeartbeatRequest(generation_id=2**31), "cannot be sent"),
        (HeartbeatRequest(group_id="\ud800"), "cannot be sent"),
        (HeartbeatRequest(group_id=None), "group_id must not be null"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_what_the_protocol_has_no_place_for_is_refused(message: HeartbeatRequest, reason: str, version: int) -> None:
    with pytest.raises(ProtocolError, match=reason):
        HEARTBEAT.encode_request(message, version)


def test_null_is_refused_in_a_version_without_it() -> None:
    asked = MetadataRequest(topics=(AskedTopic(name=None, topic_id=UUID(int=1)),))
    METADATA.encode_request(asked, 10)
    with pytest.raises(ProtocolError, match="name must not be null"):
        METADATA.encode_request(asked, 9)


@pytest.mark.parametrize("version", [-1, 5])
def test_versions_outside_the_range_are_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="Heartbeat has no version"):
        HEARTBEAT.decode_request(b"", version)


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "00000065", "7fffffff"])
def test_a_frame_above_the_limit_breaks_the_splitter_for_good(length: str) -> None:
    splitter = FrameSplitter(max_bytes=100)
    splitter.feed(raw("00000002 6162") + raw(length))
    frames = splitter.frames()
    assert next(frames) == b"ab"
    with pytest.raises(ProtocolError, match="a frame of"):
        next(frames)
    splitter.feed(raw("00000002 6162"))
    with pytest.raises(ProtocolError):
        next(splitter.frames())


def test_frames_that_were_not_taken_are_still_there() -> None:
    splitter = FrameSplitter(max_bytes=100)
    splitter.feed(raw("00000001 61 00000001 62 0000"))
    assert next(splitter.frames()) == b"a"
    assert not splitter.idle
    assert list(splitter.frames()) == [b"b"]
    splitter.feed(raw("0001 63"))
    assert list(splitter.frames()) == [b"c"]
    assert splitter.idle


def test_credentials_are_not_shown() -> None:
    asked = SaslAuthenticateRequest(auth_bytes=b"\0user\0secret")
    answer = SaslAuthenticateResponse(auth_bytes=b"secret")
    frame = b"".join(encode_request(SASL_AUTHENTICATE, 2, 1, None, asked))[4:]
    assert decode_request(frame).body == asked
    assert "secret" not in f"{asked!r} {answer!r} {decode_request(frame)!r}"


def test_salted_passwords_are_not_shown() -> None:
    asked = AlterUserScramCredentialsRequest(
        upsertions=(ScramUpsertion(name="ann", salt=b"secret", salted_password=b"secret"),)
    )
    assert "ann" in repr(asked)
    assert "secret" not in repr(asked)


def test_every_api_is_in_the_table_once() -> None:
    assert sorted(APIS) == [
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
        19,
        20,
        21,
        22,
        23,
        24,
        25,
        26,
        27,
        28,
        29,
        30,
        31,
        32,
        33,
        35,
        36,
        37,
        42,
        43,
        44,
        45,
        46,
        47,
        48,
        49,
        50,
        51,
        55,
        60,
        61,
        65,
        66,
        68,
        69,
        74,
        75,
    ]
    assert all(api.first <= api.last for api in APIS.values())


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_only_batches_and_compression_use_other_packages() -> None:
    packages: dict[str, Any] = {"batch.py": {"google_crc32c"}, "compression.py": {"pyarrow", "zstandard"}}
    for path in Path(wire.__file__).parent.rglob("*.py"):
        allowed = sys.stdlib_module_names | {"msgspec"} | packages.get(path.name, set())
        for name in imports(path):
            inside = name.startswith(("headgate.model", "headgate.wire.kafka"))
            assert inside or name.partition(".")[0] in allowed, f"{path.name} imports {name}"


def test_exports_are_pinned() -> None:
    assert sorted(wire.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == wire.__all__
    assert all(hasattr(wire, name) for name in wire.__all__)
