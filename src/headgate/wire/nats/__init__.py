"""The NATS client protocol and JetStream acknowledgements: bytes to values and back, without any I/O."""

from __future__ import annotations

from headgate.wire.nats.encode import (
    encode_connect,
    encode_hpub,
    encode_pub,
    encode_sub,
    encode_unsub,
    ping_line,
    pong_line,
)
from headgate.wire.nats.headers import Headers, encode_headers, parse_headers
from headgate.wire.nats.parser import Err, Event, Info, Msg, Ok, Parser, Ping, Pong, ServerInfo
from headgate.wire.nats.puback import ApiError, PubAck, parse_api_error, parse_pub_ack
from headgate.wire.nats.subject import (
    check_publish_subject,
    check_subject,
    covers,
    escape_token,
    unescape_token,
)

__all__ = [
    "ApiError",
    "Err",
    "Event",
    "Headers",
    "Info",
    "Msg",
    "Ok",
    "Parser",
    "Ping",
    "Pong",
    "PubAck",
    "ServerInfo",
    "check_publish_subject",
    "check_subject",
    "covers",
    "encode_connect",
    "encode_headers",
    "encode_hpub",
    "encode_pub",
    "encode_sub",
    "encode_unsub",
    "escape_token",
    "parse_api_error",
    "parse_headers",
    "parse_pub_ack",
    "ping_line",
    "pong_line",
    "unescape_token",
]
