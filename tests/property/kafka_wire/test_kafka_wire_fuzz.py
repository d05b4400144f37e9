"""Damaged bytes raise `ProtocolError` and nothing else, and take no more memory than their own size allows."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.wire.kafka import (
    Api,
    Codec,
    FrameSplitter,
    Record,
    decode_request,
    encode_batch,
    encode_request,
    read_batch_header,
    read_records,
    split_batches,
)
from tests.property.kafka_wire.kafka_wire_strategies import EVERY_API, EVERY_VERSION, busy, message_class, messages

_HUGE = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xfe", b"\x80\x00", b"\xff" * 11, b"\x7f\xff"]
_BYTES_PER_BYTE = 200  # what Python's objects cost, for a byte of a message that is nothing but tiny items


def frames_of(api: Api[Any, Any]) -> Iterator[tuple[Callable[[bytes], Any], bytes]]:
    """Readers, each with a frame that it can read: the oldest version, the first flexible one and the newest."""
    for version in {api.first, api.flexible if api.flexible is not None else api.last, api.last}:
        for is_request in (True, False):
            message = busy(message_class(api, is_request=is_request), version)
            write = api.encode_request if is_request else api.encode_response
            read = api.decode_request if is_request else api.decode_response
            yield lambda data, read=read, version=version: read(data, version), b"".join(write(message, version))  # type: ignore[misc]


@pytest.mark.parametrize("api", EVERY_API, ids=lambda api: api.name)
def test_a_message_that_is_cut_off_or_goes_on_is_refused(api: Api[Any, Any]) -> None:
    for read, frame in frames_of(api):
        read(frame)
        for damaged in (*(frame[:size] for size in range(len(frame))), frame + b"\0"):
            with pytest.raises(ProtocolError):
                read(damaged)


@pytest.mark.parametrize("api", EVERY_API, ids=lambda api: api.name)
def test_hostile_lengths_cost_no_memory(api: Api[Any, Any]) -> None:
    for read, frame in frames_of(api):
        read(frame)  # compiled now, and not counted below
        tracemalloc.start()
        for position in range(0, len(frame), 1 + len(frame) // 80):
            for huge in _HUGE:
                with contextlib.suppress(ProtocolError):
                    read(frame[:position] + huge + frame[position + len(huge) :])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < _BYTES_PER_BYTE * len(frame) + 1_000_000


@settings(max_examples=200)
@given(data=st.data())
def test_any_damage_to_a_request_is_a_protocol_error(data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from(EVERY_VERSION))
    request = data.draw(messages(api.request, version))
    frame = bytearray(b"".join(encode_request(api, version, 7, "me", request)))[4:]
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(frame) - 1))
        frame[position : position + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
        frame = frame or bytearray(1)
    with contextlib.suppress(ProtocolError):
        decode_request(bytes(frame))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_request(data)


@given(st.lists(st.binary(max_size=30), max_size=8), st.data())
def test_any_split_of_the_stream_gives_the_same_frames(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    splitter = FrameSplitter()
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        splitter.feed(stream[:size])
        stream = stream[size:]
        found += splitter.frames()
    assert found == frames
    assert splitter.idle


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@settings(max_examples=80)
@given(data=st.data())
def test_any_damage_to_a_batch_is_a_protocol_error(codec: Codec, data: st.DataObject) -> None:
    records = [Record(n, n, b"key", b"value" * n, (("h", b"1"), ("h", None))) for n in range(5)]
    batch = bytearray(encode_batch(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(batch) - 1))
        batch[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        batch = batch or bytearray(1)
    with contextlib.suppress(ProtocolError):
        list(read_records(bytes(batch), max_bytes=10_000))


@given(st.binary(max_size=100))
def test_any_bytes_are_batches_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        list(split_batches(data))
    with contextlib.suppress(ProtocolError):
        read_batch_header(data)
