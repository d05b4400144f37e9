"""What JetStream answers to a publish: an acknowledgement, an error, or the flow messages of a batch (ADR-50).

{"stream":"ORDERS","seq":17}                       stored
{"stream":"ORDERS","seq":17,"duplicate": true}     already there
{"error":{"code":503,"err_code":10077,...}}        refused
{"type":"ack","seq":500,"msgs":500}                a batch is stored up to here
{"type":"gap","last_seq":10,"seq":15}              messages of a batch were lost
{"type":"err","seq":10,"error":{...}}              a message of a batch was refused
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headgate.model import ProtocolError

__all__ = ["ApiError", "BatchFlow", "BatchGap", "PubAck", "parse_api_error", "parse_pub_ack"]


@dataclass(frozen=True, slots=True)
class PubAck:
    """A message is in the stream. `batch` and `count` are set by the last acknowledgement of a batch."""

    stream: str
    seq: int
    duplicate: bool = False
    domain: str = ""
    batch: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class ApiError:
    """JetStream refused. `code` is HTTP-like, `err_code` says which error; `batch_seq` is set inside a batch."""

    code: int
    err_code: int = 0
    description: str = ""
    batch_seq: int = 0


@dataclass(frozen=True, slots=True)
class BatchFlow:
    """A batch is stored up to `seq`; the next such message comes after `every` more."""

    seq: int
    every: int


@dataclass(frozen=True, slots=True)
class BatchGap:
    """The server missed messages of a batch: from `expected` up to, not including, `seq`."""

    expected: int
    seq: int


def parse_pub_ack(payload: bytes) -> PubAck | ApiError | BatchFlow | BatchGap:
    """Parse the answer to a publish; anything else raises `ProtocolError`."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        raise ProtocolError(f"not a JetStream acknowledgement: {payload[:80]!r}") from None
    if not isinstance(fields, dict):
        raise ProtocolError(f"not a JetStream acknowledgement: {payload[:80]!r}")
    match fields.get("type"):
        case "ack":
            return BatchFlow(_count(fields, "seq"), _count(fields, "msgs"))
        case "gap":
            return BatchGap(_count(fields, "last_seq"), _count(fields, "seq"))
        case "err":
            return parse_api_error(fields.get("error"), batch_seq=_count(fields, "seq"))
    if fields.get("error") is not None:
        return parse_api_error(fields["error"])
    return _stored(fields)


def parse_api_error(error: object, *, batch_seq: int = 0) -> ApiError:
    """The `error` object that every JetStream API answer may carry."""
    if not isinstance(error, dict):
        raise ProtocolError("JetStream sent an error that is not an object")
    err_code = _count(error, "err_code") if "err_code" in error else 0
    return ApiError(_count(error, "code"), err_code, _text(error, "description"), batch_seq)


def _stored(fields: dict[str, object]) -> PubAck:
    duplicate = fields.get("duplicate", False)
    stream = _text(fields, "stream")
    if not stream or not isinstance(duplicate, bool):
        raise ProtocolError("JetStream sent a malformed acknowledgement")
    count = _count(fields, "count") if "count" in fields else 0
    return PubAck(stream, _count(fields, "seq"), duplicate, _text(fields, "domain"), _text(fields, "batch"), count)


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
