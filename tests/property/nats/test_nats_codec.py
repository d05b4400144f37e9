"""Laws of the NATS codec: splits do not matter, round trips are exact, fuzz never crashes."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headgate.model import HeadgateError, ProtocolError
from headgate.wire.nats import (
    Event,
    Msg,
    Parser,
    check_publish_subject,
    covers,
    encode_headers,
    encode_hpub,
    encode_pub,
    escape_token,
    parse_headers,
    parse_pub_ack,
    unescape_token,
)

tokens = st.text(max_size=20).map(escape_token)
subjects = st.lists(tokens, min_size=1, max_size=4).map(".".join)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1, max_size=20)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=99).map(
    lambda text: text.strip(" \t")
)
fields = st.lists(st.tuples(names, values), max_size=4)


@st.composite
def server_frames(draw: st.DrawFn) -> bytes:
    """One thing that a server may say."""
    simple = [b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'Slow Consumer'\r\n", b'INFO {"server_id":"N"}\r\n']
    subject, payload = draw(subjects).encode(), draw(st.binary(max_size=40))
    block = encode_headers(draw(fields))
    messages = [
        b"MSG %s 1 %d\r\n%s\r\n" % (subject, len(payload), payload),
        b"HMSG %s 1 r %d %d\r\n%s%s\r\n" % (subject, len(block), len(block) + len(payload), block, payload),
    ]
    return draw(st.sampled_from(simple + messages))


def parse(pieces: Sequence[bytes]) -> tuple[list[Event], bool]:
    """Events, and whether the end was an error."""
    parser, seen = Parser(max_line_bytes=5_000, max_payload_bytes=20_000), list[Event]()
    try:
        for piece in pieces:
            parser.feed(piece)
            for event in parser.events():
                seen.append(event)  # extend would lose the events before an error
    except ProtocolError:
        return seen, True
    return seen, False


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


@given(st.lists(server_frames(), max_size=8), st.lists(st.integers(min_value=0), max_size=12))
def test_any_split_gives_the_same_events(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    whole, failed = parse([data])
    assert not failed
    assert len(whole) == len(frames)
    assert parse(split(data, cuts)) == (whole, False)
    assert parse([bytes([byte]) for byte in data]) == (whole, False)


@given(
    st.lists(
        st.one_of(server_frames(), st.binary(max_size=30), st.sampled_from([b"MSG ", b"HMSG a 1 9 9\r\n", b"\r\n"]))
    ),
    st.lists(st.integers(min_value=0), max_size=12),
)
def test_garbage_ends_the_same_way_however_it_is_split(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    assert parse(split(data, cuts)) == parse([data])


@given(st.binary())
def test_memory_is_bounded(data: bytes) -> None:
    parser = Parser(max_line_bytes=20, max_payload_bytes=20)
    try:
        for byte in data:
            parser.feed(bytes([byte]))
            list(parser.events())
            assert len(parser._buffer) <= 22
    except ProtocolError:
        assert len(parser._buffer) <= 22


@given(fields)
def test_headers_round_trip(pairs: list[tuple[str, str]]) -> None:
    assert parse_headers(encode_headers(pairs)).fields == tuple(pairs)


@given(st.binary(max_size=60))
def test_header_bytes_survive_even_if_they_are_not_text(raw: bytes) -> None:
    block = b"NATS/1.0\r\nA: " + raw.strip(b" \t") + b"\r\n\r\n"
    try:
        parsed = parse_headers(block)
    except ProtocolError:
        assert b"\r" in raw or b"\n" in raw
        return
    if len(parsed.fields) == 1:
        assert encode_headers(parsed.fields) == block


@given(subjects, fields, st.binary(max_size=100))
def test_what_we_publish_is_what_a_reader_gets(subject: str, pairs: list[tuple[str, str]], payload: bytes) -> None:
    block = encode_headers(pairs)
    frame = encode_hpub(subject, block, payload)
    as_received = b"HMSG %s 9 %s" % tuple(frame.removeprefix(b"HPUB ").split(b" ", 1))
    (message,), failed = parse([as_received])
    assert not failed
    assert isinstance(message, Msg)
    assert (message.subject, message.payload, message.headers.fields) == (subject, payload, tuple(pairs))
    assert encode_pub(subject, payload) == b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)


@given(st.text())
def test_every_text_is_a_token_and_back(text: str) -> None:
    token = escape_token(text)
    assert "." not in token
    assert check_publish_subject(f"cdc.{token}.insert")
    assert check_publish_subject(token)
    assert unescape_token(token) == text


@given(st.text(), st.text())
def test_different_texts_are_different_tokens(first: str, second: str) -> None:
    assert (escape_token(first) == escape_token(second)) == (first == second)


@given(st.text())
def test_whatever_unescapes_was_escaped(token: str) -> None:
    try:
        text = unescape_token(token)
    except HeadgateError:
        return
    assert escape_token(text) == token


small_patterns = st.lists(st.sampled_from(["a", "b", "*", ">"]), min_size=1, max_size=3).filter(
    lambda p: ">" not in p[:-1]
)


@given(small_patterns, small_patterns, st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4))
def test_a_covering_pattern_matches_whatever_the_covered_one_does(
    wide: list[str], narrow: list[str], name: list[str]
) -> None:
    if covers(".".join(wide), ".".join(narrow)) and covers(".".join(narrow), ".".join(name)):
        assert covers(".".join(wide), ".".join(name))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "error", "seq", "stream", "msgs", "code"]), inner)
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_json_is_an_acknowledgement_or_a_protocol_error(value: object) -> None:
    with contextlib.suppress(ProtocolError):
        parse_pub_ack(json.dumps(value).encode())
