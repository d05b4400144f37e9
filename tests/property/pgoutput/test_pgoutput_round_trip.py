"""Any message survives its bytes; any bytes give a message or a ProtocolError."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.wire.pgoutput import (
    Decoder,
    Message,
    StreamAbort,
    decode_frame,
    encode_message,
    format_lsn,
    parse_lsn,
)
from tests.cdc.assembler import Assembler
from tests.property.pgoutput.pgoutput_strategies import outside_block, streams, u64


@given(u64)
def test_lsn(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@given(streams)
def test_streams(stream: list[Message]) -> None:
    decoder = Decoder(4)
    assert [decoder.decode(encode_message(message)) for message in stream] == stream


@given(outside_block, st.data())
def test_a_message_cut_short_or_too_long_is_refused(message: Message, data: st.DataObject) -> None:
    payload = encode_message(message)
    cut = data.draw(st.integers(0, len(payload) - 1))
    assume(not (isinstance(message, StreamAbort) and cut == 9))  # its LSN and time are optional
    with pytest.raises(ProtocolError):
        Decoder(4).decode(payload[:cut])
    with pytest.raises(ProtocolError):
        Decoder(4).decode(payload + b"\0")


@given(st.integers(1, 4), st.binary(max_size=200))
def test_any_bytes(protocol: int, payload: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        Decoder(protocol).decode(payload)
    with contextlib.suppress(ProtocolError):
        decode_frame(payload)


@given(streams, st.data())
def test_mutated_streams(stream: list[Message], data: st.DataObject) -> None:
    """Drop and splice bytes of valid streams: what is still read is what was there, the rest is a ProtocolError."""
    payloads = [bytearray(encode_message(message)) for message in stream]
    decoder, assembler = Decoder(4), Assembler()
    for payload in payloads:
        if data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(payload) - 1))
            payload[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        with contextlib.suppress(ProtocolError):
            message = decoder.decode(bytes(payload))
            assert encode_message(message) == bytes(payload)
            assembler.feed(message, 1)
