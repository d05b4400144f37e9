"""The NATS codec on known bytes."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import headgate.wire.nats as wire
from headgate.model import DataError, ProtocolError
from headgate.wire.nats import (
    ApiError,
    Err,
    Event,
    Headers,
    Info,
    Msg,
    Ok,
    Parser,
    Ping,
    Pong,
    PubAck,
    check_publish_subject,
    check_subject,
    covers,
    encode_connect,
    encode_headers,
    encode_hpub,
    encode_pub,
    encode_sub,
    encode_unsub,
    escape_token,
    parse_headers,
    parse_pub_ack,
    unescape_token,
)


def events(data: bytes, **bounds: int) -> list[Event]:
    parser = Parser(**bounds)
    parser.feed(data)
    return list(parser.events())


def test_the_server_s_side_is_read() -> None:
    data = (
        b'INFO {"server_id":"N1","version":"2.15.1","headers":true,"max_payload":99,"connect_urls":["a:1"],"x":{}}\r\n'
        b"PING\r\nPONG\r\n+OK\r\n-ERR 'Stale Connection'\r\n"
        b"MSG a.b 1 5\r\nhello\r\nMSG a 2 r.1 0\r\n\r\n"
        b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHMSG a 1 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    )
    info, *rest = events(data)
    assert isinstance(info, Info)
    assert info.server.version == "2.15.1"
    assert info.server.max_payload == 99
    assert info.server.connect_urls == ("a:1",)
    assert rest == [
        Ping(),
        Pong(),
        Ok(),
        Err("Stale Connection"),
        Msg("a.b", 1, "", b"hello"),
        Msg("a", 2, "r.1", b""),
        Msg("a", 1, "", b"hi", Headers()),
        Msg("a", 1, "r", b"", Headers(status=503)),
    ]


def test_blanks_and_case_of_a_line_do_not_matter() -> None:
    assert events(b"msg  a\t1   2 \r\nhi\r\nping\r\n") == [Msg("a", 1, "", b"hi"), Ping()]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b'INFO {"max_payload":"1"}\r\n',
        b'INFO {"max_payload":true}\r\n',
        b'INFO {"connect_urls":[1]}\r\n',
        b"INFO " + b"[" * 100_000 + b"\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 -1\r\n",
        b"MSG a 1 1_0\r\n",
        b"MSG a 1 99999999999999999999\r\n",
        b"MSG a x 1\r\n",
        b"MSG \xff 1 1\r\n",
        b"MSG a 1 2\r\nhello\r\n",
        b"HMSG a 1 9 5\r\nNATS/\r\n",
        b"HMSG a 1 5 5\r\nhello\r\n",
        b"\r\n",
    ],
)
def test_hostile_bytes_raise(data: bytes) -> None:
    parser = Parser()
    parser.feed(data)
    with pytest.raises(ProtocolError):
        list(parser.events())
    parser.feed(b"PING\r\n")
    with pytest.raises(ProtocolError):
        list(parser.events())


def test_lines_and_payloads_are_bounded() -> None:
    with pytest.raises(ProtocolError, match="longer than 10"):
        events(b"x" * 12, max_line_bytes=10)
    with pytest.raises(ProtocolError, match="longer than 10"):
        events(b"x" * 12 + b"\r\n", max_line_bytes=10)
    with pytest.raises(ProtocolError, match="bound of 4"):
        events(b"MSG a 1 5\r\n", max_payload_bytes=4)
    assert events(b"MSG a 1 4\r\nokay\r\n", max_line_bytes=9, max_payload_bytes=4) == [Msg("a", 1, "", b"okay")]


def test_events_before_an_error_are_not_lost() -> None:
    parser = Parser()
    parser.feed(b"PING\r\nPONG\r\nwhat?\r\n")
    found = parser.events()
    assert [next(found), next(found)] == [Ping(), Pong()]
    with pytest.raises(ProtocolError, match="what"):
        next(found)


def test_idle_says_whether_something_is_under_way() -> None:
    parser = Parser()
    parser.feed(b"PING\r\nMSG a 1 2\r\n")
    assert list(parser.events()) == [Ping()]
    assert not parser.idle
    parser.feed(b"hi\r\n")
    assert list(parser.events()) == [Msg("a", 1, "", b"hi")]
    assert parser.idle


def test_what_a_client_says() -> None:
    assert (
        encode_connect({"verbose": False, "name": "a\r\nPING"}) == b'CONNECT {"verbose":false,"name":"a\\r\\nPING"}\r\n'
    )
    assert encode_pub("a.b", b"hi") == b"PUB a.b 2\r\nhi\r\n"
    assert encode_pub("a.b", b"hi", "r") == b"PUB a.b r 2\r\nhi\r\n"
    block = encode_headers([("A", "1")])
    assert encode_hpub("a", block, b"hi", "r") == b"HPUB a r 18 20\r\nNATS/1.0\r\nA: 1\r\n\r\nhi\r\n"
    assert encode_sub("a.>", 7) == b"SUB a.> 7\r\n"
    assert encode_sub("a.>", 7, "workers") == b"SUB a.> workers 7\r\n"
    assert encode_unsub(7) == b"UNSUB 7\r\n"
    assert encode_unsub(7, 3) == b"UNSUB 7 3\r\n"


@pytest.mark.parametrize("subject", ["a b", "a\r\nPING", "", "a..b", ".a", "a.", "a\x00", "x" * 5_000, "a.\ud800"])
def test_no_subject_can_break_a_line(subject: str) -> None:
    with pytest.raises(DataError):
        encode_pub(subject, b"")


def test_headers_keep_order_case_and_repeats() -> None:
    headers = parse_headers(b"NATS/1.0 100 Idle Heartbeat\r\nb: 2\r\nB:  3 \r\nb:4\r\n\r\n")
    assert headers == Headers((("b", "2"), ("B", "3"), ("b", "4")), 100, "Idle Heartbeat")
    assert headers.get("b") == "2"
    assert headers.get("c", "none") == "none"
    assert not Headers()


@pytest.mark.parametrize(
    "block",
    [b"", b"\r\n\r\n", b"NATS/2.0\r\n\r\n", b"NATS/1.0\r\nA\r\n\r\n", b"NATS/1.0\r\nA b: 1\r\n\r\n", b"NATS/1.0"],
)
def test_malformed_headers_raise(block: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_headers(block)


@pytest.mark.timeout(5)
def test_a_hostile_status_line_costs_linear_time() -> None:
    with pytest.raises(ProtocolError):
        parse_headers(b"NATS/1.0 503" + b" " * 200_000 + b"\r\r\n\r\n")


@pytest.mark.parametrize("field", [("A", "x\r\nB: 1"), ("A:", "x"), ("", "x"), ("A", " x")])
def test_unsendable_headers_raise(field: tuple[str, str]) -> None:
    with pytest.raises(DataError):
        encode_headers([field])


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("orders", "orders"),
        ("a.b c", "a%2Eb%20c"),
        ("*", "%2A"),
        (">", "%3E"),
        ("é", "%C3%A9"),
        ("", "%"),
        ("$x%", "%24x%25"),
    ],
)
def test_any_text_becomes_a_token(text: str, token: str) -> None:
    assert escape_token(text) == token
    assert unescape_token(token) == text


@pytest.mark.parametrize("token", ["%2", "%zz", "a.b", "%%", "é", "%C3", "%2e"])
def test_foreign_tokens_are_not_unescaped(token: str) -> None:
    with pytest.raises(DataError):
        unescape_token(token)


def test_legal_subjects() -> None:
    assert check_subject("a.*.c.>") == "a.*.c.>"
    for wrong in ("a.>.b", "a*", "a.b>"):
        with pytest.raises(DataError):
            check_subject(wrong)


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.DELETE.X", "$SYS.x", "a.*", ">", "a b"])
def test_rows_cannot_reach_the_server_s_own_subjects(subject: str) -> None:
    with pytest.raises(DataError):
        check_publish_subject(subject)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("cdc.>", "cdc.a.b", True),
        ("cdc.>", "cdc", False),
        ("cdc.*", "cdc.a.b", False),
        ("cdc.*.b", "cdc.*.b", True),
        ("cdc.a", "cdc.*", False),
        (">", "cdc.>", True),
        ("cdc.*", "cdc.>", False),
        ("cdc.a.b", "cdc.a", False),
    ],
)
def test_which_pattern_covers_which(pattern: str, subject: str, expected: bool) -> None:
    assert covers(pattern, subject) is expected


def test_acknowledgements() -> None:
    assert parse_pub_ack(b'{"stream":"S","seq":7}') == PubAck("S", 7)
    assert parse_pub_ack(b'{"stream":"S","seq":7,"duplicate": true,"domain":"hub"}') == PubAck("S", 7, True, "hub")
    refused = b'{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}'
    assert parse_pub_ack(refused) == ApiError(503, 10077, "maximum messages exceeded")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"stream":"S"}',
        b'{"stream":"","seq":1}',
        b'{"stream":"S","seq":-1}',
        b'{"error":1}',
        b"[" * 9_999,
    ],
)
def test_malformed_acknowledgements_raise(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_pub_ack(payload)


def test_wire_imports_only_the_standard_library_and_the_model() -> None:
    allowed = sys.stdlib_module_names | {"headgate"}
    for path in Path(wire.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.partition(".")[0] in allowed, f"{path.name} imports {name}"
                assert not name.startswith("headgate.") or name.startswith(("headgate.model", "headgate.wire.nats"))


def test_exports_are_pinned() -> None:
    assert sorted(wire.__all__) == wire.__all__
    assert all(hasattr(wire, name) for name in wire.__all__)
