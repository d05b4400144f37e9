"""What JetStream answers to a publish: an acknowledgement or an error.

{"stream":"ORDERS","seq":17}                       stored
{"stream":"ORDERS","seq":17,"duplicate": true}     already there
{"error":{"code":503,"err_code":10077,...}}        refused

Specification: ADR-1 (JetStream JSON API design), ADR-7 (error codes).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headgate.model import ProtocolError

__all__ = ["ApiError", "PubAck", "parse_api_error", "parse_pub_ack"]


@dataclass(frozen=True, slots=True)
class PubAck:
    """A message is in the stream."""

    stream: str
    seq: int
    duplicate: bool = False
    domain: str = ""


@dataclass(frozen=True, slots=True)
class ApiError:
    """JetStream refused. `code` is HTTP-like, `err_code` says which error."""

    code: int
    err_code: int = 0
    description: str = ""


def parse_pub_ack(payload: bytes) -> PubAck | ApiError:
    """Parse the answer to a publish; anything else raises `ProtocolError`."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        raise ProtocolError(f"not a JetStream acknowledgement: {payload[:80]!r}") from None
    if not isinstance(fields, dict):
        raise ProtocolError(f"not a JetStream acknowledgement: {payload[:80]!r}")
    if fields.get("error") is not None:
        return parse_api_error(fields["error"])
    return _stored(fields)


def parse_api_error(error: object) -> ApiError:
    """The `error` object that every JetStream API answer may carry."""
    if not isinstance(error, dict):
        raise ProtocolError("JetStream sent an error that is not an object")
    err_code = _count(error, "err_code") if "err_code" in error else 0
    return ApiError(_count(error, "code"), err_code, _text(error, "description"))


def _stored(fields: dict[str, object]) -> PubAck:
    duplicate = fields.get("duplicate", False)
    stream = _text(fields, "stream")
    if not stream or not isinstance(duplicate, bool):
        raise ProtocolError("JetStream sent a malformed acknowledgement")
    return PubAck(stream, _count(fields, "seq"), duplicate, _text(fields, "domain"))


def _count(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or value < 0:
        raise ProtocolError(f"JetStream sent a malformed {name}")
    return value


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise ProtocolError(f"JetStream sent a malformed {name}")
    return value
