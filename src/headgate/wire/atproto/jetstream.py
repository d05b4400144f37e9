"""Events as Jetstream's JSON, version 1: what most small programs on the network read.

One object per op of a commit, one per #identity and #account. Records are in the JSON form of the data model: a link
is `{"$link": "bafy..."}`, bytes are `{"$bytes": "<base64>"}`.

Specification: the README of bluesky-social/jetstream for the objects; AT Protocol, "Data Model", JSON Representation,
for the records.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from headgate.wire.atproto import cbor
from headgate.wire.atproto.cid import CBOR_PREFIX, RAW_PREFIX, cid_text
from headgate.wire.atproto.errors import AtprotoError, Reason
from headgate.wire.atproto.events import Account, Commit, Identity, Op

__all__ = ["account_json", "commit_json", "identity_json", "json_value", "record_json"]

_encode = msgspec.json.Encoder().encode


def commit_json(commit: Commit, blocks: Mapping[bytes, bytes], time_us: int) -> list[bytes]:
    """One object per op, in the order of the ops. A record that is not there or cannot be read is left out of it."""
    return [_op_json(commit, op, blocks, time_us) for op in commit.ops]


def _op_json(commit: Commit, op: Op, blocks: Mapping[bytes, bytes], time_us: int) -> bytes:
    collection, _, rkey = op.path.partition("/")
    change: dict[str, Any] = {
        "rev": commit.rev,
        "operation": op.action.value,
        "collection": collection,
        "rkey": rkey,
    }
    if op.cid is not None:
        block = blocks.get(op.cid)
        with suppress(AtprotoError):  # one odd record must not hide the others
            if block is not None:
                change["record"] = json_value(cbor.decode_map(block))
        change["cid"] = cid_text(op.cid)
    return _encode({"did": commit.did, "time_us": time_us, "kind": "commit", "commit": change})


def record_json(block: bytes | None) -> str | None:
    """A record alone; None if it is not there or cannot be read."""
    with suppress(AtprotoError):
        if block is not None:
            return _encode(json_value(cbor.decode_map(block))).decode()
    return None


def identity_json(event: Identity, time_us: int) -> bytes:
    identity: dict[str, Any] = {"did": event.did, "seq": event.seq, "time": event.time}
    if event.handle is not None:
        identity["handle"] = event.handle
    return _encode({"did": event.did, "time_us": time_us, "kind": "identity", "identity": identity})


def account_json(event: Account, time_us: int) -> bytes:
    account: dict[str, Any] = {"active": event.active, "did": event.did, "seq": event.seq, "time": event.time}
    if event.status is not None:
        account["status"] = event.status
    return _encode({"did": event.did, "time_us": time_us, "kind": "account", "account": account})


def json_value(value: Any) -> Any:
    """A decoded value of DAG-CBOR as what JSON can say."""
    try:
        return _json(value)
    except RecursionError as error:
        raise AtprotoError(Reason.BAD_CBOR, "a record is nested too deep") from error


def _json(value: Any) -> Any:
    kind = value.__class__
    if kind is dict:
        return {key: inner if inner.__class__ in _PLAIN else _json(inner) for key, inner in value.items()}
    if kind is list:
        return [_json(inner) for inner in value]
    if isinstance(value, bytes):
        return _bytes(value)
    return value


_PLAIN = frozenset((str, int, bool, type(None), float))


def _bytes(value: bytes) -> dict[str, str]:
    ordinary = value.__class__ is bytes and len(value) == 36 and value[:4] in (CBOR_PREFIX, RAW_PREFIX)
    if ordinary or cbor.is_link(value):
        return {"$link": cid_text(value)}
    # Padding may be left out (RFC 4648 section 4, as "Data Model", `bytes`, says).
    return {"$bytes": b64encode(value).rstrip(b"=").decode()}
